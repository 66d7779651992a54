"""A GP by conjugate gradients: gpytorch's exact GP, with so many iterations in place of a Cholesky
factor.

[CGGP] Gardner, Pleiss, Bindel, Weinberger, Wilson 2018, GPyTorch: Blackbox Matrix-Matrix Gaussian
Process Inference with GPU Acceleration.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from linear_operator import settings
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from experiments.common.baselines.baseline import Baseline, shares, trained
from experiments.common.baselines.gpytorch_sparse import predicted
from experiments.common.baselines.modules import modules

TOLERANCE = 1e-6
"""Mean norm of residuals at which iterations end earlier."""


class ExactModel(gpytorch.models.ExactGP):
    """An exact GP as gpytorch's documentation builds it."""

    def __init__(
        self, X: Tensor, y: Tensor, kernel: Kernel, likelihood: GaussianLikelihood
    ) -> None:
        super().__init__(X, y, likelihood)
        self.mean_module, self.covar_module = ConstantMean().double(), kernel

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Prior at X."""
        return MultivariateNormal(self.mean_module(X), self.covar_module(X))


class CGGP(Baseline):
    """All rows, means and variances by so many iterations of conjugate gradients.

    Adam climbs the evidence as ten random vectors and as many Lanczos iterations estimate it; the
    rate falls linearly to nothing within the budget of each batch. A step is O(n^2) an iteration.
    The preconditioner has so many columns of a pivoted Cholesky factor; 0: there is none.
    """

    alone = "conjugate gradients by gpytorch, a baseline that predicts one point at a time"

    def __init__(
        self, iterations: int, preconditioner: int = 15, rate: float = 0.1, seed: int = 0
    ) -> None:
        super().__init__()
        self.iterations, self.preconditioner = iterations, preconditioner
        self.rate, self.seed = rate, seed
        self._model: ExactModel | None = None

    def _absorb(self, X: Tensor, Y: Tensor) -> None:
        if self._model is None:
            own = modules(X.shape[1])
            self._model = ExactModel(X, Y[:, 0], own["covar_module"], own["likelihood"])
            self._adam = torch.optim.Adam(self._model.parameters(), lr=self.rate)
        else:
            before, y = self._model.train_inputs[0], self._model.train_targets
            every = torch.cat([before, X]), torch.cat([y, Y[:, 0]])
            self._model.set_train_data(*every, strict=False)

    def _learn(self, seconds: float) -> None:
        model = trained(self._model).train()
        evidence = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        with self._iterated(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            for share in shares(seconds, self.clock):
                self._adam.param_groups[0]["lr"] = self.rate * (1.0 - share)
                self._adam.zero_grad()
                (-evidence(model(*model.train_inputs), model.train_targets)).backward()
                self._adam.step()

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations."""
        model = trained(self._model)
        with self._iterated():
            return predicted(model, model.likelihood, X, cholesky=0)

    @contextmanager
    def _iterated(self) -> Iterator[None]:
        """As many iterations as there may be, which is no reason for a warning, and no factor."""
        with (
            warnings.catch_warnings(action="ignore", category=NumericalWarning),
            gpytorch.settings.fast_computations(True, True, True),
            settings.max_cholesky_size(0),
            settings.min_preconditioning_size(1),
            settings.max_preconditioner_size(self.preconditioner),
            settings.max_cg_iterations(self.iterations),
            settings.max_lanczos_quadrature_iterations(self.iterations),
            settings.cg_tolerance(TOLERANCE),
            gpytorch.settings.eval_cg_tolerance(TOLERANCE),
        ):
            yield
