"""The factor of a window's covariance, mean and amplitude profiled out (MATHS 14.2).

The constant mean m and the amplitude v are optimal in closed form, given the correlations R and the
ratios s of noise to amplitude:
    C = R + diag(s),  m = 1'C^-1 y / 1'C^-1 1,  v = (y - m)'C^-1 (y - m) / n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_stream.mathematics.linalg import jitters
from bo_stream.mathematics.matern import matern52, squared_distances

__all__ = ["Factor", "correlations", "factored"]

MOST = 1e-4
"""Largest jitter of correlations."""
LEAST = 1e-300
"""Least amplitude: outcomes may all be equal."""


@dataclass(frozen=True)
class Factor:
    """The Cholesky factor of C and what follows from it for the outcomes y.

    Attributes:
        L: ``n x n``.
        ratios: ``s``, ``n``.
        mean: m, 0-dim.
        amplitude: v, 0-dim.
        weights: ``C^-1 (y - m)``, ``n``.
    """

    L: Tensor
    ratios: Tensor
    mean: Tensor
    amplitude: Tensor
    weights: Tensor

    def log_evidence(self) -> float:
        """At the optimal mean and amplitude: ``-n/2 log(2 pi e v) - 1/2 log|C|``."""
        logs = len(self.weights) * math.log(2.0 * math.pi * math.e * float(self.amplitude))
        return -0.5 * logs - float(self.L.diagonal().log().sum())

    def means(self, y: Tensor) -> Tensor:
        """Posterior means at the window's own points: ``y - s C^-1 (y - m)``, ``n``."""
        return y - self.ratios * self.weights


def correlations(X: Tensor, lengthscales: Tensor) -> Tensor:
    """The Matern-5/2 correlations of points ``n x d``, ``n x n``."""
    Z = (X - X.mean(0)) / lengthscales
    R = matern52(squared_distances(Z, Z))
    R.diagonal().fill_(1.0)
    return R


def factored(R: Tensor, ratios: Tensor, y: Tensor) -> Factor:
    """Factor ``R + diag(s)``: one Cholesky, then O(n^2).

    Args:
        R: Correlations ``n x n``.
        ratios: ``s``, ``n``.
        y: Outcomes, ``n``.

    Raises:
        torch.linalg.LinAlgError: if it is not positive definite with any jitter.
    """
    for jitter in (0.0, *jitters(MOST)):
        C = R.clone()
        C.diagonal().add_(ratios + jitter)
        L, info = torch.linalg.cholesky_ex(C)
        if not int(info):
            break
    else:
        L = torch.linalg.cholesky(C)
    both = torch.stack([y, torch.ones_like(y)], -1)
    H = torch.linalg.solve_triangular(L, both, upper=False)
    mean = H[:, 0] @ H[:, 1] / H[:, 1].square().sum()
    w = H[:, 0] - mean * H[:, 1]
    weights = torch.linalg.solve_triangular(L.mT, w.unsqueeze(-1), upper=True).squeeze(-1)
    amplitude = (w.square().sum() / max(len(y), 1)).clamp(min=LEAST)
    return Factor(L, ratios + jitter, mean, amplitude, weights)
