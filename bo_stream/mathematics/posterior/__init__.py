"""Posterior processes: frozen distributions of a function, and what is computed from them."""
