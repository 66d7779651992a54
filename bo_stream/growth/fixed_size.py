"""A fixed number of inducing points, re-chosen with every batch [Bui; VIPS section 5]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from gpytorch.kernels import Kernel
from scipy.optimize import minimize

from bo_stream.errors import InputError
from bo_stream.growth.conditional_variance import from_pool
from bo_stream.growth.policy import Selection, check_cap, check_count, indices, selected_update
from bo_stream.mathematics.inducing.state import Batch, SGPRState
from bo_stream.mathematics.inducing.update import update

__all__ = ["FixedSize"]


@dataclass(frozen=True)
class FixedSize:
    """``m`` inducing points.

    Args:
        m: Number of points (fewer while fewer distinct points have been seen).
        method: "greedy" takes the largest conditional variances of old points and batch, O((N + m)
            m^2); "gradient" starts there and moves all points up the gradient of the online bound,
            as Bui et al. do.
        steps: Largest number of quasi-Newton iterations of the gradient method.
        max_points: A cap below ``m``, for symmetry with the other policies.
    """

    m: int
    method: Literal["greedy", "gradient"] = "greedy"
    steps: int = 50
    max_points: int | None = None

    def __post_init__(self) -> None:
        for name, count in (("m", self.m), ("steps", self.steps)):
            check_count(name, count)
        check_cap(self.max_points)
        if self.method not in ("greedy", "gradient"):
            raise InputError(
                "method of 'greedy' or 'gradient'", f"{self.method!r}", "Leave it out for 'greedy'."
            )

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """The points of largest conditional variance, moved by the gradient method."""
        count = self.m if self.max_points is None else min(self.m, self.max_points)
        greedy = from_pool(state, batch, kernel, count)
        return greedy if self.method == "greedy" else self._moved(state, batch, kernel, greedy)

    def _moved(self, state: SGPRState, batch: Batch, kernel: Kernel, start: Selection) -> Selection:
        """All points at a local maximum of the bound, or ``start`` if that is no better."""
        first = selected_update(state, batch, kernel, start)
        Z_0 = first.state.Z
        dropped = torch.full((state.size,), -1, device=Z_0.device)

        def negative_bound(z: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
            Z = torch.from_numpy(z).to(Z_0).reshape(Z_0.shape).requires_grad_(True)
            with torch.enable_grad():
                try:
                    bound = update(state, batch, kernel, state.mean, Z, dropped).bound
                except RuntimeError:  # a factorisation failed: a bad step
                    return float("inf"), np.zeros_like(z)
                (gradient,) = torch.autograd.grad(bound, Z)
            return -float(bound.detach()), -gradient.flatten().cpu().numpy()

        best = minimize(
            negative_bound,
            Z_0.flatten().cpu().numpy(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.steps},
        )
        if not -best.fun > float(first.bound):
            return start
        nothing = indices([], Z_0)
        return Selection(nothing, nothing, torch.from_numpy(best.x).to(Z_0).reshape(Z_0.shape))
