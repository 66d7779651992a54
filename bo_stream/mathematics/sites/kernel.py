"""The default kernel of a logit or logarithm (MATHS 11.5)."""

from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior

__all__ = ["latent_kernel"]


def latent_kernel(dim: int) -> ScaleKernel:
    """A scaled Matern-3/2 kernel of ``dim`` inputs, with BoTorch's prior of lengthscales.

    The prior of its variance keeps fits to few counts from a flat surface, whose intervals are too
    narrow, with all variation in the nugget.
    """
    prior = get_covar_module_with_dim_scaled_prior(ard_num_dims=dim).lengthscale_prior
    base = MaternKernel(1.5, ard_num_dims=dim, lengthscale_prior=prior)
    base.lengthscale = prior.mode
    return ScaleKernel(base, outputscale_prior=LogNormalPrior(0.0, 1.0))
