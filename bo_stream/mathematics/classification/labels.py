"""Validation of labels: tensors, arrays, columns of a frame, lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bo_stream.errors import DtypeError, InputError, ShapeError

__all__ = ["Label", "tensor_or_list", "checked_classes", "read_labels", "unseen"]

Label = int | str


def read_labels(y: Any, points: int) -> list[Label]:
    """Labels, one for each point.

    Args:
        y: A 1-D tensor or array of integers, or a sequence (list, array, column of a frame) of
            integers or of strings.
        points: Number of points.

    Raises:
        ShapeError: unless they are one for each point.
        DtypeError: unless all are integers, or all strings.
        InputError: if one is missing.
    """
    values = _listed(y)
    if len(values) != points or any(isinstance(v, list | tuple) for v in values):
        raise ShapeError(
            f"one label a point, `{points}`",
            f"{tuple(y.shape) if hasattr(y, 'shape') else len(values)}",
            "Give a flat list, array or column: y.squeeze(-1) of one column.",
        )
    for value in values:
        if value is None or value != value:
            raise InputError("a label for every point", f"{value!r}", "Drop the points without.")
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise DtypeError(
                "integer or string labels",
                f"{value!r} of type {type(value).__name__}",
                "Convert them: y.long(), or y.astype(str).",
            )
    _of_one_kind(values)
    return values


def checked_classes(classes: Any) -> list[Label]:
    """The option ``classes``, in the order given.

    Raises:
        InputError: on duplicates, or without any class; and as `read_labels`.
    """
    named = read_labels(classes, len(_listed(classes)))
    if not named or len(set(named)) < len(named):
        raise InputError("different classes, at least one", repr(named), "Name each class once.")
    return named


def unseen(labels: Sequence[Label], known: Sequence[Label]) -> list[Label]:
    """Sorted labels that are not among the known classes.

    Raises:
        DtypeError: on strings among integers, or integers among strings.
    """
    _of_one_kind([*known, *labels])
    return sorted(set(labels) - set(known))


def tensor_or_list(labels: list[Label]) -> Tensor | list[str]:
    """Integers as a tensor, strings as a list."""
    if labels and isinstance(labels[0], str):
        return [str(label) for label in labels]
    return torch.tensor(labels, dtype=torch.long)


def _listed(y: Any) -> list[Any]:
    if isinstance(y, str) or not (hasattr(y, "tolist") or hasattr(y, "__len__")):
        raise DtypeError("labels in a list, array or column", repr(y), "Wrap a single one: [y].")
    values = y.tolist() if hasattr(y, "tolist") else list(y)
    return values if isinstance(values, list) else [values]


def _of_one_kind(labels: Sequence[Label]) -> None:
    kinds = {type(label).__name__ for label in labels}
    if len(kinds) > 1:
        raise DtypeError(
            "labels of one kind, integers or strings", " and ".join(sorted(kinds)), "Convert some."
        )
