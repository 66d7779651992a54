"""Computation-aware GPs beside others, for the same seconds: on tables, and on one picture."""
