"""The mathematics of inducing points: state, update, bounds, posterior (MATHS 3, 4)."""
