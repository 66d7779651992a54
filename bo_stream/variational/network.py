"""The online variational GP on gpytorch's variational classes, and the objective of a batch.

A network is a view: made from the state for one batch and read back into it, so that a climb that
fails leaves no trace and the state itself stays in float64 buffers.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.models import ApproximateGP
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from torch import Tensor

from bo_stream.sparse.state import Batch, solve
from bo_stream.variational.state import Past, SVGPState, nugget, past_divergence

__all__ = ["Network", "best_mean", "objective"]


class Network(ApproximateGP):
    """A whitened SVGP over a state.

    Its inputs are in units of the spread of the inducing points, so that a step of Adam moves an
    inducing point by the same share of it in whatever units the inputs came.

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
        spread = state.Z.amax(0) - state.Z.amin(0)
        spread = torch.where(spread > 0.0, spread, 1.0)
        law = CholeskyVariationalDistribution(state.size)
        strategy = VariationalStrategy(
            self,
            state.Z / spread,
            law,
            learn_inducing_locations=learn_inducing,
            jitter_val=float(nugget(state, kernel).detach()),
        )
        super().__init__(strategy)
        self.to(state.Z)
        strategy.variational_params_initialized.fill_(1)  # else gpytorch draws random numbers
        with torch.no_grad():
            law.variational_mean.copy_(state.mu)
            law.chol_variational_covar.copy_(state.T)
        self.law, self.spread, self.start = law, spread, state
        self.covar_module, self.mean_module, self.likelihood = kernel, mean, likelihood
        self.known = known

    def forward(self, U: Tensor) -> MultivariateNormal:
        """The prior at points ``n x d`` in units of the spread."""
        X = U * self.spread
        return MultivariateNormal(self.mean_module(X).to(X), self.covar_module(X))

    def at(self, X: Tensor) -> MultivariateNormal:
        """The joint law ``q(f(X))`` at points ``n x d`` in transformed space."""
        joint: MultivariateNormal = self(X / self.spread, diag=False)
        return joint

    def noise(self, r: Tensor) -> Tensor:
        """Noise variances, given what multiplies the learned noise (or the known ones), ``N``."""
        return r if self.known else cast(Tensor, self.likelihood.noise).double() * r

    def state(self) -> SVGPState:
        """The state now, detached; points that have not moved are as they were, to the bit."""
        U, mu, T = (p.detach() for p in self.coordinates())
        still = self.start.Z / self.spread == U
        Z = torch.where(still, self.start.Z, U * self.spread)
        return SVGPState(Z, mu.clone(), T.tril(), self.start.jitter)

    def coordinates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Inducing points in units of the spread, mean and root of ``q(v)``."""
        Z = cast(Tensor, self.variational_strategy.inducing_points)
        return Z, self.law.variational_mean, self.law.chol_variational_covar


def objective(network: Network, past: Past, batch: Batch, beta: float) -> Tensor:
    """``F`` of `bo_stream.variational.state`, 0-dim, in nats: O(N M^2 + M^3).

    Args:
        network: The law now, and the prior.
        past: The law before the batch.
        batch: The data; their ``noise`` is what the learned noise multiplies.
        beta: Weight of the divergences; 1 is Bui's bound.
    """
    M = past.state.size
    joint = network.at(torch.cat([past.state.Z, batch.X]))
    a, f = joint[:M], joint[M:]
    d, e = network.noise(batch.noise), batch.y - f.mean
    fit = -0.5 * ((2.0 * math.pi * d).log() + (e.square() + f.variance) / d).sum()
    divergence = network.variational_strategy.kl_divergence() + past_divergence(past, a)
    return fit - beta * divergence


def best_mean(network: Network, past: Past, batch: Batch, beta: float) -> Tensor | None:
    """The constant mean that maximises the objective at a fixed ``q(v)``, 0-dim.

    The objective is quadratic in it, so one Newton step is exact; None where it has no maximum.
    """
    with torch.no_grad():
        mean = network.mean_module(batch.X[:1]).to(batch.X)[0]
        M, T = past.state.size, past.state.T
        joint = network.at(torch.cat([past.state.Z, batch.X]))
        d, e = network.noise(batch.noise), batch.y - joint.mean[M:]
        w = solve(past.L, torch.ones_like(past.state.mu))
        u = solve(past.L, joint.mean[:M] - past.mean)
        pull = solve(T, w) @ solve(T, u - past.state.mu) - w @ u
        bend = solve(T, w).square().sum() - w.square().sum()
        curvature = (1.0 / d).sum() + beta * bend
        if not bool(curvature > 0.0):
            return None
        return mean + ((e / d).sum() - beta * pull) / curvature
