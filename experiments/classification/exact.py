"""gpytorch's exact Dirichlet GP, as its documentation builds it, with our default kernel."""

from __future__ import annotations

import time

import gpytorch
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Size, Tensor

from experiments.classification.rows import Labelled
from experiments.classification.streams import at_random, scores

__all__ = ["exact_scores"]

FIRST, STEPS = 500, 15
"""Rows that hyperparameters are first learned from to the end, and steps on all rows after that."""
SAMPLES = 256


class DirichletGP(gpytorch.models.ExactGP):
    """One exact regression a class."""

    def __init__(self, X: Tensor, y: Tensor) -> None:
        likelihood = DirichletClassificationLikelihood(y, dtype=torch.float64)
        super().__init__(X, likelihood.transformed_targets, likelihood)
        batch = Size([likelihood.num_classes])
        base = get_covar_module_with_dim_scaled_prior(X.shape[-1], batch_shape=batch)
        self.mean_module = ConstantMean(batch_shape=batch)
        self.covar_module = ScaleKernel(base, batch_shape=batch)
        self.double()
        self.mean_module.initialize(constant=likelihood.transformed_targets.mean(-1))

    def transform_inputs(self, X: Tensor) -> Tensor:
        """The points as they are; BoTorch's fit asks for it."""
        return X

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Prior at X."""
        return MultivariateNormal(self.mean_module(X), self.covar_module(X))


def exact_scores(data: Labelled) -> dict[str, object]:
    """Scores with all training rows at once."""
    start = time.process_time()
    few = at_random(data.y)[:FIRST]
    first = DirichletGP(data.X[few], data.y[few])
    fit_gpytorch_mll(ExactMarginalLogLikelihood(first.likelihood, first))
    model = first
    if len(data.y) > FIRST:
        model = DirichletGP(data.X, data.y)
        for own, learned in zip(model.parameters(), first.parameters(), strict=True):
            own.data.copy_(learned.data)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": STEPS}}, max_attempts=1)
    model.eval()
    with torch.no_grad():
        parts = [_predicted(model, x) for x in data.X_test.split(500)]
    best, p = (torch.cat(part) for part in zip(*parts, strict=True))
    seconds = time.process_time() - start
    return {"surrogate": "exact GP", **scores(best, p, data.y_test), "seconds": seconds}


def _predicted(model: DirichletGP, X: Tensor) -> tuple[Tensor, Tensor]:
    """Classes of largest mean, and mean softmaxes, of a batch of points."""
    f = model(X)
    Z = torch.randn(
        SAMPLES, *f.mean.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    p = torch.softmax(f.mean + f.variance.sqrt() * Z, 1).mean(0)
    return f.mean.argmax(0), p.mT
