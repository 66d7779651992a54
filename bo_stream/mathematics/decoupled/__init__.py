"""Mathematics of SVDGP: a mean on a window of data, a covariance on inducing points (MATHS 6.8)."""
