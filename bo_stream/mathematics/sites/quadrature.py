"""Gauss-Hermite quadrature: expectations, and the moments of a tilted Gaussian (MATHS 11.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

__all__ = ["Density", "Tilted", "expected", "fine_expectation", "tilted"]

NODES = 32
WIDE, FINE = 7.0, 401
"""Range in standard deviations, and number of nodes, of the fine rule."""
MAX_STEP, MAX_ITERATIONS, CLOSE = 2.0, 40, 1e-5
"""Newton steps are at most this long, at most this many, and end below this length. The nodes need
the mode only roughly."""

_x, _w = np.polynomial.hermite.hermgauss(NODES)
ROOTS, WEIGHTS = _x, _w / math.sqrt(math.pi)
LOG_WEIGHTS = np.log(_w) + _x**2 + 0.5 * math.log(2.0)


class Density(Protocol):
    """A density of outcomes y given latent values g, log-concave in g; tensors broadcast."""

    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Log density, up to a constant of y and ``size``."""
        ...

    def constant(self, y: Tensor, size: Tensor) -> Tensor:
        """The constant that `log_density` leaves out."""
        ...

    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Derivative of the log density in g."""
        ...

    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Minus its second derivative, not negative."""
        ...

    def start(self, y: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of a Gaussian near the likelihood of g."""
        ...

    def most_precise(self, y: Tensor, size: Tensor) -> Tensor:
        """An upper bound of the curvature; infinite if there is none."""
        ...


class Tilted(NamedTuple):
    """Moments of ``N(g; mean, variance) p(y | g)``.

    Attributes:
        log_norm: Logarithm of its integral.
        mean: Mean.
        variance: Variance.
    """

    log_norm: Tensor
    mean: Tensor
    variance: Tensor


def _like(tensor: Tensor, values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).to(tensor)


def expected(function: Callable[[Tensor], Tensor], mean: Tensor, variance: Tensor) -> Tensor:
    """Expectation of a function of a Gaussian value, elementwise and differentiable."""
    g = mean.unsqueeze(-1) + (2.0 * variance).sqrt().unsqueeze(-1) * torch.from_numpy(ROOTS).to(
        mean
    )
    return (function(g) * _like(mean, WEIGHTS)).sum(-1)


def fine_expectation(
    function: Callable[[Tensor], Tensor], mean: Tensor, variance: Tensor
) -> Tensor:
    """As `expected`, for functions that may be nearly steps, such as a cdf of many trials."""
    z = torch.linspace(-WIDE, WIDE, FINE).to(mean)
    weights = torch.exp(-0.5 * z.square())
    g = mean.unsqueeze(-1) + variance.sqrt().unsqueeze(-1) * z
    return (function(g) * (weights / weights.sum())).sum(-1)


def tilted(density: Density, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tilted:
    """Moments of tilted Gaussians by quadrature at the mode's place and scale: O(32 n).

    Args:
        density: The density of the outcomes.
        mean: Means of g before the outcome, ``n``.
        variance: Their variances, ``n``.
        y: Outcomes, ``n``.
        size: Trials, exposures, or ones, ``n``.
    """
    g = _mode(density, mean, variance, y, size)
    scale = (density.curvature(g, y, size) + 1.0 / variance).rsqrt()
    nodes = g.unsqueeze(-1) + math.sqrt(2.0) * scale.unsqueeze(-1) * _like(g, ROOTS)
    y_, size_ = y.unsqueeze(-1), size.unsqueeze(-1)
    square = (nodes - mean.unsqueeze(-1)).square() / variance.unsqueeze(-1)
    logs = density.log_density(nodes, y_, size_) - 0.5 * square + _like(g, LOG_WEIGHTS)
    top = logs.amax(-1, keepdim=True)
    shares = (logs - top).exp()
    total = shares.sum(-1, keepdim=True)
    shares = shares / total
    made = (shares * nodes).sum(-1)
    spread = (shares * (nodes - made.unsqueeze(-1)).square()).sum(-1)
    log_norm = (total.log() + top).squeeze(-1) + scale.log()
    log_norm = log_norm - 0.5 * (2.0 * math.pi * variance).log() + density.constant(y, size)
    return Tilted(log_norm, made, spread)


def _mode(density: Density, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tensor:
    """The mode of tilted Gaussians, by Newton's method with clipped steps."""
    about, spread = density.start(y, size)
    g = (mean / variance + about / spread) / (1.0 / variance + 1.0 / spread)
    for _ in range(MAX_ITERATIONS):
        rise = density.slope(g, y, size) - (g - mean) / variance
        step = rise / (density.curvature(g, y, size) + 1.0 / variance)
        step = step.clamp(-MAX_STEP, MAX_STEP)
        g = g + step
        if not step.numel() or float(step.abs().max()) < CLOSE:
            break
    return g
