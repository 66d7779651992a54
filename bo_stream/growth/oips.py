"""OIPS: a point enters if no inducing point is correlated with it [OIPS, Alg. 1] (MATHS 4.4).

The choice is sequential and depends on the order of the batch. Every point seen has an inducing
point with a correlation of at least rho, and correlations between inducing points are below rho.
(Theorem 1 of the paper is not a bound on the number of points.)
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from gpytorch.kernels import AdditiveKernel, ConstantKernel, Kernel
from torch import Tensor

from bo_stream.growth.policy import Selection, all_old, check_cap, check_positive, indices
from bo_stream.mathematics.inducing.state import Batch, SGPRState, dense, diagonal

__all__ = ["OIPS"]


@dataclass(frozen=True)
class OIPS:
    """Add x if ``max_z k(x, z) < rho sqrt(k(x, x) k(z, z))``; old points stay.

    Args:
        rho: Correlation in (0, 1). For a squared-exponential kernel, points enter that are farther
            than ``lengthscale * sqrt(-2 log(rho))`` from all others.
        max_points: Largest number of inducing points, None for no cap.

    Constant components of a sum of kernels are left out: they would inflate every correlation. O(N
    M + N^2) kernel values a batch.
    """

    rho: float
    max_points: int | None = None

    def __post_init__(self) -> None:
        check_positive("rho", self.rho, below=1.0)
        check_cap(self.max_points)

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """All old points, and points of the batch with no correlated inducing point."""
        varying = without_constants(kernel)
        nearest = correlation(varying, batch.X, state.Z).amax(-1) if state.size else None
        if nearest is None:
            nearest = batch.y.new_full((batch.size,), -torch.inf)
        entered: list[int] = []
        cap = float("inf") if self.max_points is None else self.max_points
        for i in range(batch.size):
            if state.size + len(entered) >= cap:
                break
            if float(nearest[i]) < self.rho:
                entered.append(i)
                own = correlation(varying, batch.X[i:], batch.X[i : i + 1]).squeeze(-1)
                nearest[i:] = torch.maximum(nearest[i:], own)
        return Selection(all_old(state), indices(entered, batch.X))


def correlation(kernel: Kernel, X: Tensor, Z: Tensor) -> Tensor:
    """Prior correlations ``N x M``."""
    scale = diagonal(kernel, X).unsqueeze(-1) * diagonal(kernel, Z)
    return dense(kernel, X, Z) / scale.sqrt()


def without_constants(kernel: Kernel) -> Kernel:
    """The kernel without the constant terms of a sum, as a copy if there are any."""
    if not isinstance(kernel, AdditiveKernel):
        return kernel
    varying = [k for k in kernel.kernels if not isinstance(k, ConstantKernel)]
    if len(varying) == len(kernel.kernels) or not varying:
        return kernel
    reduced = copy.deepcopy(kernel)
    reduced.kernels = torch.nn.ModuleList(varying)
    return reduced
