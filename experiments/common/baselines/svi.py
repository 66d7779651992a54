"""Stochastic variational inference: gpytorch's SVGP with natural gradients.

[SVI] Hensman, Fusi, Lawrence 2013, Gaussian Processes for Big Data.
"""

import gpytorch
import torch
from linear_operator.settings import max_cholesky_size
from torch import Tensor

from experiments.common.baselines.baseline import Baseline, shares, trained
from experiments.common.baselines.gpytorch_sparse import SVGP, predicted
from experiments.common.baselines.modules import modules
from experiments.common.baselines.reservoir import Reservoir


class SVI(Baseline):
    """SVGP by gpytorch, whitened: natural gradients for its Gaussian, Adam for the rest.

    The bound counts all rows seen so far; minibatches come from a uniform reservoir of them.
    Inducing points start at rows of the first batch and are learned. Rates fall linearly to nothing
    within the budget of each batch.
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
            own = modules(X.shape[1])
            chosen = X[self._rows.some(len(X), self.points)]
            self._svgp = SVGP(chosen, own["covar_module"], natural=True)
            self._likelihood = own["likelihood"]
            parameters = [*self._svgp.hyperparameters(), *self._likelihood.parameters()]
            self._adam = torch.optim.Adam(parameters, lr=self.rate)

    def _learn(self, seconds: float) -> None:
        model, seen = trained(self._svgp), self._rows.seen
        bound = gpytorch.mlls.VariationalELBO(self._likelihood, model, num_data=seen)
        gaussian = list(model.variational_parameters())
        natural = gpytorch.optim.NGD(gaussian, num_data=seen, lr=self.natural_rate)
        model.train(), self._likelihood.train()
        with max_cholesky_size(10**6):  # else gpytorch would turn to iterations, which are random
            for share in shares(seconds, self.clock):
                natural.param_groups[0]["lr"] = self.natural_rate * (1.0 - share)
                self._adam.param_groups[0]["lr"] = self.rate * (1.0 - share)
                natural.zero_grad(), self._adam.zero_grad()
                X, y = self._rows.minibatch(self.minibatch)
                (-bound(model(X), y)).backward()
                natural.step(), self._adam.step()

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations."""
        return predicted(trained(self._svgp), self._likelihood, X)
