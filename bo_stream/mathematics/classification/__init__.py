"""Class labels as regression targets (MATHS 2.6)."""
