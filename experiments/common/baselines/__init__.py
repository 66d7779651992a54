"""Methods that studies compare streaming surrogates with, all behind `Baseline`."""
