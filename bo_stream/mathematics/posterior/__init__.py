"""Posterior processes: frozen laws of a function, conditioned, subset, summed over points."""
