"""Surrogates: streaming Gaussian processes, one family per file."""
