"""Online SGPR fed a few points at a time."""
