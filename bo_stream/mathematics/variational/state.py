"""State and objective of the online variational GP, whitened [Bui; WISKI A.7, A.8].

With ``L = chol(K(Z, Z) + diag(nugget))`` and prior mean ``m``, ``f(Z) = m + L v`` and ``q(v) =
N(mu, T T')``. A batch is absorbed by climbing

    F(q) = E_q[log p(y | f)] - beta [ KL(q(b) || p(b)) + KL(q~(a) || q_o(a)) - KL(q~(a) || p_o(a)) ]

where ``b = f(Z)`` now, ``a = f(Z_o)`` are the old inducing values, ``q~(a) = int p(a | b) q(b) db``
is their law now and ``q_o``, ``p_o`` their posterior and prior before the batch. WISKI's A.7 is
``-F`` with ``beta = 1``, Bui's online evidence bound; its A.8 has ``beta < 1``.

The entropy of ``q~(a)`` stands in both of the last two divergences and cancels: no factor of its
(ill-conditioned) covariance is needed, nor ``S^-1 - K^-1``. Letters as in
`bo_stream.mathematics.inducing`; everything is float64 and in transformed space.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.inducing.greedy import GreedyVariance
from bo_stream.mathematics.inducing.nugget import factored, split_noise
from bo_stream.mathematics.inducing.state import Batch, diagonal, eye, solve
from bo_stream.mathematics.shapes import shaped

__all__ = [
    "Past",
    "SVGPState",
    "condition",
    "empty_state",
    "factor",
    "grow",
    "nugget",
    "past_divergence",
]


@dataclass(frozen=True)
class SVGPState:
    """What is known about the function: O(M^2) numbers.

    Attributes:
        Z: Inducing points, ``M x d``.
        mu: Mean of ``v``, ``M``.
        T: Lower triangular root of the covariance of ``v``, ``M x M``.
        share: Variances of the independent noise that the values at Z carry (their nuggets),
            relative to the mean prior variance at Z; ``M``.
        jitter: The share of a point that enters.
    """

    Z: Tensor = shaped("M d")
    mu: Tensor = shaped("M")
    T: Tensor = shaped("M M")
    share: Tensor = shaped("M", "not negative")
    jitter: float = 1e-8

    @property
    def size(self) -> int:
        """The number of inducing points ``M``."""
        return self.Z.shape[0]


@dataclass(frozen=True)
class Past:
    """The posterior before a batch, with the prior it was whitened by; a constant.

    Attributes:
        state: ``Z_o``, ``mu_o`` and ``T_o``.
        L: ``chol(K(Z_o, Z_o) + diag(nugget))`` under the hyperparameters of then, ``M x M``.
        mean: The prior mean of then, 0-dim.
    """

    state: SVGPState
    L: Tensor = shaped("M M")
    mean: Tensor = shaped("")

    @property
    def nugget(self) -> Tensor:
        """Nuggets of the values at ``Z_o`` under the hyperparameters of then, ``M``."""
        share = self.state.share
        return share * (self.L.square().sum(-1).mean() / (1.0 + share.mean()))


def empty_state(X: Tensor, jitter: float) -> SVGPState:
    """The state before any data; X (``n x d``) gives dimension and device only."""
    none = X.new_zeros(0, dtype=torch.float64)
    return SVGPState(none.reshape(0, X.shape[-1]), none, none.reshape(0, 0), none, jitter)


def nugget(state: SVGPState, kernel: Kernel) -> Tensor:
    """Variances of the noise of the values at Z in units of the kernel, ``M``."""
    return state.share * diagonal(kernel, state.Z).mean() if state.size else state.share


def factor(state: SVGPState, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """``L = chol(K(Z, Z) + diag(nugget))`` and the nugget, O(M^3)."""
    return factored(kernel, state.Z, nugget(state, kernel), state.jitter)


def joined(state: SVGPState, Z: Tensor, kernel: Kernel, own: Tensor | None = None) -> SVGPState:
    """The same law with further inducing points (``k x d``): given the old ones, the prior's.

    ``own`` is their nugget (``k``); None for the jitter.
    """
    corner = torch.block_diag(state.T, eye(Z, len(Z)))
    wide = SVGPState(
        torch.cat([state.Z, Z]),
        torch.cat([state.mu, Z.new_zeros(len(Z))]),
        corner.reshape(state.size + len(Z), state.size + len(Z)),
        torch.cat([state.share, state.jitter * Z.new_ones(len(Z))]),
        state.jitter,
    )
    variance = diagonal(kernel, wide.Z).mean()
    new = state.jitter * variance.expand(len(Z)) if own is None else own
    return replace(wide, share=torch.cat([nugget(state, kernel), new]) / variance)


def grow(state: SVGPState, X: Tensor, kernel: Kernel, limit: int) -> SVGPState:
    """Let points of X (``N x d``) join until there are ``limit`` inducing points; the law stays.

    Each in turn has the largest prior variance given those before it, ties to the lowest index;
    points that those determine (repeated ones) are left out. No randomness. O(N M) a point.
    """
    if state.size >= limit:
        return state
    greedy = GreedyVariance(kernel, X, state.jitter, state.Z, factor(state, kernel)[0])
    while greedy.size < limit:
        j = greedy.best()
        if j is None:
            break
        greedy.add(j)
    return joined(state, X[greedy.chosen], kernel)


def condition(state: SVGPState, batch: Batch, kernel: Kernel, mean: Tensor) -> SVGPState:
    """The state given a batch, exactly: its points join the inducing points (MATHS 1).

    With ``f(X) = m + A' v`` and ``H = T' A``, the covariance of ``v`` becomes ``T (I + H D^-1
    H')^-1 T'``, a product throughout. The value at an inducing point carries its nugget as
    independent noise, which is taken out of the batch's own (`split_noise`). O((M + N)^3).
    """
    Z = torch.cat([state.Z, batch.X])
    own, d = split_noise(batch.noise, diagonal(kernel, Z).mean(), state.jitter, len(Z))
    wide = joined(state, batch.X, kernel, own)
    A = factor(wide, kernel)[0][state.size :].mT
    H = wide.T.mT @ A
    B = torch.linalg.cholesky(eye(H, wide.size) + (H / d) @ H.mT)
    e = batch.y - mean - A.mT @ wide.mu
    mu = wide.mu + wide.T @ torch.cholesky_solve((H @ (e / d)).unsqueeze(-1), B).squeeze(-1)
    # (T B^-T)(T B^-T)' is the covariance; R of the QR of its transpose makes the root triangular
    T = torch.linalg.qr(solve(B, wide.T.mT), mode="r").R.mT
    return replace(wide, mu=mu, T=T * T.diagonal().sign())


def past_divergence(past: Past, mean: Tensor, covariance: Tensor) -> Tensor:
    """``KL(q~(a) || q_o(a)) - KL(q~(a) || p_o(a))``, 0-dim; O(M^3).

    Args:
        past: The law before the batch.
        mean: Mean of ``q~(a)``, the law of the old inducing values now, ``M``.
        covariance: Its covariance, ``M x M``.
    """
    mu_o, T_o = past.state.mu, past.state.T
    if not past.state.size:
        return mu_o.new_zeros(())
    mu = solve(past.L, mean - past.mean)
    S = solve(past.L, solve(past.L, covariance).mT)
    trace = (torch.cholesky_solve(S, T_o)).diagonal().sum() - S.diagonal().sum()
    shift = solve(T_o, mu - mu_o).square().sum() - mu.square().sum()
    return 0.5 * (trace + shift) + T_o.diagonal().abs().log().sum()
