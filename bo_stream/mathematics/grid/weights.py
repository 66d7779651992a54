"""Keys' cubic interpolation weights on a regular grid, with Keys' boundary condition [MATHS 2.1].

In the first and the last cell of a folded grid one of Keys' four nodes lies beyond the end. The
value of this ghost node is extrapolated, ``u_-1 = 3 u_0 - 3 u_1 + u_2``, so that its weight goes to
the three nearest nodes. The four weights in a cell are cubics of the position, stored in one table.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bo_stream.mathematics.derivatives import traced, twice
from bo_stream.mathematics.lasting import lasting

__all__ = ["CUBICS", "powers", "sloped_products", "weighted_rows", "weights"]
CUBICS = torch.tensor(
    [
        [[0.0, 0.5, -1.5, 1.0], [0.0, -1.0, 2.0, 0.0], [0.0, 0.5, -0.5, 0.0], [0.0] * 4],
        [[-0.5, 1.0, -0.5, 0.0], [1.5, -2.5, 0.0, 1.0], [-1.5, 2.0, 0.5, 0.0], [0.5, -0.5, 0, 0]],
        [[0.0] * 4, [0.0, 0.5, -0.5, 0.0], [0.0, -1.0, 0.0, 1.0], [0.0, 0.5, 0.5, 0.0]],
    ],
    dtype=torch.float64,
)
"""Coefficients of ``s^3, s^2, s, 1`` of the four weights: in a cell at the low end of a folded
grid, in an inner cell and in one at the high end."""
SLOPES = torch.cat([torch.zeros(3, 4, 1), CUBICS[..., :3] * torch.tensor([3.0, 2.0, 1.0])], -1)
"""Coefficients of the derivatives."""
BOTH = torch.cat([CUBICS, SLOPES], 1)
"""Weights, then derivatives."""


def weights(s: Tensor, place: Tensor) -> Tensor:
    """Products over dimensions of the weights of four nodes each, ``... x 4^d``, differentiable.

    Args:
        s: Position in the cell, from 0 to 1, ``... x d``.
        place: Kind of the cell, ``... x d``: 0 at the low end of a folded grid, 2 at the high end,
            else 1.
    """
    result: Tensor = _Weights.apply(s, place)
    return result


class _Weights(torch.autograd.Function):
    """The weights as one autograd function with a closed-form derivative, for speed."""

    @staticmethod
    def forward(ctx: Any, s: Tensor, place: Tensor) -> Tensor:
        own = powers(s)
        keys = _cubics(CUBICS, place, own)
        ctx.save_for_backward(s, place, own, keys)
        return _products(keys)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        s, place, own, keys = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *traced(partial(_plain, place=place), (s,), grad), None
        batch, d = place.shape[:-1], place.shape[-1]
        left = grad.unflatten(-1, (4,) * d)
        along = []
        for k in range(d):  # left: dimensions before k are contracted away
            part = left
            for j in range(d - 1, k, -1):
                part = (part * keys[..., j, :].reshape(*batch, *(1,) * (j - k), 4)).sum(-1)
            along.append(part)
            left = (left.movedim(len(batch), -1) * _aligned(keys[..., k, :], left)).sum(-1)
        return (torch.stack(along, -2) * _cubics(SLOPES, place, own)).sum(-1), None


def _plain(s: Tensor, place: Tensor) -> Tensor:
    """The weights in operations that autograd differentiates."""
    return _products(_cubics(CUBICS, place, powers(s)))


def _products(keys: Tensor) -> Tensor:
    """Products over dimensions, ``... x 4^d``, of four weights each, ``... x d x 4``."""
    weight = keys[..., 0, :]
    for k in range(1, keys.shape[-2]):
        weight = (weight.unsqueeze(-1) * keys[..., k, None, :]).flatten(-2)
    return weight


def sloped_products(s: Tensor, place: Tensor) -> Tensor:
    """The weights and then their derivatives, without an autograd graph: ``... x (1 + d) x 4^d``.

    Args:
        s: As for `weights`.
        place: As for `weights`.
    """
    d, which = s.shape[-1], _sloped(s.shape[-1]).to(s.device)
    keys = _cubics(BOTH, place, powers(s)).reshape(*s.shape[:-1], 2 * d, 4)
    factors = keys.index_select(-2, which).unflatten(-2, (d, 1 + d)).unbind(-3)
    rows = factors[0]
    for own in factors[1:]:
        rows = (rows.unsqueeze(-1) * own.unsqueeze(-2)).flatten(-2)
    return rows


@cache
@lasting
def _sloped(d: int) -> Tensor:
    """Index of the factor, of 2 d, of each dimension in each of the 1 + d products."""
    slope = torch.zeros(d, 1 + d, dtype=torch.long)
    slope.diagonal(1).fill_(1)
    return (2 * torch.arange(d).unsqueeze(-1) + slope).flatten()


def _aligned(weights: Tensor, like: Tensor) -> Tensor:
    """``... x 4`` weights with ones before the last dimension, to match ``like``."""
    return weights.reshape(*weights.shape[:-1], *(1,) * (like.ndim - weights.ndim), 4)


def powers(s: Tensor) -> Tensor:
    """``s^3, s^2, s, 1``, ``... x 4``."""
    s2 = s * s
    return torch.stack([s2 * s, s2, s, torch.ones_like(s)], -1)


def _cubics(table: Tensor, place: Tensor, powers: Tensor) -> Tensor:
    """Values of the four cubics, ``... x 4``."""
    return (table.to(powers)[place] @ powers.unsqueeze(-1)).squeeze(-1)


def weighted_rows(M: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Sums of weighted rows of an ``m x p`` matrix: ``q x p``, differentiable.

    Args:
        M: The matrix.
        index: The rows of each sum, ``q x k``.
        weight: Their weights, ``q x k``.
    """
    if not (M.requires_grad or weight.requires_grad):
        return _bags(weight, M, index)
    if not (M.requires_grad or _bags_of_constant_rows()):
        return _plain_rows(weight, M, index)
    return twice(partial(_bags, index=index), partial(_plain_rows, index=index), weight, M)


def _bags(weight: Tensor, M: Tensor, index: Tensor) -> Tensor:
    """The sums, differentiable once."""
    return F.embedding_bag(index, M, per_sample_weights=weight, mode="sum")


def _plain_rows(weight: Tensor, M: Tensor, index: Tensor) -> Tensor:
    """The sums in operations that autograd differentiates."""
    return (M[index] * weight.unsqueeze(-1)).sum(-2)


@cache
def _bags_of_constant_rows() -> bool:
    """Whether this version of torch differentiates such sums in the weights alone; 2.4 does not."""
    try:
        with torch.inference_mode(False):
            row, weight = torch.zeros(1, 1), torch.zeros(1, 1, requires_grad=True)
            F.embedding_bag(torch.zeros(1, 1).long(), row, per_sample_weights=weight, mode="sum")
    except RuntimeError:
        return False
    return True
