"""Decoupled GPs beside the baselines of their papers: a toy, a robot arm, long streams."""
