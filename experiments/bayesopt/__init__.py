"""Bayesian optimisation: surrogates beside each other on one problem, from a TOML file."""
