"""Matern kernels with second derivatives everywhere [MATHS 0].

gpytorch differentiates through distances, which have no derivatives at zero and, for few points, no
second ones at all. The kernels depend on squared distances, and are twice differentiable (once with
nu = 1/2, away from zero).
"""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel
from torch import Tensor

from bo_stream.mathematics.derivatives import twice

__all__ = ["SmoothMatern", "smooth_matern", "smoothed"]

SHIFT = 1e-14
"""Added to squared distances, so that roots have derivatives at zero; these cancel to 1e-8."""


def smooth_matern(D2: Tensor, nu: float) -> Tensor:
    """Kernel values at squared distances in lengthscales, of any shape, differentiable.

    Args:
        D2: Squared distances.
        nu: Smoothness: 0.5, 1.5 or 2.5.
    """
    u = (2.0 * nu * (D2 + SHIFT)).sqrt()
    factor = {0.5: torch.ones_like(u), 1.5: 1.0 + u, 2.5: 1.0 + u + u.square() / 3.0}[nu]
    return factor * (-u).exp()


class SmoothMatern(MaternKernel):
    """gpytorch's kernel, with second derivatives in the points in ``O(n n' d)`` memory."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The kernel between two sets of points."""
        if diag or any(params.values()) or not (x1.requires_grad or x2.requires_grad):
            values: Tensor = super().forward(x1, x2, diag=diag, **params)
            return values
        return twice(super().forward, self._smooth, x1, x2)

    def _smooth(self, x1: Tensor, x2: Tensor) -> Tensor:
        gaps = (x1.unsqueeze(-2) - x2.unsqueeze(-3)) / self.lengthscale.unsqueeze(-2)
        return smooth_matern(gaps.square().sum(-1), self.nu)


def smoothed(kernel: Kernel) -> Kernel:
    """The kernel, in which each gpytorch `MaternKernel` becomes a `SmoothMatern` in place."""
    for part in kernel.modules():
        if type(part) is MaternKernel:
            part.__class__ = SmoothMatern
    return kernel
