"""Surrogates: streaming Gaussian processes, one family a file."""
