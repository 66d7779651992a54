"""Computation-aware GPs beside others on tables, for the same seconds."""
