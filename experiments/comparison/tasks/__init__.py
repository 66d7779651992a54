"""Functions to be optimised, by name."""
