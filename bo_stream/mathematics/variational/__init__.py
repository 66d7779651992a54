"""The mathematics of the online variational GP (MATHS 3.3, 6.5)."""
