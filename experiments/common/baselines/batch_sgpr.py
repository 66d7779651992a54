"""Sparse GP regression on all rows so far: gpytorch's `InducingPointKernel`.

[SGPR] Titsias 2009, Variational Learning of Inducing Variables in Sparse Gaussian Processes.
"""

import gpytorch
import torch
from linear_operator.settings import max_cholesky_size
from torch import Tensor

from experiments.common.baselines.baseline import Baseline, shares, trained
from experiments.common.baselines.gpytorch_sparse import SGPR, predicted
from experiments.common.baselines.modules import modules


class BatchSGPR(Baseline):
    """SGPR by gpytorch, which keeps all rows and goes on climbing its bound on them by Adam.

    Inducing points start at rows of the first batch and are learned with the hyperparameters. The
    rate falls linearly to nothing within the budget of each batch. A step is O(n M^2).
    """

    alone = "batch SGPR by gpytorch, a baseline that predicts one point at a time"

    def __init__(self, points: int, rate: float = 0.1, seed: int = 0) -> None:
        super().__init__()
        self.points, self.rate, self.seed = points, rate, seed
        self._model: SGPR | None = None

    def _absorb(self, X: Tensor, Y: Tensor) -> None:
        if self._model is None:
            own = modules(X.shape[1])
            generator = torch.Generator().manual_seed(self.seed)
            chosen = X[torch.randperm(len(X), generator=generator)[: self.points]]
            self._X, self._y = X, Y[:, 0]
            self._model = SGPR(X, self._y, own["covar_module"], chosen, own["likelihood"])
            self._adam = torch.optim.Adam(self._model.parameters(), lr=self.rate)
        else:
            self._X, self._y = torch.cat([self._X, X]), torch.cat([self._y, Y[:, 0]])
            self._model.set_train_data(self._X, self._y, strict=False)

    def _learn(self, seconds: float) -> None:
        model = trained(self._model).train()
        bound = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        with gpytorch.settings.fast_computations(False, True, False), max_cholesky_size(10**6):
            for share in shares(seconds, self.clock):
                self._adam.param_groups[0]["lr"] = self.rate * (1.0 - share)
                self._adam.zero_grad()
                (-bound(model(self._X), self._y)).backward()
                self._adam.step()

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations."""
        model = trained(self._model)
        return predicted(model, model.likelihood, X)
