"""Mean and covariance at a few points, with their derivatives taken back in closed form.

An acquisition function needs no more of a process. Autograd's graph of a law and of what is made
of it costs several times the algebra itself, hundreds of times in one maximisation. Where the mean
is ``phi(x) u`` and the covariance ``phi(x) S phi(z)'``, the same products that give these give
their derivatives too, once ``phi`` comes with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

__all__ = ["Back", "Moments", "Slopes", "leaf", "sloped_product", "taken_back"]

Back = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Slopes:
    """Derivatives of moments in the places that points take.

    Attributes:
        mean: Of each mean in its own place, ``batch x q x k``.
        covariance: Of ``cov(x_i, x_j)`` in the second place alone, ``batch x j x k x i``.
        back: From gradients in the places, ``batch x q x k``, to those in the points.
    """

    mean: Tensor
    covariance: Tensor
    back: Back


@dataclass(frozen=True)
class Moments:
    """Moments of one output at points ``batch x q x d``, without a graph.

    Attributes:
        mean: ``batch x q``.
        covariance: ``batch x q x q``.
        slopes: Their derivatives; None where none were asked for.
    """

    mean: Tensor
    covariance: Tensor
    slopes: Slopes | None = None

    @classmethod
    def of(cls, means: Tensor, covariances: Tensor, back: Back) -> Moments:
        """Values and derivatives side by side, as one product gives them.

        Args:
            means: ``batch x q x (1 + k)``.
            covariances: ``batch x j x (1 + k) x i``.
            back: As in `Slopes`.
        """
        slopes = Slopes(means[..., 1:], covariances[..., 1:, :], back)
        return cls(means[..., 0], covariances[..., 0, :], slopes)

    def pull(self, bar_mean: Tensor, bar_cov: Tensor) -> Tensor:
        """From gradients in the mean and in the covariance, as if its entries were free, to the
        gradient in the points.
        """
        slopes = cast(Slopes, self.slopes)
        both = (bar_cov + bar_cov.mT).unsqueeze(-1)
        crossed = (slopes.covariance @ both).squeeze(-1)
        bar = torch.addcmul(crossed, bar_mean.unsqueeze(-1), slopes.mean)
        return slopes.back(bar)


def leaf(X: Tensor, slopes: bool) -> Tensor:
    """The points, to be differentiated in if wanted."""
    return X.detach().requires_grad_(slopes)


def taken_back(places: Tensor, points: Tensor) -> Back:
    """What takes gradients in places back to the points that they were made of, a `leaf`."""

    def back(bar: Tensor) -> Tensor:
        if places is points:
            return bar
        (result,) = torch.autograd.grad(places, points, bar, retain_graph=True)
        return result

    return back


def sloped_product(factors: Sequence[Tensor]) -> Tensor:
    """Products over dimensions, and their derivatives in each dimension: ``... x (1 + d) x f``.

    Args:
        factors: Per dimension the values and, if derivatives are wanted, theirs: ``... x 2 x f`` or
            ``... x 1 x f``.
    """
    rows = factors[0]
    for factor in factors[1:]:
        value, slope = factor[..., :1, :], factor[..., 1:, :]
        rows = torch.cat([rows * value, rows[..., :1, :] * slope], -2)
    return rows
