"""Number of labels of each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bo_stream.errors import StateError
from bo_stream.mathematics.classification.label_targets import LabelTargets
from bo_stream.mathematics.classification.labels import Label

__all__ = ["Seen", "read_settings", "settings_of", "informative_classes"]

Seen = dict[Label, int]
"""Number of labels absorbed of each class, in the order of the outputs."""


def informative_classes(seen: Seen) -> list[bool]:
    """For each class, whether some labels name it and some do not."""
    n = sum(seen.values())
    return [0 < count < n for count in seen.values()]


def settings_of(seen: Seen, pairs: LabelTargets) -> dict[str, Any]:
    """Settings of a classifier as plain containers, for a file."""
    counts = list(seen.values())
    return {"classes": list(seen), "counts": counts, "alpha_epsilon": pairs.alpha_epsilon}


def read_settings(settings: Mapping[str, Any]) -> tuple[Seen, LabelTargets]:
    """Read what `settings_of` returned.

    Raises:
        StateError: if it is damaged.
    """
    known, counts = settings.get("classes", []), settings.get("counts", [])
    if not known or len(known) != len(counts):
        raise StateError("classes, each with a count", f"{dict(settings)}", "It is damaged.")
    return dict(zip(known, counts, strict=True)), LabelTargets.of(settings.get("alpha_epsilon"))
