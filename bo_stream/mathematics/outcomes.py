"""What a posterior says of an outcome, and integrals over Gaussian latent values.

An outcome ``y = g(w)`` is a linear function of the latent value ``w``, or a nonlinear one such as
the inverse of a warp or of a link. The latent value is Gaussian, or a mixture of Gaussians over
kernels. A quantile of ``w`` becomes that of ``y``, and a probability is that of ``w`` beyond the
threshold's latent value. Moments and expected improvements are sums where ``g`` is linear, and
otherwise integrals over ``w``, by Gauss-Hermite quadrature and by Gauss-Legendre quadrature from
the threshold on, behind which the integrand is smooth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bo_stream.errors import InputError

__all__ = ["Linear", "OutcomeDistribution", "bisected", "checked_levels", "expected", "fine_nodes"]

BISECTIONS = 60
REACH = 8.0
"""Standard deviations beyond which a normal density, or its tail from a threshold on, is left
out."""
NOWHERE = 40.0
"""Standard deviations above the mean from which on the density is zero."""
SMALLEST = 1e-300
WIDE, FINE = 7.0, 401
"""Range in standard deviations, and number of nodes, of the fine rule."""

_x, _w = np.polynomial.hermite_e.hermegauss(48)
NODES, WEIGHTS = torch.from_numpy(_x), torch.from_numpy(_w / _w.sum())
_x, _w = np.polynomial.legendre.leggauss(40)
LEGENDRE = tuple(zip((0.5 * (1.0 + _x)).tolist(), (0.5 * _w).tolist(), strict=True))


def expected(function: Callable[[Tensor], Tensor], mean: Tensor, variance: Tensor) -> Tensor:
    """Expectation of a function of a Gaussian value, elementwise and differentiable.

    Args:
        function: Of values ``48 x ...``, one for each node of a Gauss-Hermite rule.
        mean: Means of the values.
        variance: Their variances.
    """
    nodes = NODES.to(mean).reshape(-1, *[1] * mean.ndim)
    return torch.tensordot(WEIGHTS.to(mean), function(mean + variance.sqrt() * nodes), 1)


def fine_nodes(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Values ``401 x n`` on a fine grid, and the logarithms of their weights, ``401 x 1``.

    For expectations of functions that may be nearly steps, such as a cdf of many trials.
    """
    z = torch.linspace(-WIDE, WIDE, FINE, dtype=torch.float64).to(mean).unsqueeze(-1)
    return mean + variance.sqrt() * z, (-0.5 * z.square()).log_softmax(0)


@dataclass(frozen=True)
class Linear:
    """The function ``shift + scale w``.

    Attributes:
        shift: 0-dim, or ``n``, one for each point.
        scale: Likewise, positive.
    """

    shift: Tensor
    scale: Tensor

    def __call__(self, w: Tensor) -> Tensor:
        """Outcomes from latent values ``... x n``."""
        return self.shift + self.scale * w


@dataclass(frozen=True)
class OutcomeDistribution:
    """The marginal distributions of an outcome at ``n`` points.

    Costs O(n K) for a linear function and 40 to 48 times that for another.

    Attributes:
        weights: Those of ``K`` kernels, which add up to one.
        means: Means of the latent values under each kernel, ``K x n``.
        spread: Their variances, ``K x n``, or what computes them when they are needed.
        outcome: Outcomes from latent values ``... x n``: `Linear`, or another function that
            increases, elementwise and the same at all points.

    Example:
        >>> zero, one = torch.zeros(1, 2), torch.ones(1, 2)
        >>> y = OutcomeDistribution(torch.ones(1), zero, one, torch.exp)
        >>> y.mean, y.quantiles([0.5]).float()
        (tensor([1.6487, 1.6487]), tensor([[1., 1.]]))
    """

    weights: Tensor
    means: Tensor
    spread: Tensor | Callable[[], Tensor]
    outcome: Linear | Callable[[Tensor], Tensor]

    @cached_property
    def mean(self) -> Tensor:
        """Means, ``n``."""
        if isinstance(self.outcome, Linear):
            return self.outcome(self._mixed(self.means))
        return self._mixed(expected(self.outcome, self.means, self._sds.square()))

    @cached_property
    def variance(self) -> Tensor:
        """Variances, ``n``."""
        outcome, mean, square = self.outcome, self.mean, self._sds.square()
        if isinstance(outcome, Linear):
            apart = self.means - self._mixed(self.means)
            return outcome.scale.square() * self._mixed(square + apart.square())
        return self._mixed(expected(lambda w: (outcome(w) - mean).square(), self.means, square))

    @property
    def sd(self) -> Tensor:
        """Standard deviations, ``n``."""
        return self.variance.sqrt()

    def quantiles(self, levels: Sequence[float] | Tensor) -> Tensor:
        """Quantiles, ``len(levels) x n``; exact, for several kernels by bisection.

        Args:
            levels: Probabilities between 0 and 1.

        Raises:
            InputError: for other levels.
        """
        level = checked_levels(levels, self.means)
        ends = self.means + self._sds * torch.special.ndtri(level).unsqueeze(-1)
        w = ends[:, 0]
        if len(self.weights) > 1:
            w = bisected(lambda w: 1.0 - self._beyond(w) < level, ends.amin(1), ends.amax(1))
        return self.outcome(w)

    def probability_above(self, threshold: float | Tensor) -> Tensor:
        """Probabilities of an outcome above thresholds, ``k x n``; ``n`` for a single number."""
        thresholds = torch.as_tensor(threshold, dtype=torch.float64, device=self.means.device)
        found = self._beyond(self._latent(thresholds.reshape(-1)))
        return found if thresholds.ndim else found[0]

    def expected_improvement(self, targets: Tensor) -> Tensor:
        """Expected amounts by which outcomes are above targets (``k``), ``k x n``."""
        edges = self._latent(targets).unsqueeze(1)
        a = ((edges - self.means) / self._sds).clamp_max(NOWHERE)  # k x K x n
        if isinstance(self.outcome, Linear):
            density = torch.exp(-0.5 * a.square()) / math.sqrt(2.0 * math.pi)
            above = self._sds * (density - a * torch.special.ndtr(-a))
            return self.outcome.scale * self._mixed(above.clamp_min(0.0))
        start = a.clamp_min(-REACH)
        width = (start.clamp_min(0.0).square() + REACH**2).sqrt() - start
        total = torch.zeros_like(start)
        for node, weight in LEGENDRE:
            z = start + width * node
            above = self.outcome(self.means + self._sds * z) - targets.reshape(-1, 1, 1)
            total += weight * torch.exp(-0.5 * z.square()) * above.clamp_min(0.0)
        return self._mixed(width * total) / math.sqrt(2.0 * math.pi)

    # -- pieces ----------------------------------------------------------------------------------

    @cached_property
    def variances(self) -> Tensor:
        """Variances of the latent values, ``K x n``."""
        return self.spread() if callable(self.spread) else self.spread

    @cached_property
    def _sds(self) -> Tensor:
        return self.variances.clamp_min(0.0).sqrt().clamp_min(SMALLEST)

    def _mixed(self, values: Tensor) -> Tensor:
        """The mean over kernels of values ``... x K x n``."""
        return (self.weights.unsqueeze(-1) * values).sum(-2)

    def _beyond(self, w: Tensor) -> Tensor:
        """Probabilities of latent values above those given, ``k x (1 | n)``: ``k x n``."""
        return self._mixed(torch.special.ndtr((self.means - w.unsqueeze(1)) / self._sds))

    def _latent(self, y: Tensor) -> Tensor:
        """Latent values of outcomes ``k``, as ``k x (1 | n)``; the ends of what is reached for
        those beyond.
        """
        y = y.to(self.means).unsqueeze(-1)
        if isinstance(self.outcome, Linear):
            return (y - self.outcome.shift) / self.outcome.scale
        reach = 2.0 * REACH * self._sds + 1.0
        low = (self.means - reach).amin().expand_as(y)
        high = (self.means + reach).amax().expand_as(y)
        return bisected(lambda w: self.outcome(w) < y, low, high)


def checked_levels(levels: Sequence[float] | Tensor, like: Tensor) -> Tensor:
    """Levels of quantiles, ``k x 1``, float64.

    Raises:
        InputError: for levels outside (0, 1).
    """
    level = torch.as_tensor(levels, dtype=torch.float64, device=like.device).reshape(-1, 1)
    if not bool(((level > 0.0) & (level < 1.0)).all()):
        got = f"{level.flatten().tolist()}"
        raise InputError("levels between 0 and 1", got, "0.05 and 0.95 are usual.")
    return level


def bisected(
    below: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, width: float = 0.0
) -> Tensor:
    """Where an increasing function is reached, between bounds.

    Args:
        below: Whether the function is below its target, elementwise.
        low: Where it is.
        high: Where it is not.
        width: The largest distance between bounds that needs no further steps.
    """
    for _ in range(BISECTIONS):
        if width and bool((high - low <= width).all()):
            break
        middle = 0.5 * (low + high)
        short = below(middle)
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return 0.5 * (low + high)
