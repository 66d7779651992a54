"""Where a campaign may measure: a box of named inputs, or the rows of a table.

Users give inputs in their own units and labels as pandas frames; surrogates are given tensors.
"""

from collections.abc import Mapping
from typing import Any

from bo_stream.campaign.space.box import Box
from bo_stream.campaign.space.columns import numbers
from bo_stream.campaign.space.pool import Pool

__all__ = ["Box", "Pool", "Space", "numbers", "space_from_dict"]

Space = Box | Pool


def space_from_dict(to_dict: Mapping[str, Any]) -> Space:
    """The space whose `to_dict` returned this plain data."""
    kind = Box if to_dict["kind"] == "box" else Pool
    return kind.from_dict(to_dict)
