"""Other optimisers behind one ask and tell, for studies to compare streaming surrogates with."""
