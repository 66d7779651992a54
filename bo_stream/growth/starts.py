"""Shorter lengthscales from which to start a fit, as far as a batch can resolve them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, cast

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.inducing.state import dense

__all__ = ["has_lengthscale", "scale_lengthscales", "shares", "shorter"]

SHRINK = 1.0 / 3.0
"""Lengthscales of one start, relative to those of the start before it."""

SHORTER = 2
"""Most starts in addition to the current lengthscales."""

ALIKE = 0.5
"""Median of the largest prior correlations between points below which a batch cannot distinguish
structure from noise."""

MARGIN = 1e-4
"""Relative distance kept from the bounds of a constraint."""


def _adjustable(kernel: Kernel) -> Iterator[Any]:
    """The parts of a kernel whose lengthscale is free."""
    for part in kernel.modules():
        raw = getattr(part, "raw_lengthscale", None)
        if isinstance(part, Kernel) and raw is not None and raw.requires_grad:
            yield part


def has_lengthscale(kernel: Kernel) -> bool:
    """Whether any lengthscale of the kernel is free."""
    return next(_adjustable(kernel), None) is not None


def scale_lengthscales(kernel: Kernel, factor: float) -> None:
    """Multiply all free lengthscales, within their constraints, in place."""
    for part in _adjustable(kernel):
        value = part.lengthscale.detach() * factor
        constraint = cast(Interval | None, part.raw_lengthscale_constraint)
        if constraint is not None:
            low = constraint.lower_bound.to(value) * (1.0 + MARGIN)
            value = value.clamp(low, constraint.upper_bound.to(value) * (1.0 - MARGIN))
        part.lengthscale = value


def shorter(kernel: Kernel, factor: float) -> Kernel:
    """A copy of the kernel with its free lengthscales multiplied by the factor."""
    scaled = copy.deepcopy(kernel)
    scale_lengthscales(scaled, factor)
    return scaled


def shares(kernel: Kernel, X: Tensor) -> list[float]:
    """Multiples of the current lengthscales to start from in addition to 1, as long as most points
    of X (``N x d``) are correlated with another point. O(N^2).
    """
    found: list[float] = []
    while len(found) < SHORTER and X.shape[0] > 1 and has_lengthscale(kernel):
        share = SHRINK ** (len(found) + 1)
        if _likeness(shorter(kernel, share), X) < ALIKE:
            break
        found.append(share)
    return found


def _likeness(kernel: Kernel, X: Tensor) -> float:
    """The median over points of the largest prior correlation with another point."""
    with torch.no_grad():
        K = dense(kernel, X)
    sd = K.diagonal().sqrt()
    R = K / sd / sd.unsqueeze(-1)
    return float(R.fill_diagonal_(-torch.inf).amax(-1).median())
