"""Online SVGP: a sparse GP of fixed size, learned by Adam steps on each batch.

[Bui] Bui, Nguyen, Turner 2017, Streaming Sparse Gaussian Process Approximations; its objective
generalised as in [WISKI] Stanton, Maddox, Delbridge, Wilson 2021, A.7 and A.8. It is the baseline
that studies of streaming surrogates compare with, and a family written outside of bo_stream, as
docs/adding_a_surrogate.md teaches.
"""

import copy
import math
from dataclasses import replace
from typing import Any, NoReturn, Self, Unpack, cast

import torch
from gpytorch import Module
from torch import Tensor

from bo_stream.base.fitting import Coordinates, FitReport, fit_model, log_prior
from bo_stream.base.options import CommonOptions
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.mathematics.inducing import Batch
from bo_stream.mathematics.kernels import frozen_kernel
from bo_stream.mathematics.process import KernelBasis, Process
from bo_stream.mathematics.shapes import Rows
from experiments.common.baselines.variational import (
    Before,
    Inducing,
    OnlineSVGPState,
    factor,
    grown,
    nugget,
    objective,
)

WARM_UP_RATE = 0.05
"""Rate at which the climb on a first batch starts."""


class OnlineSVGP(StreamingGP[OnlineSVGPState]):
    """Sparse variational GP whose inducing points, mean and covariance climb with every batch.

    Each batch's online bound (`experiments.common.baselines.variational`) is climbed by Adam, whose
    moments are carried from batch to batch: an Adam that starts afresh moves every coordinate by
    its rate whatever the gradient. Inducing points are taken from the data by greedy variance until
    there are ``num_inducing``, and move from then on; nothing is random. With M inducing points:
    memory O(M^2 + the last batch); `observe` of N points O(N M^2 + M^3) a step. One output.

    What it makes of a point depends on the steps it takes, so that the order and size of batches
    matter. Hyperparameters stay unless ``learn_hyperparameters``, or `fit`: both climb the
    objective of one batch. Changed in any way, they keep ``q(v)``.

    Args:
        train_X, train_Y, train_Yvar, common: See `StreamingGP`.
        num_inducing: Number of inducing points M, once so many distinct points were seen.
            Conditioning adds its points beyond it.
        beta: Weight of the three divergences of the objective; 1 is Bui's bound.
        steps: Adam steps on each batch.
        initial_steps: Those on the first, with ``beta = 1``, at a rate annealed from 0.05.
        lr: Adam's learning rate, also of inducing points (in units of their spread) and
            hyperparameters (in their logarithms, where positive).
        learn_hyperparameters: Whether Adam moves the hyperparameters too, up the objective plus
            their log priors.
    """

    promises = Promises(
        order_invariant=False, bytes_constant=True, updates_without_drift=300, multi_output=False
    )

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        num_inducing: int = 64,
        beta: float = 1.0,
        steps: int = 10,
        initial_steps: int = 400,
        lr: float = 2e-3,
        learn_hyperparameters: bool = False,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(train_X, train_Y, train_Yvar, **common)
        counts = min(num_inducing, initial_steps) >= 1 and steps >= 0
        if not counts or not 0.0 <= beta < math.inf or not 0.0 < lr <= 1.0:
            raise InputError(
                "num_inducing and initial_steps >= 1, steps >= 0, a finite beta >= 0, lr in (0, 1]",
                f"{(num_inducing, initial_steps, steps, beta, lr)}",
                "Leave them out for the defaults.",
            )
        self.num_inducing, self.beta, self.lr = num_inducing, beta, lr
        self.steps, self.initial_steps = steps, initial_steps
        self.learn_hyperparameters = learn_hyperparameters
        self._begin(train_X, train_Y, train_Yvar)
        self._take_learned()

    def observe(
        self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None, refit: bool | None = None
    ) -> Self:
        """Absorb raw data in place: let inducing points join while there is room, then climb."""
        super().observe(X, Y, Yvar, refit)
        self._take_learned()
        return self

    def log_evidence(self) -> NoReturn:
        """Refused: data absorbed earlier are known through ``q`` only."""
        raise UnsupportedError(
            "a family that can give the evidence of all its data",
            "an OnlineSVGP, which keeps only its last batch",
            "`make_mll` has the online objective of that batch, which `fit` climbs.",
        )

    def _search(self, max_evals: int | None) -> FitReport:
        """Without distant starts, of which one batch's objective is no judge."""
        return fit_model(self, max_evals, trust=math.inf)

    def _empty_state(self) -> OnlineSVGPState:
        return OnlineSVGPState.empty(self._dim)

    def _absorb(self, state: OnlineSVGPState, rows: Rows) -> OnlineSVGPState:
        """Let inducing points join while there is room, then climb."""
        kernel, mean = frozen_kernel(self.covar_module), self._prior_mean().detach()[0].clone()
        before = Before(state.now, factor(state.now, kernel), mean)
        batch = Batch(rows.X, rows.y, rows.r)
        q = grown(state.now, rows.X, kernel, self.num_inducing)
        with torch.enable_grad():
            return self._climbed(q, OnlineSVGPState(q, before, batch, state.moments, state.learned))

    def _build_process(self, state: OnlineSVGPState) -> Process:
        """From ``q(v) = N(mu, B^-1)``, with a factor of ``B``."""
        kernel, q, mean = frozen_kernel(self.covar_module), state.now, self._prior_mean().detach()
        inverse = torch.linalg.solve_triangular(q.T, torch.eye(q.size).to(q.T), upper=False)
        R = torch.linalg.qr(inverse, mode="r").R
        L_B = (R * R.diagonal().sign().unsqueeze(-1)).mT
        basis = KernelBasis(kernel, q.Z, nugget(q, kernel)[None])
        return Process(kernel, basis, factor(q, kernel)[None], L_B[None], q.mu[None], mean.clone())

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Online objective of the last batch at the ``q(v)`` it led to: O(N M^2 + M^3)."""
        state, kernel = self.state, self.covar_module
        if not state.batch.size:
            return state.batch.y.new_zeros(()), None
        batch = replace(state.batch, noise=self._noise_scale() * state.batch.noise)

        def value(mean: Tensor) -> Tensor:
            return objective(state.now, state.before, batch, kernel, mean, self.beta)

        mean = self._prior_mean()[0]
        with torch.no_grad():  # it is quadratic in the mean
            low, here, high = (value(mean + step) for step in (-1.0, 0.0, 1.0))
        bend = 2.0 * here - low - high
        if not profile_mean or not bool(bend > 0.0):
            return value(mean), None
        best = mean.detach() + 0.5 * (high - low) / bend
        return value(best), best.reshape(1)

    # -- the climb -------------------------------------------------------------------------------

    def _climbed(self, q: Inducing, state: OnlineSVGPState) -> OnlineSVGPState:
        """The state after Adam's steps on its batch, from ``q``."""
        own = _Copies(self).requires_grad_(self.learn_hyperparameters)
        coordinates = Coordinates(own, skip_mean=False)
        Z, mu, T = (t.clone().requires_grad_() for t in (q.Z, q.mu, q.T))
        leaves = (Z, mu, T, coordinates.get().to(mu))
        moments, spread = state.moments.padded(leaves), q.Z.amax(0) - q.Z.amin(0)
        spread = torch.where(spread > 0.0, spread, 1.0)
        first = not state.before.q.size
        steps = self.initial_steps if first else self.steps
        top = max(self.lr, WARM_UP_RATE) if first else self.lr
        for i in range(steps):
            batch = replace(state.batch, noise=state.batch.noise * own.noise(self.noise_mode))
            now, kernel = Inducing(Z, mu, T, q.share), own.covar_module
            value = objective(now, state.before, batch, kernel, own.mean(), self.beta)
            value = value + log_prior(own) if coordinates.items else value
            gradients = list(torch.autograd.grad(value, leaves[:3], retain_graph=True))
            gradients.append(coordinates.gradient(value, leaves[3].cpu()).to(mu))
            rate = self.lr + (top - self.lr) * 0.5 * (1.0 + math.cos(math.pi * i / steps))
            moments = moments.climbed(leaves, gradients, rate, spread)
            leaves[3].copy_(coordinates.clip(leaves[3].cpu()))
            coordinates.set(leaves[3].cpu())
        Z, mu, T, learned = (p.detach() for p in leaves)
        if not all(bool(t.isfinite().all()) for t in (Z, mu, T, learned)):
            raise StateError("a climb of finite steps", "one that diverged", "Lower `lr`.")
        now = Inducing(Z, mu, T.tril(), q.share)
        return replace(state, now=now, moments=moments, learned=learned)

    def _take_learned(self) -> None:
        """Set the hyperparameters to those that the last climb has led to."""
        learned = self.state.learned
        if self.learn_hyperparameters and len(learned):
            Coordinates(self, skip_mean=False).set(learned.cpu())


class _Copies(Module):
    """A surrogate's hyperparameters in modules of their own."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        for name in ("covar_module", "mean_module", "likelihood"):
            setattr(self, name, copy.deepcopy(getattr(model, name)).double())

    def mean(self) -> Tensor:
        """The constant prior mean, 0-dim."""
        return cast(Tensor, self.mean_module(torch.zeros(1, 1, dtype=torch.float64)))[0]

    def noise(self, mode: str) -> Tensor | float:
        """What multiplies the noise of a batch."""
        return 1.0 if mode == "known" else self.likelihood.noise
