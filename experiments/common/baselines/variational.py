"""State and objective of the online variational GP, whitened [Bui; WISKI A.7, A.8].

With ``L = chol(K(Z, Z) + diag(nugget))`` and prior mean ``m``, ``f(Z) = m + L v`` and ``q(v) =
N(mu, T T')``. A batch is absorbed by climbing

    F(q) = E_q[log p(y | f)] - beta [ KL(q(b) || p(b)) + KL(q~(a) || q_o(a)) - KL(q~(a) || p_o(a)) ]

where ``b = f(Z)`` now, ``a = f(Z_o)`` are the old inducing values, ``q~(a) = int p(a | b) q(b) db``
is their distribution now and ``q_o``, ``p_o`` their posterior and prior before the batch. WISKI's
A.7 is ``-F`` with ``beta = 1``, Bui's online evidence bound; its A.8 has ``beta < 1``.

The entropy of ``q~(a)`` stands in both of the last two divergences and cancels: no factor of its
(ill-conditioned) covariance is needed, nor ``S^-1 - K^-1``. Everything is float64 and in
transformed space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.inducing import (
    Batch,
    GreedyVariance,
    dense,
    diagonal,
    log_gaussian_terms,
    solve,
)
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.shapes import nested, shaped

JITTER = 1e-8
"""Variance of the independent noise of an inducing value, relative to the mean prior variance."""


@dataclass(frozen=True)
class Inducing:
    """``q(v) = N(mu, T T')`` at the inducing points Z: O(M^2) numbers.

    ``share`` has the variances of the independent noise (the nuggets) that the values at Z carry,
    relative to the mean prior variance at Z.
    """

    Z: Tensor = shaped("M d")
    mu: Tensor = shaped("M")
    T: Tensor = shaped("M M")
    share: Tensor = shaped("M", "not negative")

    @property
    def size(self) -> int:
        """The number of inducing points ``M``."""
        return len(self.Z)


@dataclass(frozen=True)
class Before:
    """The posterior before a batch, with the factor ``L`` and the mean of its prior; a constant."""

    q: Inducing
    L: Tensor = shaped("M M")
    mean: Tensor = shaped("")


@dataclass(frozen=True)
class Leaves:
    """A tensor for each of what is learned: Z, ``mu``, ``T`` and the hyperparameters."""

    Z: Tensor = shaped("M d")
    mu: Tensor = shaped("M")
    T: Tensor = shaped("M M")
    learned: Tensor = shaped("h")

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.Z, self.mu, self.T, self.learned))


@dataclass(frozen=True)
class AdamMoments:
    """Adam's moments of Z, ``mu``, ``T`` and the hyperparameters, after so many steps."""

    step: Tensor = shaped("")
    first: Leaves = nested()
    second: Leaves = nested()

    def padded(self, leaves: Sequence[Tensor]) -> AdamMoments:
        """With zeros for coordinates that have joined since."""
        both = []
        for moments in (self.first, self.second):
            wide = [torch.zeros_like(p, requires_grad=False) for p in leaves]
            for t, own in zip(moments, wide, strict=True):
                own[tuple(slice(n) for n in t.shape)] = t
            both.append(Leaves(*wide))
        return AdamMoments(self.step, *both)

    def climbed(
        self, leaves: Sequence[Tensor], gradients: Sequence[Tensor], rate: float, spread: Tensor
    ) -> AdamMoments:
        """One step upwards, in place on the leaves; that of Z (the first) is in units of its
        spread, ``d``.
        """
        step, one = self.step + 1.0, torch.ones_like(spread[:1])
        first = Leaves(*(m + 0.1 * (g - m) for m, g in zip(self.first, gradients, strict=True)))
        pairs = zip(self.second, gradients, strict=True)
        second = Leaves(*(v + 0.001 * (g.square() - v) for v, g in pairs))
        units = (spread, one, one, one)
        with torch.no_grad():
            for p, m, v, unit in zip(leaves, first, second, units, strict=True):
                root = (v / (1.0 - 0.999**step)).sqrt()
                p += rate * unit * m / (1.0 - 0.9**step) / (root + 1e-8 / unit)
        return AdamMoments(step, first, second)


@dataclass(frozen=True)
class OnlineSVGPState:
    """The posterior, what it was before the last batch, that batch, and where Adam stands.

    The batch's noise is that before any learned scale; ``learned`` are the hyperparameters that the
    climb has led to, as `bo_stream.base.fitting.Coordinates` has them.
    """

    now: Inducing
    before: Before
    batch: Batch
    moments: AdamMoments
    learned: Tensor = shaped("h")

    @classmethod
    def empty(cls, dim: int) -> OnlineSVGPState:
        """The state before any data."""
        none = torch.zeros(0, dtype=torch.float64)
        q = Inducing(none.reshape(0, dim), none, none.reshape(0, 0), none)
        pieces = Leaves(q.Z, q.mu, q.T, none)
        moments = AdamMoments(none.new_zeros(()), pieces, pieces)
        batch = Batch(q.Z, none, none)
        return cls(q, Before(q, q.T, none.new_zeros(())), batch, moments, none)


def nugget(q: Inducing, kernel: Kernel) -> Tensor:
    """Variances of the noise of the values at Z in units of the kernel, ``M``."""
    return (q.share * diagonal(kernel, q.Z).mean()).detach() if q.size else q.share


def factor(q: Inducing, kernel: Kernel) -> Tensor:
    """``L = chol(K(Z, Z) + diag(nugget))``, O(M^3)."""
    return chol_psd(dense(kernel, q.Z) + torch.diag(nugget(q, kernel)))


def joined(q: Inducing, Z: Tensor, kernel: Kernel) -> Inducing:
    """The same posterior with ``k x d`` more inducing points: the prior given the old ones."""
    size, every = q.size + len(Z), torch.cat([q.Z, Z])
    variance = diagonal(kernel, every).mean()
    new = JITTER * variance.expand(len(Z))
    T = torch.block_diag(q.T, torch.eye(len(Z)).to(Z)).reshape(size, size)
    share = torch.cat([nugget(q, kernel), new]) / variance
    return Inducing(every, torch.cat([q.mu, Z.new_zeros(len(Z))]), T, share)


def grown(q: Inducing, X: Tensor, kernel: Kernel, limit: int) -> Inducing:
    """Let points of X (``N x d``) join until there are ``limit`` inducing points.

    Each in turn has the largest prior variance given those before it; points that those determine
    are left out. Nothing is random. O(N M) a point.
    """
    if q.size >= limit:
        return q
    greedy = GreedyVariance(kernel, X, JITTER, q.Z, factor(q, kernel))
    greedy.grow(limit)
    return joined(q, X[greedy.chosen], kernel)


def objective(
    q: Inducing, before: Before, batch: Batch, kernel: Kernel, mean: Tensor, beta: float
) -> Tensor:
    """``F``, 0-dim, in nats, given kernel and mean (0-dim) of the prior now: O(N M^2 + M^3).

    On a first batch, ``beta`` counts as 1.
    """
    M, T = before.q.size, q.T.tril()
    A = solve(factor(q, kernel), dense(kernel, q.Z, torch.cat([before.q.Z, batch.X])))
    V, f = T.mT @ A, mean + A.mT @ q.mu
    A_a, V_a = A[:, :M], V[:, :M]
    variance = diagonal(kernel, batch.X) - A[:, M:].square().sum(0) + V[:, M:].square().sum(0)
    fit = log_gaussian_terms(batch.y - f[M:], batch.noise) - 0.5 * (variance / batch.noise).sum()
    squares = T.square().sum() + q.mu.square().sum() - len(T)
    divergence = 0.5 * squares - T.diagonal().abs().log().sum()
    if not M:
        return fit - divergence
    S = dense(kernel, before.q.Z) - A_a.mT @ A_a + V_a.mT @ V_a
    return fit - beta * (divergence + _past_divergence(before, f[:M], S))


def _past_divergence(before: Before, mean: Tensor, covariance: Tensor) -> Tensor:
    """``KL(q~(a) || q_o(a)) - KL(q~(a) || p_o(a))``, 0-dim, given mean and covariance of the old
    inducing values now, without their nuggets; O(M^3).
    """
    share, L, T_o = before.q.share, before.L, before.q.T
    own = share * (L.square().sum(-1).mean() / (1.0 + share.mean()))
    mu = solve(L, mean - before.mean)
    S = solve(L, solve(L, covariance + torch.diag(own)).mT)
    trace = torch.cholesky_solve(S, T_o).diagonal().sum() - S.diagonal().sum()
    shift = solve(T_o, mu - before.q.mu).square().sum() - mu.square().sum()
    return 0.5 * (trace + shift) + T_o.diagonal().abs().log().sum()
