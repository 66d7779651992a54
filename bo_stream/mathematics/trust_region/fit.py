"""Fitting the local process of a trust region (MATHS 14.2 and 14.3).

The evidence of Matern-5/2 with mean and amplitude profiled out,
    -log p = n/2 log v + 1/2 log|C| + const,
in the log lengthscales and the log ratio of noise to amplitude, with gradient in closed form:
    d(-log p)/dC = 1/2 (C^-1 - a a'/v),  a = C^-1 (y - m).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from bo_stream.mathematics.matern import (
    lengthscale_gradient,
    matern52_and_slope,
    squared_distances,
)

__all__ = ["Priors", "ProfiledEvidence", "Result", "fit"]

SPAN = 4.0
"""Log lengthscales are searched within this distance of their prior mean."""
RATIOS = (-16.0, 2.0)
"""Bounds of the log ratio."""
ITERATIONS, TOLERANCE = 15, 1e-5
"""Iterations of one ascent, and the relative gain at which it ends."""


@dataclass(frozen=True)
class Priors:
    """log l ~ N(length, 1) for every input, log ratio ~ N(ratio, ratio_sd^2).

    Attributes:
        length: In units of the box.
        ratio: -3 under noise; -10 where evaluations are exact.
        ratio_sd: 2 or 3.
        first_ratio: Where the first ascent starts.
    """

    length: float
    ratio: float
    ratio_sd: float
    first_ratio: float

    @classmethod
    def of(cls, U: Tensor, noisy: bool) -> Priors:
        """For points ``n x d`` of the unit box: ``length = log(2 sqrt(d) geomean(sd))``."""
        n, d = U.shape
        sd = U.std(0, correction=0).clamp(min=1e-12) if n > 1 else U.new_full((d,), 12.0**-0.5)
        length = math.log(2.0) + 0.5 * math.log(d) + float(sd.log().mean())
        return cls(length, *((-3.0, 2.0, -3.0) if noisy else (-10.0, 3.0, -8.0)))

    def log_density(self, log_lengths: Tensor, log_ratio: Tensor) -> Tensor:
        """Of ``d`` log lengthscales and the log ratio: 0-dim, differentiable."""
        normal = torch.distributions.Normal
        lengths = normal(self.length, 1.0).log_prob(log_lengths).sum()
        return lengths + normal(self.ratio, self.ratio_sd).log_prob(log_ratio).sum()


@dataclass(frozen=True)
class ProfiledEvidence:
    """The objective of a fit.

    Attributes:
        U: Points ``n x d`` in units of the box, near the origin.
        y: Outcomes ``n``.
        priors: Priors of the hyperparameters.
    """

    U: Tensor
    y: Tensor
    priors: Priors

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective, to be maximised, without constants, and its gradient: O(n^3 + n^2 d).

        Args:
            theta: ``d`` log lengthscales, then the log ratio.
        """
        t, n = torch.from_numpy(theta), len(self.y)
        Z = self.U / t[:-1].exp()
        C, slope = matern52_and_slope(squared_distances(Z, Z))
        ratio = float(t[-1].exp())
        C.diagonal().fill_(1.0 + ratio)
        L, info = torch.linalg.cholesky_ex(C)
        if int(info):
            return -math.inf, np.zeros_like(theta)
        solved = torch.cholesky_solve(torch.stack([self.y, torch.ones_like(self.y)], -1), L)
        m = solved[:, 0].sum() / solved[:, 1].sum()
        a = solved[:, 0] - m * solved[:, 1]
        v = float(((self.y - m) @ a / n).clamp(min=1e-300))
        M = torch.cholesky_inverse(L).addr_(a, a, alpha=-1.0 / v).mul_(-0.5)
        noise = ratio * float(M.trace())
        lengths = lengthscale_gradient(M.mul_(slope), Z)
        value = -0.5 * n * math.log(v) - float(L.diagonal().log().sum())
        sd = np.append(np.ones(len(theta) - 1), self.priors.ratio_sd)
        z = (theta - self.prior_mean()) / sd
        gradient = np.append(lengths.numpy(), noise) - z / sd
        return value - 0.5 * float(z @ z), gradient

    def prior_mean(self) -> np.ndarray:
        """The prior's mean of ``theta``."""
        return np.append(np.full(self.U.shape[1], self.priors.length), self.priors.ratio)

    def first(self) -> np.ndarray:
        """Where an ascent starts that knows nothing."""
        return np.append(np.full(self.U.shape[1], self.priors.length), self.priors.first_ratio)

    def bounds(self) -> list[tuple[float, float]]:
        """Bounds of ``theta``."""
        centre = self.priors.length
        return [(centre - SPAN, centre + SPAN)] * self.U.shape[1] + [RATIOS]


@dataclass(frozen=True)
class Result:
    """The result of a fit.

    Attributes:
        theta: ``d`` log lengthscales, then the log ratio.
        evaluations: Number of evaluations of objective and gradient.
        converged: Whether the gain fell below the tolerance.
    """

    theta: np.ndarray
    evaluations: int
    converged: bool


def fit(objective: ProfiledEvidence, starts: list[np.ndarray], most: int | None) -> Result:
    """The best point of bounded L-BFGS ascents, at most 15 iterations each.

    Args:
        objective: The objective.
        starts: Starting points, which are moved within the bounds.
        most: Maximum number of evaluations over all starts; None for no limit.
    """
    search = _Counted(objective, most)
    bounds = objective.bounds()
    low, high = np.array(bounds).T
    converged: dict[float, bool] = {}
    for start in starts:
        try:
            found = minimize(
                search,
                np.clip(start, low, high),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"maxiter": ITERATIONS, "ftol": TOLERANCE},
            )
        except _NoneLeft:
            break
        converged[float(found.fun)] = found.status == 0
    return Result(search.theta, search.evaluations, converged.get(search.loss, False))


class _NoneLeft(Exception):
    """No evaluation is left."""


class _Counted:
    """The negative objective, counting its evaluations and remembering the best point."""

    def __init__(self, objective: ProfiledEvidence, most: int | None) -> None:
        self._objective, self._most = objective, most
        self.evaluations, self.loss, self.theta = 0, math.inf, objective.first()

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        if self.evaluations == self._most:
            raise _NoneLeft
        self.evaluations += 1
        value, gradient = self._objective(theta)
        if not math.isfinite(value):
            return 1e10, gradient
        if -value < self.loss:
            self.loss, self.theta = -value, theta.copy()
        return -value, -gradient
