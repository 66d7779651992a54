"""What a posterior says of an outcome: increasing functions of Gaussian latent values.

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

__all__ = ["Linear", "OutcomeDistribution"]

BISECTIONS = 60
REACH = 8.0
"""Standard deviations beyond which a normal density, or its tail from a threshold on, is left
out."""
NOWHERE = 40.0
"""Standard deviations above the mean from which on the density is zero."""
SMALLEST = 1e-300

_x, _w = np.polynomial.hermite_e.hermegauss(48)
HERMITE = tuple(zip(_x.tolist(), (_w / _w.sum()).tolist(), strict=True))
_x, _w = np.polynomial.legendre.leggauss(40)
LEGENDRE = tuple(zip((0.5 * (1.0 + _x)).tolist(), (0.5 * _w).tolist(), strict=True))


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
        variances: Their variances, ``K x n``.
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
    variances: Tensor
    outcome: Linear | Callable[[Tensor], Tensor]

    @cached_property
    def mean(self) -> Tensor:
        """Means, ``n``."""
        if isinstance(self.outcome, Linear):
            return self.outcome(self._mixed(self.means))
        return self._expected(self.outcome)

    @cached_property
    def variance(self) -> Tensor:
        """Variances, ``n``."""
        outcome, mean = self.outcome, self.mean
        if isinstance(outcome, Linear):
            apart = self.means - self._mixed(self.means)
            return outcome.scale.square() * self._mixed(self._sds.square() + apart.square())
        return self._expected(lambda w: (outcome(w) - mean).square())

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
        asked = torch.as_tensor(levels, dtype=torch.float64, device=self.means.device)
        if not bool(((asked > 0.0) & (asked < 1.0)).all()):
            raise InputError(
                "levels between 0 and 1", f"{asked.tolist()}", "0.05 and 0.95 are usual."
            )
        ends = self.means + self._sds * torch.special.ndtri(asked).reshape(-1, 1, 1)
        if len(self.weights) == 1:
            return self.outcome(ends[:, 0])
        level, low, high = asked.unsqueeze(-1), ends.amin(1), ends.amax(1)
        return self.outcome(bisected(lambda w: 1.0 - self._beyond(w) < level, low, high))

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
    def _sds(self) -> Tensor:
        return self.variances.clamp_min(0.0).sqrt().clamp_min(SMALLEST)

    def _mixed(self, values: Tensor) -> Tensor:
        """The mean over kernels of values ``... x K x n``."""
        return (self.weights.unsqueeze(-1) * values).sum(-2)

    def _expected(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The expectation of a function of latent values, ``n``."""
        total = torch.zeros_like(self.means)
        for node, weight in HERMITE:
            total += weight * function(self.means + self._sds * node)
        return self._mixed(total)

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


def bisected(below: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Where an increasing function is reached, between bounds.

    Args:
        below: Whether the function is below its target, elementwise.
        low: Where it is.
        high: Where it is not.
    """
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        short = below(middle)
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return 0.5 * (low + high)
