"""Tables as streams: errors of surrogates against rows, seconds and bytes."""
