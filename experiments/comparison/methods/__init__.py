"""Optimisers, each in a loop as a user of its package would write it."""
