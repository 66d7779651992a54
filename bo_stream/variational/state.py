"""State and objective of the online variational GP, whitened [Bui; WISKI A.7, A.8].

With ``L = chol(K(Z, Z))`` and prior mean ``m``, ``f(Z) = m + L v`` and ``q(v) = N(mu, T T')``. A
batch is absorbed by climbing

    F(q) = E_q[log p(y | f)] - beta [ KL(q(b) || p(b)) + KL(q~(a) || q_o(a)) - KL(q~(a) || p_o(a)) ]

where ``b = f(Z)`` now, ``a = f(Z_o)`` are the old inducing values, ``q~(a) = int p(a | b) q(b) db``
is their law now and ``q_o``, ``p_o`` their posterior and prior before the batch. WISKI's A.7 is
``-F`` with ``beta = 1``, Bui's online evidence bound; its A.8 has ``beta < 1``.

The entropy of ``q~(a)`` stands in both of the last two divergences and cancels: no factor of its
(ill-conditioned) covariance is needed, nor ``S^-1 - K^-1``. Letters as in `bo_stream.sparse`;
everything is float64 and in transformed space.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.shapes import shaped
from bo_stream.sparse.greedy import GreedyVariance
from bo_stream.sparse.state import Batch, dense, diagonal, eye, solve

__all__ = ["Past", "SVGPState", "condition", "empty_state", "factor", "grow", "past_divergence"]


@dataclass(frozen=True)
class SVGPState:
    """What is known about the function: O(M^2) numbers.

    Attributes:
        Z: Inducing points, ``M x d``.
        mu: Mean of ``v``, ``M``.
        T: Lower triangular root of the covariance of ``v``, ``M x M``.
        jitter: Added to ``K(Z, Z)``, relative to the mean prior variance at Z.
    """

    Z: Tensor = shaped("M d")
    mu: Tensor = shaped("M")
    T: Tensor = shaped("M M")
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
        L: ``chol(K(Z_o, Z_o) + jitter)`` under the hyperparameters of then, ``M x M``.
        mean: The prior mean of then, 0-dim.
    """

    state: SVGPState
    L: Tensor = shaped("M M")
    mean: Tensor = shaped("")


def empty_state(X: Tensor, jitter: float) -> SVGPState:
    """The state before any data; X (``n x d``) gives dimension and device only."""
    zero = X.new_zeros((), dtype=torch.float64)
    return SVGPState(
        zero.new_zeros(0, X.shape[-1]), zero.new_zeros(0), zero.new_zeros(0, 0), jitter
    )


def nugget(state: SVGPState, kernel: Kernel) -> Tensor:
    """The jitter in units of the kernel, 0-dim."""
    if not state.size:
        return state.mu.new_zeros(())
    return state.jitter * diagonal(kernel, state.Z).mean()


def factor(state: SVGPState, kernel: Kernel) -> Tensor:
    """``L = chol(K(Z, Z) + jitter)``, O(M^3)."""
    noise = nugget(state, kernel) * eye(state.Z, state.size)
    return torch.linalg.cholesky(dense(kernel, state.Z) + noise)


def joined(state: SVGPState, Z: Tensor) -> SVGPState:
    """The same law with further inducing points (``k x d``): given the old ones, the prior's."""
    corner = torch.block_diag(state.T, eye(Z, len(Z)))
    return SVGPState(
        torch.cat([state.Z, Z]),
        torch.cat([state.mu, Z.new_zeros(len(Z))]),
        corner.reshape(state.size + len(Z), state.size + len(Z)),
        state.jitter,
    )


def grow(state: SVGPState, X: Tensor, kernel: Kernel, limit: int) -> SVGPState:
    """Let points of X (``N x d``) join until there are ``limit`` inducing points; the law stays.

    Each in turn has the largest prior variance given those before it, ties to the lowest index;
    points that those determine (repeated ones) are left out. No randomness. O(N M) a point.
    """
    if state.size >= limit:
        return state
    greedy = GreedyVariance(kernel, X, state.jitter, state.Z, factor(state, kernel))
    while greedy.size < limit:
        j = greedy.best()
        if j is None:
            break
        greedy.add(j)
    return joined(state, X[greedy.chosen])


def condition(state: SVGPState, batch: Batch, kernel: Kernel, mean: Tensor) -> SVGPState:
    """The state given a batch, exactly: its points join the inducing points (MATHS 1).

    With ``f(X) = m + A' v`` and ``H = T' A``, the covariance of ``v`` becomes ``T (I + H D^-1
    H')^-1 T'``, a product throughout. The value at an inducing point carries the jitter as
    independent noise, which is taken out of the batch's own. O((M + N)^3).
    """
    wide = joined(state, batch.X)
    L = factor(wide, kernel)
    A = L[state.size :].mT
    scale = nugget(wide, kernel)
    d = torch.where(batch.noise > 2.0 * scale, batch.noise - scale, batch.noise)
    H = wide.T.mT @ A
    B = torch.linalg.cholesky(eye(H, wide.size) + (H / d) @ H.mT)
    e = batch.y - mean - A.mT @ wide.mu
    mu = wide.mu + wide.T @ torch.cholesky_solve((H @ (e / d)).unsqueeze(-1), B).squeeze(-1)
    # (T B^-T)(T B^-T)' is the covariance; R of the QR of its transpose makes the root triangular
    T = torch.linalg.qr(solve(B, wide.T.mT), mode="r").R.mT
    return SVGPState(wide.Z, mu, T * T.diagonal().sign(), state.jitter)


def past_divergence(past: Past, a: MultivariateNormal) -> Tensor:
    """``KL(q~(a) || q_o(a)) - KL(q~(a) || p_o(a))``, 0-dim; O(M^3).

    Args:
        past: The law before the batch.
        a: ``q~(a)``, the law of the old inducing values now.
    """
    mu_o, T_o = past.state.mu, past.state.T
    if not past.state.size:
        return mu_o.new_zeros(())
    mu = solve(past.L, a.mean - past.mean)
    S = solve(past.L, solve(past.L, a.covariance_matrix).mT)
    trace = (torch.cholesky_solve(S, T_o)).diagonal().sum() - S.diagonal().sum()
    shift = solve(T_o, mu - mu_o).square().sum() - mu.square().sum()
    return 0.5 * (trace + shift) + T_o.diagonal().abs().log().sum()
