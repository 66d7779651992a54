"""Costs measured as ratios, in one process, with one thread."""
