"""Constructor arguments for BoTorch's `construct_inputs`, and Ax on top of it.

Ax builds a new model from a `SupervisedDataset` at every step and adds its own transforms. For
cross-validation it builds models on parts of the data and loads the hyperparameters of the first.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bo_stream.errors import UnsupportedError

__all__ = ["LEAST_NOISE", "constructor_arguments"]

LEAST_NOISE = 1e-6
"""Noise variance substituted for exact evaluations (variance zero), relative to the outcomes'
variance: gpytorch's floor for standardised outcomes."""


def constructor_arguments(
    family: Any, data: Mapping[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """A family's constructor arguments; see `BoTorchModel.construct_inputs`.

    Args:
        family: A subclass of `BoTorchModel`.
        data: ``train_X``, ``train_Y``, and optionally ``train_Yvar``.
        options: Further arguments by name.
    """
    unknown = sorted(set(options) - set(inspect.signature(family).parameters))
    if unknown:
        raise UnsupportedError(
            f"options of {family.__name__}, and a search space of plain numbers",
            ", ".join(unknown),
            "Check the spelling; encode categories as numbers (in Ax, by its transforms).",
        )
    inputs: dict[str, Any] = {**data, "loads_data": False}
    if "train_Yvar" in inputs:
        inputs["train_Yvar"] = _with_floor(inputs["train_Yvar"], inputs["train_Y"])
    bounds = options.get("bounds")
    unknown_box = family.needs_bounds and bounds is None and options.get("grid") is None
    if unknown_box or _is_unit_cube(bounds):
        options = {**options, "bounds": "unit"}
    return {**inputs, **options}


def _is_unit_cube(bounds: Any) -> bool:
    if not isinstance(bounds, Tensor | list | tuple):
        return False
    value = torch.as_tensor(bounds, dtype=torch.float64)
    rows = value.unbind() if value.ndim == 2 else ()
    return len(rows) == 2 and not bool(rows[0].any()) and bool((rows[1] == 1).all())


def _with_floor(Yvar: Tensor, Y: Tensor) -> Tensor:
    """Replace variances of zero by the floor."""
    scale = Y.var(0) if len(Y) > 1 else torch.zeros_like(Y[:1].sum(0))
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return torch.where(Yvar == 0, LEAST_NOISE * scale, Yvar)
