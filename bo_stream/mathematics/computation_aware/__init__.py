"""The mathematics of projected data: actions, objective, compression, posterior (MATHS 5)."""
