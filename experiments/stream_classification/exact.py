"""gpytorch's exact Dirichlet GP, as its documentation builds it, with our default kernel."""

from __future__ import annotations

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

from bo_stream.campaign.records import Row
from experiments.stream_classification.rows import Labelled

__all__ = ["exact_scores"]


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


def exact_scores(
    data: Labelled, few: Tensor, maxiter: int, samples: int, seed: int
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """Classes and probabilities at the test rows, with all training rows at once, and seconds.

    Args:
        data: The table.
        few: Rows on which hyperparameters are first fitted to convergence.
        maxiter: Steps of the fit to all rows after that.
        samples: Samples of the softmax.
        seed: Seed of these samples.
    """
    spent = Row(("fit_seconds", "predict_seconds"))
    with spent.timed("fit_seconds"):
        model = _fitted(data, few, maxiter)
    with torch.no_grad(), spent.timed("predict_seconds"):
        parts = [_predicted(model, x, samples, seed) for x in data.X_test.split(500)]
        best, p = (torch.cat(part) for part in zip(*parts, strict=True))
    return best, p, dict(spent)


def _fitted(data: Labelled, few: Tensor, maxiter: int) -> DirichletGP:
    first = DirichletGP(data.X[few], data.y[few])
    fit_gpytorch_mll(ExactMarginalLogLikelihood(first.likelihood, first))
    model = first
    if len(data.y) > len(few):
        model = DirichletGP(data.X, data.y)
        for own, learned in zip(model.parameters(), first.parameters(), strict=True):
            own.data.copy_(learned.data)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": maxiter}}, max_attempts=1)
    return model.eval()


def _predicted(model: DirichletGP, X: Tensor, samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Classes of largest mean, and mean softmaxes, of a batch of points."""
    f, generator = model(X), torch.Generator().manual_seed(seed)
    Z = torch.randn(samples, *f.mean.shape, generator=generator, dtype=torch.float64)
    p = torch.softmax(f.mean + f.variance.sqrt() * Z, 1).mean(0)
    return f.mean.argmax(0), p.mT
