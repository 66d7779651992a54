"""gpytorch's own sparse GPs, as its documentation builds them: what ours are compared with."""

from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import InducingPointKernel, Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    NaturalVariationalDistribution,
    VariationalStrategy,
)
from linear_operator.settings import max_cholesky_size
from torch import Tensor

CHUNK = 500
"""Points predicted at a time."""


class SGPR(gpytorch.models.ExactGP):
    """Sparse GP regression: an exact GP under gpytorch's `InducingPointKernel`.

    It is quick only with the inducing points outermost (an outputscale inside) and under gpytorch's
    ``fast_computations``, which BoTorch turns off on import: else it forms an ``n x n`` matrix.
    """

    def __init__(
        self, X: Tensor, y: Tensor, kernel: Kernel, points: Tensor, likelihood: GaussianLikelihood
    ) -> None:
        super().__init__(X, y, likelihood)
        self.mean_module = ConstantMean().double()
        self.covar_module = InducingPointKernel(kernel, points.clone(), likelihood)

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Prior at X."""
        return MultivariateNormal(self.mean_module(X), self.covar_module(X))


class SVGP(gpytorch.models.ApproximateGP):
    """A variational GP, whitened, with a full Gaussian over its inducing values.

    Inducing points are learned. If ``natural``, the Gaussian is held for natural gradients, by
    `gpytorch.optim.NGD`.
    """

    def __init__(self, points: Tensor, kernel: Kernel, natural: bool = False) -> None:
        held = NaturalVariationalDistribution if natural else CholeskyVariationalDistribution
        values = held(len(points)).double()
        super().__init__(
            VariationalStrategy(self, points.clone(), values, learn_inducing_locations=True)
        )
        self.mean_module = ConstantMean().double()
        self.covar_module = kernel

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Prior at X."""
        return MultivariateNormal(self.mean_module(X), self.covar_module(X))


def predicted(
    model: Any, likelihood: GaussianLikelihood, X: Tensor, cholesky: int = 10**6
) -> tuple[Tensor, Tensor]:
    """Means and variances of observations at ``n x d`` points, ``n`` each, without a graph.

    Matrices of more than ``cholesky`` rows are not factorised: gpytorch turns to iterations, which
    are slower and random. The model is left in training mode.
    """
    model.eval(), likelihood.eval()
    with torch.no_grad(), max_cholesky_size(cholesky):
        parts = [likelihood(model(part)) for part in X.split(CHUNK)]
        mean = torch.cat([part.mean for part in parts])
        variance = torch.cat([part.variance for part in parts])
    model.train(), likelihood.train()
    return mean, variance
