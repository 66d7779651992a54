"""How many inducing points online SGPR takes on tables."""
