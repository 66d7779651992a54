"""Compression of actions without the data: pairs that lose least are merged.  [MATHS 5.4]

For any full-rank T (i x i'), S T spans less than S and L_new = chol(T'L L'T): the posterior given
(S T)'y needs no kernel value, stays above the exact posterior, and its variance can only grow. Here
T merges disjoint pairs (a, b) of columns into cos(phi) s_a + sin(phi) s_b, so a block-sparse S
stays block sparse.

A merge loses the functional g'S'y, G g = n = -sin(phi) a + cos(phi) b, that was
uncorrelated (a priori) with all that remains. With alpha = G^-1 S'e and delta = S'D S,

    lambda = (n'alpha)^2 / n'G^-1 n     the loss of |w|^2
    rho = n'delta^-1 n / n'G^-1 n       variance of the lost functional over that of its noise
    KL = 1/2 [log rho - (1 - 1/rho) (1 - lambda)]

KL is the divergence of the posterior before the merge from the one after it. |w|^2 alone cannot
rank the pairs: phi along (alpha_a, alpha_b) preserves it for each of them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bo_stream.mathematics.computation_aware.matrix import ActionMatrix

COARSE, FINE = 6, 60
"""Angles tried for every pair, and for the pairs that are merged."""


def compress(
    S: ActionMatrix, L: Tensor, projected_residual: Tensor, noise: Tensor, num_actions: int
) -> tuple[ActionMatrix, Tensor]:
    """S (``n x i``) and L = chol(S'(K + D) S) with at most ``num_actions`` columns. O(i^3).

    Args:
        S: Actions, columns of length one and orthogonal.
        L: ``i x i``.
        projected_residual: S'e, ``i``.
        noise: Noise variances, ``n``.
        num_actions: Largest number of columns.
    """
    u = projected_residual
    while S.num_actions > num_actions:
        target, weights = choose_merges(L, S.gram(noise), u, num_actions)
        S, L = S.merge(target, weights), merged_factor(L, target, weights)
        u = torch.zeros_like(L[0]).index_add(0, target, u * weights)
    return S, L


def merge_loss(
    G_inv: Tensor, delta_inv: Tensor, alpha: Tensor, pairs: Tensor, angles: int
) -> tuple[Tensor, Tensor]:
    """Least KL of merging pairs of actions over some angles, and the angle at which it is reached.

    Args:
        G_inv: G^-1, ``i x i``.
        delta_inv: (S'D S)^-1, ``i x i``.
        alpha: G^-1 S'e, ``i``.
        pairs: ``2 x P`` indices.
        angles: How many angles of half a turn to try.

    Returns:
        ``P`` losses in nats and ``P`` angles. O(P angles).
    """
    a, b = pairs
    phi = torch.arange(angles, dtype=alpha.dtype, device=alpha.device) * (math.pi / angles)
    sin, cos = phi.sin()[:, None], phi.cos()[:, None]

    def quadratic(M: Tensor) -> Tensor:  # n'M n, angles x P
        diagonal = M.diagonal()
        squares = sin.square() * diagonal[a] + cos.square() * diagonal[b]
        return squares.addcmul_(sin * cos, M[a, b], value=-2.0)

    precision = quadratic(G_inv)
    rho = (quadratic(delta_inv) / precision).clamp_min_(1.0)
    lam = (cos * alpha[b] - sin * alpha[a]).square_() / precision
    loss, which = (0.5 * (rho.log() - (1.0 - 1.0 / rho) * (1.0 - lam))).min(0)
    return loss, phi[which]


def choose_merges(
    L: Tensor, delta: Tensor, projected_residual: Tensor, num_actions: int
) -> tuple[Tensor, Tensor]:
    """T that brings i actions down to ``num_actions`` by merging disjoint pairs, cheapest first.

    A pair takes part in one merge of a call; where too many actions must go for that, the caller
    repeats. Losses are those of single merges: a few merges among many actions add up nearly.

    Args:
        L: chol(G), ``i x i``.
        delta: S'D S, ``i x i``.
        projected_residual: S'e, ``i``.
        num_actions: Actions wanted; at least i / 2 are kept.

    Returns:
        ``target`` (``i``, the new column of each old one) and ``weights`` (``i``): T[a, target[a]]
        = weights[a]. O(i^3).
    """
    i = L.shape[-1]
    if num_actions >= i:
        return torch.arange(i, device=L.device), torch.ones_like(projected_residual)
    alpha = torch.cholesky_solve(projected_residual[:, None], L)[:, 0]
    terms = torch.cholesky_inverse(L), torch.cholesky_inverse(torch.linalg.cholesky(delta)), alpha
    pairs = torch.triu_indices(i, i, 1, device=L.device)
    G_inv, delta_inv, _ = terms
    loss, _ = merge_loss(G_inv.float(), delta_inv.float(), alpha.float(), pairs, COARSE)
    merged = _disjoint(pairs[:, loss.argsort(stable=True)], i, min(i - num_actions, i // 2))
    _, phi = merge_loss(*terms, merged, FINE)
    target, weights = torch.arange(i, device=L.device), torch.ones_like(alpha)
    target[merged[1]] = merged[0]
    weights[merged[0]], weights[merged[1]] = phi.cos(), phi.sin()
    return target.unique(return_inverse=True)[1], weights


def _disjoint(pairs: Tensor, i: int, wanted: int) -> Tensor:
    """The first ``wanted`` of the pairs (``2 x P``) that share no action with an earlier one."""
    free = torch.ones(i, dtype=torch.bool, device=pairs.device)
    chosen: list[tuple[int, int]] = []
    while len(chosen) < wanted:
        pairs = pairs[:, free[pairs].all(0)]
        taken: set[int] = set()
        for a, b in pairs[:, :64].mT.tolist():
            if len(chosen) < wanted and not taken & {a, b}:
                taken |= {a, b}
                chosen.append((a, b))
        free[list(taken)] = False
    return torch.tensor(chosen, device=pairs.device).mT


def merged_factor(L: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """chol(T'L L'T) for T[a, target[a]] = weights[a] (``i`` each), by the QR of L'T. O(i i'^2)."""
    T = L.new_zeros(L.shape[-1], int(target.max()) + 1)
    T = T.scatter(1, target[:, None], weights[:, None])
    R = torch.linalg.qr(L.mT @ T, mode="r")[1]
    signs = torch.where(R.diagonal() < 0, -1.0, 1.0)
    return (signs[:, None] * R).mT.contiguous()
