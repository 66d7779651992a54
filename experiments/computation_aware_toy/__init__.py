"""Computation-aware GPs on one picture."""
