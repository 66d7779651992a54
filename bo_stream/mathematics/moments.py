"""Mean and covariance at a few points, with derivatives in closed form.

An acquisition function needs only these, hundreds of times in one maximisation, and autograd costs
several times the algebra itself. If the mean is ``phi(x) u`` and the covariance ``phi(x) S
phi(z)'``, the products that give them also give their derivatives from those of ``phi``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

__all__ = ["Pullback", "Moments", "Derivatives", "leaf", "sloped_product", "pullback"]

Pullback = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of moments in the coordinates of points.

    Attributes:
        mean: Of each mean in its own point, ``batch x q x k``.
        covariance: Of ``cov(x_i, x_j)`` in the second point alone, ``batch x j x k x i``.
        back: From gradients in the coordinates, ``batch x q x k``, to those in the points.
    """

    mean: Tensor
    covariance: Tensor
    back: Pullback


@dataclass(frozen=True)
class Moments:
    """Moments of one output at points ``batch x q x d``, without an autograd graph.

    Attributes:
        mean: ``batch x q``.
        covariance: ``batch x q x q``.
        slopes: Their derivatives, or None.
        across: Covariances with p other points, with their derivatives or without, ``batch x q x
            (1 + k) x p``; or None.
    """

    mean: Tensor
    covariance: Tensor
    slopes: Derivatives | None = None
    across: Tensor | None = None

    @classmethod
    def of(
        cls, means: Tensor, covariances: Tensor, back: Pullback, across: Tensor | None = None
    ) -> Moments:
        """From values and derivatives in one tensor each.

        Args:
            means: ``batch x q x (1 + k)``.
            covariances: ``batch x j x (1 + k) x i``.
            back: As in `Derivatives`.
            across: As the attribute.
        """
        slopes = Derivatives(means[..., 1:], covariances[..., 1:, :], back)
        return cls(means[..., 0], covariances[..., 0, :], slopes, across)

    def conditioned(self, L: Tensor, r: Tensor) -> Moments:
        """The moments given observations at the other points.

        Args:
            L: Cholesky factor of their covariance plus noise, ``p x p``.
            r: ``L^-1 (y - mean)``, ``p``.
        """
        rows = torch.linalg.solve_triangular(
            L.mT, cast(Tensor, self.across).flatten(0, -2), upper=True, left=False
        ).view_as(cast(Tensor, self.across))
        mean, less = rows @ r, rows.flatten(-3, -2) @ rows[..., 0, :].mT
        less = less.unflatten(-2, rows.shape[-3:-1])
        covariance = self.covariance - less[..., 0, :]
        if self.slopes is None:
            return Moments(self.mean + mean[..., 0], covariance)
        of_mean = self.slopes.mean + mean[..., 1:]
        slopes = replace(
            self.slopes, mean=of_mean, covariance=self.slopes.covariance - less[..., 1:, :]
        )
        return Moments(self.mean + mean[..., 0], covariance, slopes)

    def pull(self, bar_mean: Tensor, bar_cov: Tensor) -> Tensor:
        """The gradient in the points, from gradients in the mean and in each entry of the
        covariance.
        """
        slopes = cast(Derivatives, self.slopes)
        both = (bar_cov + bar_cov.mT).unsqueeze(-1)
        crossed = (slopes.covariance @ both).squeeze(-1)
        bar = torch.addcmul(crossed, bar_mean.unsqueeze(-1), slopes.mean)
        return slopes.back(bar)


def leaf(X: Tensor, slopes: bool) -> Tensor:
    """The detached points, with gradient if derivatives are wanted."""
    return X.detach().requires_grad_(slopes)


def pullback(places: Tensor, points: Tensor) -> Pullback:
    """The function from gradients in places to gradients in the points, a `leaf`."""

    def back(bar: Tensor) -> Tensor:
        if places is points:
            return bar
        (result,) = torch.autograd.grad(places, points, bar, retain_graph=True)
        return result

    return back


def sloped_product(factors: Sequence[Tensor]) -> Tensor:
    """Products over dimensions, and their derivatives in each dimension: ``... x (1 + d) x f``.

    Args:
        factors: For each dimension values and derivatives, ``... x 2 x f``, or values alone, ``...
            x 1 x f``.
    """
    rows = factors[0]
    for factor in factors[1:]:
        value, slope = factor[..., :1, :], factor[..., 1:, :]
        rows = torch.cat([rows * value, rows[..., :1, :] * slope], -2)
    return rows
