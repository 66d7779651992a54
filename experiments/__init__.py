"""Thin experiments over the public API; no package imports from here."""
