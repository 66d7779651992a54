"""Additive sufficient statistics and the evidence from them (MATHS 2.2-2.4)."""
