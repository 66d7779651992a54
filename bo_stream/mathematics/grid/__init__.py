"""The mathematics of a regular grid: nodes, interpolation, kernels, posterior (MATHS 2)."""
