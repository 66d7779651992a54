"""Optimisers of several packages beside each other, each in its own loop, on equal budgets."""
