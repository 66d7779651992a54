"""Gaussian processes given the projected data S'y: the mathematics of computation-aware GPs.

[CaGP] Wenger, Wu, Hennig, Gardner, Pleiss, Cunningham 2024; MATHS 5.1, 5.2, 5.4. Pure functions
of tensors; the letters are the paper's:

    S (n x i)  actions            D = diag(noise)            e = y - c (n)         B = K S (n x i)
    G = S'(K + D) S,  L = chol(G),  w = L^-1 S'e,  v = L^-T w = G^-1 S'e,  delta = S'D S

    mean(x) = c + k(x, X) S v,   cov(x, z) = k(x, z) - V_x'V_z,   V_x = L^-1 S'k(X, x)
    [eq. 5]

The covariance is never below the exact GP's on the same data, for any S, and the ELBO never above
its log evidence.

Actions are compressed without the data: pairs that lose least are merged [MATHS 5.4]. For any
full-rank T (i x i'), S T spans less than S and L_new = chol(T'L L'T): the posterior given (S T)'y
needs no kernel value, stays above the exact posterior, and its variance can only grow. Here T
merges disjoint pairs (a, b) of columns into cos(phi) s_a + sin(phi) s_b, so a block-sparse S stays
block sparse. A merge loses the functional g'S'y, G g = n = -sin(phi) a + cos(phi) b, that was
uncorrelated (a priori) with all that remains. With alpha = G^-1 S'e,

    lambda = (n'alpha)^2 / n'G^-1 n     the loss of |w|^2
    rho = n'delta^-1 n / n'G^-1 n       variance of the lost functional over that of its noise
    KL = 1/2 [log rho - (1 - 1/rho) (1 - lambda)]

KL is the divergence of the posterior before the merge from the one after it. |w|^2 alone cannot
rank the pairs: phi along (alpha_a, alpha_b) preserves it for each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.errors import StateError
from bo_stream.mathematics.actions import (
    ActionMatrix,
    BlockMatrix,
    DenseMatrix,
    cross_product,
    symmetric_product,
)
from bo_stream.mathematics.linalg import REPAIR, chol_psd
from bo_stream.mathematics.process import Path, noisy, prior_path
from bo_stream.mathematics.shapes import shaped

__all__ = ["ActionBasis", "CaGPState", "Projected", "compress", "factor"]


@dataclass(frozen=True)
class Projected:
    """A Gaussian process seen through S: what its losses share, free of y.

    Attributes:
        S: Actions, ``n x i``.
        noise: Noise variances d_j, ``n``.
        prior_variance: k(x_j, x_j), ``n``.
        B: K S, ``n x i``.
        L: chol(S'(K + D) S), ``i x i``.
        delta: S'D S, ``i x i``.
    """

    S: ActionMatrix
    noise: Tensor
    prior_variance: Tensor
    B: Tensor
    L: Tensor
    delta: Tensor

    @classmethod
    def of(cls, kernel: Kernel, X: Tensor, S: ActionMatrix, noise: Tensor) -> Projected:
        """At inputs ``n x d``, differentiable in kernel, noise and S. O(n^2 + i^3), O(n i) memory.

        Raises:
            StateError: if G is not positive definite.
        """
        B, delta = symmetric_product(kernel, X, S), S.gram(noise)
        prior_variance = kernel(X, diag=True).double().reshape(-1)
        return cls(S, noise, prior_variance, B, _chol(S.transpose_times(B) + delta), delta)

    def weights(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """For residuals e = y - c, ``n x p``, w = L^-1 S'e and v = L^-T w, ``i x p``."""
        w = torch.linalg.solve_triangular(self.L, self.S.transpose_times(e), upper=False)
        return w, torch.linalg.solve_triangular(self.L.mT, w, upper=True)

    def elbo(self, e: Tensor) -> Tensor:
        """The evidence lower bound [eq. 11; MATHS 5.2, signed as a log likelihood], 0-dim.

        Equals log p(y) - KL(posterior given S'y || exact posterior): at most the log evidence,
        and equal to it for S = I. Invariant under any change of S within its column span.
        Differentiable in everything. O(n i^2) time, O(n i) memory.

        Args:
            e: Residuals y - c, ``n``.
        """
        w, v = (x[:, 0] for x in self.weights(e[:, None]))
        A = torch.linalg.solve_triangular(self.L, self.B.mT, upper=False)  # L^-1 S'K, i x n
        misfit = (e - self.B @ v).square() + self.prior_variance - A.square().sum(0)
        # v'S'KS v = w'w - v'delta v and tr(G^-1 S'KS) = i - tr(G^-1 delta), as S'KS = G - delta
        fit = w.square().sum() - v @ self.delta @ v
        trace = v.numel() - (torch.cholesky_inverse(self.L) * self.delta).sum()
        logs = self._logdet() - self.S.gram_logdet(self.noise) + self.noise.log().sum()
        logs = logs + e.numel() * math.log(2.0 * math.pi)
        return -0.5 * ((misfit / self.noise).sum() + fit - trace + logs)

    def log_likelihood(self, e: Tensor) -> Tensor:
        """The projected log likelihood log N(S'y; S'c, G), columns normalised [eq. 9], 0-dim.

        It sees S'y alone, not what S leaves out: for study, not recommended for training.
        """
        w = self.weights(e[:, None])[0]
        logs = self._logdet() - self.S.gram_logdet(torch.ones_like(self.noise))
        return -0.5 * (w.square().sum() + logs + w.numel() * math.log(2.0 * math.pi))

    def best_constant(self, y: Tensor) -> Tensor:
        """The constant mean c that maximises `elbo` for targets y (``n``), 0-dim.

        With e = y - c 1 the bound is a parabola in c: of r'D^-1 r + v'(G - delta)v, r = e - B v.
        """
        e = torch.stack([y, torch.ones_like(y)], -1)
        w, v = self.weights(e)
        r = e - self.B @ v
        form = r.mT @ (r / self.noise[:, None]) + w.mT @ w - v.mT @ self.delta @ v
        return form[0, 1] / form[1, 1]

    def _logdet(self) -> Tensor:
        """The log determinant of G."""
        return 2.0 * self.L.diagonal().log().sum()


def factor(kernel: Kernel, X: Tensor, S: ActionMatrix, noise: Tensor) -> Tensor:
    """L = chol(S'(K + D)S), ``i x i``, for inputs ``n x d`` and noise variances ``n``.

    A failure is mended by a little more noise. O(n^2) kernel values, O(n i) memory.

    Raises:
        StateError: as `Projected.of`.
    """
    return _chol(S.transpose_times(symmetric_product(kernel, X, S)) + S.gram(noise), REPAIR)


def _chol(G: Tensor, repair: float = 0.0) -> Tensor:
    def error(row: int) -> StateError:
        return StateError(
            "S'(K + D)S positive definite",
            f"a failure at action {row} of {G.shape[-1]}",
            "Give linearly independent actions, or noise above 1e-12 of the outputscale.",
        )

    return chol_psd(G, repair, error)


@dataclass(frozen=True)
class CaGPState:
    """All data, the actions and their factor, and what the fits have left.

    Attributes:
        X: Inputs, ``n x d``.
        Y: Targets, ``n``.
        R: Noise variances before the prior's noise scale, ``n``.
        block: Column of each row of a block-sparse S; else empty.
        values: The values of a block-sparse S, ``n``; else empty.
        dense: A dense S, ``n x i``; else empty.
        L: The factor chol(S'(K + D)S), ``i x i``; empty if unknown.
        made_with: The hyperparameters of L, flat.
        fitted: Number of data at the last fit, int64.
        learned: Number of data when learning the values of S last converged, int64.
        chi_square: Sum of squared standardised residuals since the last fit.
        residuals: Their number.
    """

    X: Tensor = shaped("n d")
    Y: Tensor = shaped("n")
    R: Tensor = shaped("n", "positive")
    block: Tensor = shaped("b", "not negative")
    values: Tensor = shaped("b")
    dense: Tensor = shaped("e f")
    L: Tensor = shaped("i i")
    made_with: Tensor = shaped("p")
    fitted: Tensor = shaped("", "not negative")
    learned: Tensor = shaped("", "not negative")
    chi_square: Tensor = shaped("", "not negative")
    residuals: Tensor = shaped("", "not negative")

    @classmethod
    def empty(cls, dim: int, made_with: Tensor) -> Self:
        """Before any data of ``dim`` inputs, under these hyperparameters (flat)."""
        none, square = torch.empty(0, dtype=torch.float64), torch.empty(0, 0, dtype=torch.float64)
        block, count = torch.empty(0, dtype=torch.int64), torch.zeros((), dtype=torch.int64)
        X, zero = square.new_empty(0, dim), none.new_zeros(())
        parts = X, none, none, block, none, square, square
        return cls(*parts, made_with, count, count, zero, zero)

    @property
    def size(self) -> int:
        """The number of data n."""
        return self.X.shape[0]

    @property
    def S(self) -> ActionMatrix:
        """The actions, ``n x i``."""
        if self.dense.numel():
            return DenseMatrix(self.dense)
        count = int(self.block.max()) + 1 if self.block.numel() else 0
        return BlockMatrix(self.block, self.values, count)

    def with_actions(
        self, S: ActionMatrix, L: Tensor | None = None, made_with: Tensor | None = None
    ) -> Self:
        """The same data with actions S and, if known, their factor under ``made_with``."""
        L = self.L[:0, :0] if L is None else L
        made_with = self.made_with if made_with is None else made_with
        block, values, dense = self.block[:0], self.values[:0], self.dense[:0, :0]
        if isinstance(S, BlockMatrix):
            block, values = S.block, S.values
        else:
            dense = S.values
        return replace(self, block=block, values=values, dense=dense, L=L, made_with=made_with)

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The same data with targets ``(y - shift) / factor``; known noise takes a new factor."""
        state = replace(self, Y=(self.Y - shift) / factor)
        if not known_noise:
            return state
        return replace(state, R=self.R / factor.square()).with_actions(self.S)

    def after_fit(self, learned: bool | None) -> Self:
        """After a fit; ``learned``: whether learning values has converged, None if not tried."""
        now, zero = torch.full_like(self.fitted, self.size), torch.zeros_like(self.residuals)
        count = self.learned if learned is None else now * learned
        return replace(self, fitted=now, learned=count, chi_square=zero, residuals=zero)


@dataclass(frozen=True)
class ActionBasis:
    """``S'k(X, x)``: the functionals are combinations of the noisy values at the data.

    Attributes:
        kernel: The kernel, frozen.
        X: ``n x d``.
        S: ``n x i``.
        noise: Noise variances, ``n``.
    """

    kernel: Kernel
    X: Tensor
    S: ActionMatrix
    noise: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """O(n) per point."""
        flat = cross_product(self.kernel, X.reshape(-1, X.shape[-1]), self.X, self.S)
        return flat.unflatten(0, X.shape[:-1]).unsqueeze(-3)

    def prior(self, outputs: int, sample_shape: Size) -> Path:
        """From random features of the kernel."""
        return prior_path(self.kernel, outputs, sample_shape, self.X)

    def functionals(self, f: Path) -> Tensor:
        """``S'`` times the noisy values of the sample functions at the data."""
        values = noisy(f(self.X), self.noise)
        columns = self.S.transpose_times(values.flatten(0, -2).mT)
        return columns.mT.unflatten(0, values.shape[:-1])

    def outputs(self, index: list[int]) -> ActionBasis:
        """Itself: there is one output."""
        return self


# -- compression -------------------------------------------------------------------------------

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
