"""Stochastic variational inference: gpytorch's SVGP with natural gradients.

[SVI] Hensman, Fusi, Lawrence 2013, Gaussian Processes for Big Data.
"""

from __future__ import annotations

import gpytorch
import torch
from linear_operator.settings import max_cholesky_size
from torch import Tensor

from bo_stream.errors import StateError
from experiments.common.baselines.baseline import Baseline, shares
from experiments.common.baselines.modules import modules
from experiments.common.baselines.reservoir import Reservoir
from experiments.common.upstream import SVGP, predicted

__all__ = ["SVI"]


class SVI(Baseline):
    """SVGP by gpytorch, whitened: natural gradients for the variational law, Adam for the rest.

    The bound counts all rows seen so far; minibatches come from a uniform reservoir of them, and
    are thus unbiased up to the choice of the reservoir. Inducing points start at rows of the first
    batch, which has to have as many, and are learned. Rates fall linearly to nothing within the
    budget of each batch.

    Args:
        points: Inducing points; fewer if the first batch has fewer rows.
        reservoir: Rows kept.
        minibatch: Rows of one step.
        natural_rate: Of natural gradients, at first.
        rate: Adam's, at first.
        seed: Of all that is random.
    """

    alone = "SVI by gpytorch, a baseline that predicts one point at a time"

    def __init__(
        self,
        points: int,
        reservoir: int = 8192,
        minibatch: int = 512,
        natural_rate: float = 0.1,
        rate: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.points, self.minibatch = points, minibatch
        self.natural_rate, self.rate = natural_rate, rate
        self._rows = Reservoir(reservoir, seed)
        self._svgp: SVGP | None = None

    def _absorb(self, X: Tensor, Y: Tensor) -> None:
        self._rows.add(X, Y)
        if self._svgp is None:
            given = modules(X.shape[1])
            chosen = X[self._rows.some(len(X), self.points)]
            self._svgp = SVGP(chosen, given["covar_module"], natural=True)
            self._likelihood = given["likelihood"]
            parameters = [*self._svgp.hyperparameters(), *self._likelihood.parameters()]
            self._adam = torch.optim.Adam(parameters, lr=self.rate)

    def _learn(self, seconds: float) -> None:
        model, seen = self._trained(), self._rows.seen
        bound = gpytorch.mlls.VariationalELBO(self._likelihood, model, num_data=seen)
        law = list(model.variational_parameters())
        natural = gpytorch.optim.NGD(law, num_data=seen, lr=self.natural_rate)
        model.train(), self._likelihood.train()
        with max_cholesky_size(10**6):  # else gpytorch would turn to iterations, which are random
            for share in shares(seconds):
                natural.param_groups[0]["lr"] = self.natural_rate * (1.0 - share)
                self._adam.param_groups[0]["lr"] = self.rate * (1.0 - share)
                natural.zero_grad(), self._adam.zero_grad()
                X, y = self._rows.minibatch(self.minibatch)
                loss = -bound(model(X), y)
                loss.backward()
                natural.step(), self._adam.step()

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations."""
        return predicted(self._trained(), self._likelihood, X)

    def _trained(self) -> SVGP:
        if self._svgp is None:
            raise StateError("rows", "none so far", "Call observe first.")
        return self._svgp
