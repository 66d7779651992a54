"""gpytorch's exact Dirichlet GP, as its documentation builds it, with our default kernel."""

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


def fitted(X: Tensor, y: Tensor, few: Tensor, maxiter: int) -> DirichletGP:
    """On all rows, ``n x d`` and ``n``: fitted on few of them, then for so many steps on all."""
    first = DirichletGP(X[few], y[few])
    fit_gpytorch_mll(ExactMarginalLogLikelihood(first.likelihood, first))
    model = first
    if len(y) > len(few):
        model = DirichletGP(X, y)
        for own, learned in zip(model.parameters(), first.parameters(), strict=True):
            own.data.copy_(learned.data)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": maxiter}}, max_attempts=1)
    return model.eval()


@torch.no_grad()
def predicted(model: DirichletGP, X: Tensor, samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Classes of largest mean, and mean softmaxes over so many samples, at ``n x d`` points."""
    parts = []
    for x in X.split(500):
        f, generator = model(x), torch.Generator().manual_seed(seed)
        Z = torch.randn(samples, *f.mean.shape, generator=generator, dtype=torch.float64)
        p = torch.softmax(f.mean + f.variance.sqrt() * Z, 1).mean(0)
        parts.append((f.mean.argmax(0), p.mT))
    best, p = (torch.cat(part) for part in zip(*parts, strict=True))
    return best, p
