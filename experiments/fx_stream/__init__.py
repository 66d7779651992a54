"""Surrogates on an exchange rate, one day at a time."""
