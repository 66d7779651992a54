"""Additive statistics and the evidence they give (MATHS 2.2-2.4)."""
