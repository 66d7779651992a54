"""The online variational GP as something that can climb, and the objective of a batch.

A network is a view: made from the state for one batch and read back into it, so that a climb that
fails leaves no trace and the state itself stays in float64 buffers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import torch
from gpytorch import Module
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from torch import Tensor, nn

from bo_stream.mathematics.inducing.nugget import factored
from bo_stream.mathematics.inducing.state import Batch, dense, diagonal, solve
from bo_stream.mathematics.variational.state import Past, SVGPState, nugget, past_divergence

__all__ = ["Network", "best_mean", "objective"]


class Network(Module):
    """A whitened SVGP over a state.

    Its inducing points are in units of their spread, so that a step of Adam moves one by the same
    share of it in whatever units the inputs came.

    Args:
        state: Where inducing points and ``q(v)`` start; at least one point.
        kernel, mean, likelihood: The hyperparameters, not copied.
        known: Whether the noise is known, and the likelihood has none to learn.
        learn_inducing: Whether the inducing points are parameters.
    """

    def __init__(
        self,
        state: SVGPState,
        kernel: Kernel,
        mean: Mean,
        likelihood: Likelihood,
        *,
        known: bool = False,
        learn_inducing: bool = True,
    ) -> None:
        super().__init__()
        spread = state.Z.amax(0) - state.Z.amin(0)
        self.spread, self.start = torch.where(spread > 0.0, spread, 1.0), state
        self.U = nn.Parameter(state.Z / self.spread, requires_grad=learn_inducing)
        self.mu, self.T = nn.Parameter(state.mu.clone()), nn.Parameter(state.T.clone())
        self.covar_module, self.mean_module, self.likelihood = kernel, mean, likelihood
        self.nugget, self.known = nugget(state, kernel).detach(), known  # the same for all steps

    def at(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The joint law ``q(f(X))`` at points ``n x d`` in transformed space.

        Returns:
            ``mean (n)``, ``A (M x n)``, ``V (M x n)``: the covariance is ``K(X, X) - A'A + V'V``.
        """
        Z = self.U * self.spread
        L, _ = factored(self.covar_module, Z, self.nugget, self.start.jitter)
        A = solve(L, dense(self.covar_module, Z, X))
        mean = cast(Tensor, self.mean_module(X)).to(X) + A.mT @ self.mu
        return mean, A, self.T.tril().mT @ A

    def divergence(self) -> Tensor:
        """``KL(q(b) || p(b))``, 0-dim."""
        T = self.T.tril()
        squares = T.square().sum() + self.mu.square().sum() - len(T)
        return 0.5 * squares - T.diagonal().abs().log().sum()

    def noise(self, r: Tensor) -> Tensor:
        """Noise variances, given what multiplies the learned noise (or the known ones), ``N``."""
        return r if self.known else cast(Tensor, self.likelihood.noise).double() * r

    def state(self) -> SVGPState:
        """The state now, detached; points that have not moved are as they were, to the bit."""
        U, mu, T = (p.detach() for p in self.coordinates())
        still = self.start.Z / self.spread == U
        Z = torch.where(still, self.start.Z, U * self.spread)
        return replace(self.start, Z=Z, mu=mu.clone(), T=T.tril())

    def coordinates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Inducing points in units of the spread, mean and root of ``q(v)``."""
        return self.U, self.mu, self.T


def objective(network: Network, past: Past, batch: Batch, beta: float) -> Tensor:
    """``F`` of `bo_stream.mathematics.variational.state`, 0-dim, in nats: O(N M^2 + M^3).

    Args:
        network: The law now, and the prior.
        past: The law before the batch.
        batch: The data; their ``noise`` is what the learned noise multiplies.
        beta: Weight of the divergences; 1 is Bui's bound.
    """
    M, kernel = past.state.size, network.covar_module
    mean, A, V = network.at(torch.cat([past.state.Z, batch.X]))
    A_a, V_a = A[:, :M], V[:, :M]
    S = dense(kernel, past.state.Z) - A_a.mT @ A_a + V_a.mT @ V_a + torch.diag(past.nugget)
    variance = diagonal(kernel, batch.X) - A[:, M:].square().sum(0) + V[:, M:].square().sum(0)
    d, e = network.noise(batch.noise), batch.y - mean[M:]
    fit = -0.5 * ((2.0 * math.pi * d).log() + (e.square() + variance) / d).sum()
    return fit - beta * (network.divergence() + past_divergence(past, mean[:M], S))


def best_mean(network: Network, past: Past, batch: Batch, beta: float) -> Tensor | None:
    """The constant mean that maximises the objective at a fixed ``q(v)``, 0-dim.

    The objective is quadratic in it, so one Newton step is exact; None where it has no maximum.
    """
    with torch.no_grad():
        mean = network.mean_module(batch.X[:1]).to(batch.X)[0]
        M, T = past.state.size, past.state.T
        law = network.at(torch.cat([past.state.Z, batch.X]))[0]
        d, e = network.noise(batch.noise), batch.y - law[M:]
        w = solve(past.L, torch.ones_like(past.state.mu))
        u = solve(past.L, law[:M] - past.mean)
        pull = solve(T, w) @ solve(T, u - past.state.mu) - w @ u
        bend = solve(T, w).square().sum() - w.square().sum()
        curvature = (1.0 / d).sum() + beta * bend
        if not bool(curvature > 0.0):
            return None
        return mean + ((e / d).sum() - beta * pull) / curvature
