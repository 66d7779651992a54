"""Mean and covariance at a few points, with their derivatives taken back in closed form.

An acquisition function needs no more of a process. Autograd's graph of a law and of what is made
of it costs several times the algebra itself, hundreds of times in one maximisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Moments", "leaf", "taken_back"]

Pull = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Moments:
    """Moments of one output at points ``batch x q x d``, without a graph.

    Attributes:
        mean: ``batch x q``.
        covariance: ``batch x q x q``.
        pull: From gradients in the mean and in the covariance, as if its entries were free, to the
            gradient in the points; None where none was asked for.
    """

    mean: Tensor
    covariance: Tensor
    pull: Pull | None


def leaf(X: Tensor, slopes: bool) -> Tensor:
    """The points, to be differentiated in if wanted."""
    return X.detach().requires_grad_(slopes)


def taken_back(values: Tensor, points: Tensor, mean: Tensor, spread: Tensor) -> Pull:
    """The pull of ``phi u`` and ``phi S phi'``, symmetric S.

    Args:
        values: ``phi``, ``batch x q x f``, with its graph.
        points: The leaf of that graph.
        mean: ``u``, at each point those that its values go with: ``f`` or ``batch x q x f``.
        spread: ``phi S``, ``batch x q x f``; or of each point (last but two) those that each other
            point's values go with, ``batch x q x q x f``.
    """

    def pull(bar_mean: Tensor, bar_cov: Tensor) -> Tensor:
        both = bar_cov + bar_cov.mT
        if spread.ndim == both.ndim:
            crossed = both @ spread
        else:
            crossed = (both.unsqueeze(-1) * spread).sum(-3)
        bar = torch.addcmul(crossed, bar_mean.unsqueeze(-1), mean)
        (result,) = torch.autograd.grad(values, points, bar, retain_graph=True)
        return result

    return pull
