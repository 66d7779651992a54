"""Streaming classification beside an exact Dirichlet GP."""
