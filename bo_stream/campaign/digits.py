"""Numbers as text."""

from __future__ import annotations

__all__ = ["told_apart"]

DIGITS = (6, 9, 12, 15, 17)
"""Significant digits that are tried; 17 tell any two numbers apart."""


def told_apart(*values: float) -> list[str]:
    """The numbers in as few digits as show which of them differ."""
    texts: list[str] = []
    for digits in DIGITS:
        texts = [f"{value:.{digits}g}" for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts
