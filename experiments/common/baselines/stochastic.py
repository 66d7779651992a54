"""The decoupled GP as its paper trains it: Adam on stochastic gradients.

[SVDGP] Cheng, Boots 2017, Variational Inference for Gaussian Process Models with Linear Complexity.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bo_stream.errors import StateError
from bo_stream.mathematics.posterior.factor import frozen_kernel
from experiments.common.baselines.baseline import Baseline, shares
from experiments.common.baselines.decoupled import Decoupled, gradients, grown, moments
from experiments.common.baselines.modules import learned
from experiments.common.baselines.reservoir import Reservoir

__all__ = ["StochasticDecoupled"]


class StochasticDecoupled(Baseline):
    """Coefficients and root of the covariance climb the bound by Adam, at the paper's rates.

    Step t has the rate ``rate / (1 + 0.1 sqrt t)`` [C.2]. In a stream the bound counts all rows
    seen so far and minibatches come from a uniform reservoir of them (MATHS 6.7). New rows join
    both bases until these are full; then Adam's moments start anew. Hyperparameters are those of
    greatest evidence of at most 600 rows of the first batch, and stay.

    Args:
        mean_basis: Most points of the mean's basis.
        covar_basis: Most points of the covariance's.
        reservoir: Rows kept.
        minibatch: Rows of one step, and columns of ``K_alpha``.
        rate: The first.
        seed: Of all that is random.
        given: Modules with hyperparameters to be taken instead of learned.
    """

    alone = "the stochastic decoupled GP, a baseline that predicts one point at a time"

    def __init__(
        self,
        mean_basis: int = 4096,
        covar_basis: int = 128,
        reservoir: int = 8192,
        minibatch: int = 256,
        rate: float = 0.1,
        seed: int = 0,
        given: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.mean_basis, self.covar_basis = mean_basis, covar_basis
        self.minibatch, self.rate, self.seed = minibatch, rate, seed
        self.steps = 0
        self._rows = Reservoir(reservoir, seed)
        self._given = given
        self._q: Decoupled | None = None

    def _absorb(self, X: Tensor, Y: Tensor) -> None:
        self._rows.add(X, Y)
        if self._q is None:
            given = learned(X, Y, self.seed) if self._given is None else self._given
            self._kernel = frozen_kernel(given["covar_module"])
            self._noise = float(given["likelihood"].noise)
            self._mean = float(given["mean_module"].constant)
            none, empty = X.new_empty(0, X.shape[1]), X.new_empty(0)
            self._q = Decoupled(none, empty, none, X.new_empty(0, 0))
        room = self.mean_basis - len(self._q.alpha), self.covar_basis - len(self._q.beta)
        order = self._rows.some(len(X), len(X))
        alpha, beta = (X[order[:count]] for count in room)
        if len(alpha) or len(beta):
            self._q = grown(self._q, alpha, beta, self._noise)
            self._adam = torch.optim.Adam([self._q.a, self._q.L], maximize=True)

    def _learn(self, seconds: float) -> None:
        for _ in shares(seconds):
            self.step()

    def step(self) -> None:
        """One step of Adam: linear in the mean basis."""
        q = self._law()
        self.steps += 1
        self._adam.param_groups[0]["lr"] = self.rate / (1.0 + 0.1 * self.steps**0.5)
        X, y = self._rows.minibatch(self.minibatch)
        columns = self._rows.some(len(q.a), self.minibatch)
        seen = self._rows.seen
        q.a.grad, q.L.grad = gradients(
            q, self._kernel, self._noise, X, y - self._mean, seen, columns
        )
        self._adam.step()

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations."""
        mean, variance = moments(self._law(), self._kernel, X)
        return mean + self._mean, variance + self._noise

    def _law(self) -> Decoupled:
        if self._q is None:
            raise StateError("rows", "none so far", "Call observe first.")
        return self._q
