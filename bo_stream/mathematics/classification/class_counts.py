"""What a classifier remembers of labels: how many there were of each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bo_stream.errors import StateError
from bo_stream.mathematics.classification.label_targets import Pairs
from bo_stream.mathematics.classification.labels import Label

__all__ = ["Seen", "read_settings", "settings_of", "telling"]

Seen = dict[Label, int]
"""Number of labels absorbed of each class, in the order of the outputs."""


def telling(seen: Seen) -> list[bool]:
    """Whether labels tell classes apart: for each, whether some are of it and some are not."""
    n = sum(seen.values())
    return [0 < count < n for count in seen.values()]


def settings_of(seen: Seen, pairs: Pairs) -> dict[str, Any]:
    """As plain containers, for a file."""
    counts = list(seen.values())
    return {"classes": list(seen), "counts": counts, "alpha_epsilon": pairs.alpha_epsilon}


def read_settings(settings: Mapping[str, Any]) -> tuple[Seen, Pairs]:
    """What `settings_of` made plain.

    Raises:
        StateError: if it did not.
    """
    known, counts = settings.get("classes", []), settings.get("counts", [])
    if not known or len(known) != len(counts):
        raise StateError("classes, each with a count", f"{dict(settings)}", "It is damaged.")
    return dict(zip(known, counts, strict=True)), Pairs.of(settings.get("alpha_epsilon"))
