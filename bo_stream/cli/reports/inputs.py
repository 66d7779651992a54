"""Inputs of a campaign as a page names and scales them."""

from __future__ import annotations

from collections.abc import Mapping

from bo_stream.campaign.space import Box, Space

__all__ = ["bounds", "is_log", "label"]


def bounds(space: Space) -> Mapping[str, tuple[float, float]]:
    """Least and largest value of each input, in its unit."""
    if isinstance(space, Box):
        return space.bounds
    low, high = space.tensor_bounds.tolist()
    return dict(zip(space.names, zip(low, high, strict=True), strict=True))


def is_log(space: Space, name: str) -> bool:
    """Whether an input is on a logarithmic scale."""
    return isinstance(space, Box) and name in space.log


def label(space: Space, name: str) -> str:
    """An input with its unit."""
    unit = space.units.get(name)
    return f"{name} ({unit})" if unit else name
