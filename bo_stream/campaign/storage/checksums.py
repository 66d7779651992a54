"""Checksums inside stored events and settings, so that damage is noticed.

A checksum covers the campaign, the number of the event and its contents. Stores of earlier releases
have none; from the first checksum of a campaign on, all its events have one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["is_sealed", "sealed", "unsealed"]

KEY = "checksum"


def sealed(campaign: str, number: int, contents: Mapping[str, Any]) -> dict[str, Any]:
    """Contents with their checksum.

    Args:
        campaign: Name of the campaign.
        number: Number of the event; 0 for the settings.
        contents: Plain data.
    """
    return {**contents, KEY: _digest(campaign, number, contents)}


def is_sealed(stored: Any) -> bool:
    """Whether stored contents have a checksum."""
    return isinstance(stored, Mapping) and KEY in stored


def unsealed(campaign: str, number: int, stored: Any, required: bool) -> dict[str, Any] | None:
    """Contents without their checksum; None if they are damaged.

    Args:
        campaign: Name of the campaign.
        number: Number of the event; 0 for the settings.
        stored: What was read.
        required: Whether contents without a checksum are damaged.
    """
    if not isinstance(stored, Mapping):
        return None
    contents = {name: value for name, value in stored.items() if name != KEY}
    if not is_sealed(stored):
        return None if required else contents
    return contents if stored[KEY] == _digest(campaign, number, contents) else None


def _digest(campaign: str, number: int, contents: Mapping[str, Any]) -> str:
    plain = json.dumps([campaign, number, contents], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()[:32]
