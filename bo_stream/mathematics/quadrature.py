"""Quadrature over a Gaussian value: expectations, and tilted moments (MATHS 11.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Tilted", "expected", "fine_nodes", "tilted"]

NODES = 32
WIDE, FINE = 7.0, 401
"""Range in standard deviations, and number of nodes, of the fine rule."""

_x, _w = np.polynomial.hermite.hermgauss(NODES)
ROOTS, WEIGHTS = torch.from_numpy(_x), torch.from_numpy(_w / math.sqrt(math.pi))
LOG_WEIGHTS = torch.from_numpy(np.log(_w) + _x**2 + 0.5 * math.log(2.0))


class Tilted(NamedTuple):
    """Moments of ``N(g; mean, variance)`` times a likelihood of g.

    Attributes:
        log_norm: Logarithm of its integral.
        mean: Mean.
        variance: Variance.
    """

    log_norm: Tensor
    mean: Tensor
    variance: Tensor


def expected(function: Callable[[Tensor], Tensor], mean: Tensor, variance: Tensor) -> Tensor:
    """Expectation of a function of a Gaussian value, elementwise and differentiable."""
    g = mean.unsqueeze(-1) + (2.0 * variance).sqrt().unsqueeze(-1) * ROOTS.to(mean)
    return (function(g) * WEIGHTS.to(mean)).sum(-1)


def fine_nodes(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Values ``n x 401`` on a fine grid, and the logarithms of their weights, ``401``.

    For expectations of functions that may be nearly steps, such as a cdf of many trials.
    """
    z = torch.linspace(-WIDE, WIDE, FINE).to(mean)
    values = mean.unsqueeze(-1) + variance.sqrt().unsqueeze(-1) * z
    return values, (-0.5 * z.square()).log_softmax(0)


def tilted(
    log_density: Callable[[Tensor], Tensor],
    mean: Tensor,
    variance: Tensor,
    mode: Tensor,
    curvature: Tensor,
) -> Tilted:
    """Moments of tilted Gaussians by quadrature at the mode's place and scale: O(32 n).

    Args:
        log_density: Log likelihoods of values ``n x 32``.
        mean: Means of g, ``n``.
        variance: Their variances, ``n``.
        mode: Roughly the modes of the tilted Gaussians, ``n``.
        curvature: Minus the second derivatives of the log likelihoods there, ``n``.
    """
    scale = (curvature + 1.0 / variance).rsqrt()
    g = mode.unsqueeze(-1) + math.sqrt(2.0) * scale.unsqueeze(-1) * ROOTS.to(mode)
    square = (g - mean.unsqueeze(-1)).square() / variance.unsqueeze(-1)
    logs = log_density(g) - 0.5 * square + LOG_WEIGHTS.to(mode)
    log_total = logs.logsumexp(-1)
    shares = (logs - log_total.unsqueeze(-1)).exp()
    center = (shares * g).sum(-1)
    spread = (shares * (g - center.unsqueeze(-1)).square()).sum(-1)
    log_norm = log_total + scale.log() - 0.5 * (2.0 * math.pi * variance).log()
    return Tilted(log_norm, center, spread)
