"""Checksums inside stored events and settings, so that damage is noticed.

A checksum covers the campaign, the number of the event and its contents. Stores of earlier releases
have none; from the first checksum of a campaign on, all its events have one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from bo_stream.errors import InputError

__all__ = ["is_sealed", "sealed", "unsealed"]

KEY = "checksum"


def sealed(campaign: str, number: int, contents: Mapping[str, Any]) -> dict[str, Any]:
    """Contents with their checksum.

    Raises:
        InputError: for contents that are not plain data.

    Args:
        campaign: Name of the campaign.
        number: Number of the event; 0 for the settings.
        contents: Plain data.
    """
    if found := _not_plain(contents):
        part = found[0].removeprefix("settings.").partition(".")[0]
        remedy = f"Give a callable for the {part}, and give it again to Campaign.resume"
        if part == "space":
            remedy = "Name places by texts or numbers: table.index = table.index.astype(str)"
        raise InputError(
            "plain data in a store: texts, numbers, lists and tables",
            f"{found[1]} in {found[0]}",
            f"{remedy}; or leave out the store.",
        )
    return {**contents, KEY: _digest(campaign, number, contents)}


def _not_plain(value: Any, place: str = "") -> tuple[str, str] | None:
    """Where a value has anything but plain data, and its class; None if it has not."""
    if value is None or isinstance(value, bool | int | float | str):
        return None
    if isinstance(value, Mapping):
        parts = [(str(key), one) for key, one in value.items()]
    elif isinstance(value, list | tuple):
        parts = [("", one) for one in value]
    else:
        return place, type(value).__name__
    places = (_not_plain(one, f"{place}.{key}".strip(".")) for key, one in parts)
    return next((found for found in places if found), None)


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
