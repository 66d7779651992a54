"""Exact inference at small n in closed form: an outcome warp, its evidence, its posterior."""
