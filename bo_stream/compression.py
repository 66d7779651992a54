"""Fewer actions without touching data: merge pairs of actions that lose least.  [MATHS.md 5.4]

For any full-rank T (i x i'), S T spans less than S and L_new = chol(T'L L'T): the posterior given
(S T)'y needs no kernel value, stays above the exact posterior, and its variance can only grow. Here
T merges disjoint pairs (a, b) of columns into cos(phi) s_a + sin(phi) s_b, so a block-sparse S
stays block sparse.

What a merge loses is the functional g'S'y, G g = n = -sin(phi) a + cos(phi) b, that was
uncorrelated (a priori) with all that remains. With alpha = G^-1 S'e and delta = S'D S,

    lambda = (n'alpha)^2 / n'G^-1 n       what |w|^2 loses
    rho    = n'delta^-1 n / n'G^-1 n      variance of the lost functional over that of its noise, >=
    1 KL     = 1/2 [log rho - (1 - 1/rho) (1 - lambda)]

is exactly KL(posterior before the merge || posterior after it). |w|^2 alone cannot
rank the pairs: phi along (alpha_a, alpha_b) keeps it whole for every one of them, at any cost in
variance.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bo_stream.action_matrix import ActionMatrix

ANGLES = 16


def compress(
    S: ActionMatrix, L: Tensor, projected_residual: Tensor, noise: Tensor, num_actions: int
) -> tuple[ActionMatrix, Tensor]:
    """S (``n x i``) and L = chol(S'(K + D) S) with at most ``num_actions`` columns. O(i^3).

    Args:
        S: Actions, columns of length one and orthogonal.
        L: ``i x i``.
        projected_residual: S'e, ``i``.
        noise: Noise variances, ``n``.
        num_actions: Actions wanted.
    """
    u = projected_residual
    while S.num_actions > num_actions:
        target, weights = choose_merges(L, S.gram(noise), u, num_actions)
        S, L = S.merge(target, weights), merged_factor(L, target, weights)
        u = torch.zeros_like(L[0]).index_add(0, target, u * weights)
    return S, L


def merge_loss(G_inv: Tensor, delta_inv: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Least KL of merging each pair of actions, and the angle at which it is reached.

    Args:
        G_inv: G^-1, ``i x i``.
        delta_inv: (S'D S)^-1, ``i x i``.
        alpha: G^-1 S'e, ``i``.

    Returns:
        ``i x i`` losses in nats, infinite on and below the diagonal, and ``i x i`` angles. O(i^2
        `ANGLES`).
    """
    i = alpha.numel()
    best = torch.full_like(G_inv, math.inf)
    angle = torch.zeros_like(G_inv)
    for k in range(ANGLES):
        phi = math.pi * k / ANGLES
        sin, cos = math.sin(phi), math.cos(phi)
        precision = _quadratic(G_inv, sin, cos)
        rho = (_quadratic(delta_inv, sin, cos) / precision).clamp_min_(1.0)
        lam = (cos * alpha[None, :] - sin * alpha[:, None]).square() / precision
        loss = 0.5 * (rho.log() - (1.0 - 1.0 / rho) * (1.0 - lam))
        better = loss < best
        best, angle = torch.where(better, loss, best), torch.where(better, phi, angle)
    kept = torch.ones(i, i, dtype=torch.bool, device=best.device).triu(1)
    return best.masked_fill(~kept, math.inf), angle


def _quadratic(M: Tensor, sin: float, cos: float) -> Tensor:
    """The forms n'M n over all pairs (a, b), n = -sin e_a + cos e_b."""
    diagonal = M.diagonal()
    return sin**2 * diagonal[:, None] + cos**2 * diagonal[None, :] - 2.0 * sin * cos * M


def choose_merges(
    L: Tensor, delta: Tensor, projected_residual: Tensor, num_actions: int
) -> tuple[Tensor, Tensor]:
    """T that brings i actions down to ``num_actions`` by merging disjoint pairs, cheapest first.

    A pair takes part in one merge of a call; where more than half the actions must go, the caller
    repeats. Losses are those of single merges: a few merges among many actions add up nearly.

    Args:
        L: chol(G), ``i x i``.
        delta: S'D S, ``i x i``.
        projected_residual: S'e, ``i``.
        num_actions: Actions wanted; at least i / 2 are kept.

    Returns:
        ``target`` (``i``, the new column of each old one) and ``weights`` (``i``): T[a, target[a]]
            = weights[a].
        O(i^3).
    """
    i = L.shape[-1]
    alpha = torch.cholesky_solve(projected_residual[:, None], L)[:, 0]
    delta_inv = torch.cholesky_inverse(torch.linalg.cholesky(delta))
    loss, angle = merge_loss(torch.cholesky_inverse(L), delta_inv, alpha)
    target = torch.arange(i, device=L.device)
    weights = torch.ones_like(alpha)
    for _ in range(min(i - num_actions, i // 2)):
        a, b = divmod(int(loss.argmin()), i)
        phi = float(angle[a, b])
        target[b], weights[a], weights[b] = a, math.cos(phi), math.sin(phi)
        for taken in (a, b):
            loss[taken], loss[:, taken] = math.inf, math.inf
    return torch.unique(target, return_inverse=True)[1], weights


def merged_factor(L: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """chol(T'L L'T) for T[a, target[a]] = weights[a] (``i`` each), by the QR of L'T. O(i i'^2)."""
    T = L.new_zeros(L.shape[-1], int(target.max()) + 1)
    T = T.scatter(1, target[:, None], weights[:, None])
    R = torch.linalg.qr(L.mT @ T, mode="r")[1]
    signs = torch.where(R.diagonal() < 0, -1.0, 1.0)
    return (signs[:, None] * R).mT.contiguous()
