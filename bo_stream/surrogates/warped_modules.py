"""The kernel and likelihood of a `WarpedGP`, with the priors of MATHS 13.1, and their values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from bo_stream.base.fitting.objective import profiled_mean
from bo_stream.mathematics.kernels import smoothed
from bo_stream.mathematics.warped.evidence import EXACT, FLOOR, LOG_C, LOG_LENGTHSCALE, TAU, unit
from bo_stream.mathematics.warped.kernel import CategoricalMatern

__all__ = [
    "LogDensity",
    "cat_dims_of",
    "frozen",
    "is_matern",
    "kernel_values",
    "matern_kernel",
    "noise_model",
    "ours",
    "relative_priors",
    "write",
]

FREE = 1e-12
"""Lower bounds of the noise variance below this do not count: they are those of other versions."""


def matern_kernel(dim: int, cat_dims: Sequence[int] = ()) -> ScaleKernel:
    """Scaled ARD Matern-5/2 with the family's prior on lengthscales; some inputs are categories."""
    # a density of the lengthscale; that of its logarithm is normal about the centre
    prior = LogNormalPrior(LOG_LENGTHSCALE + 1.0, 1.0)
    kernel = ScaleKernel(_matern(dim, cat_dims, lengthscale_prior=prior))
    kernel.base_kernel.lengthscale = math.exp(LOG_LENGTHSCALE)
    kernel.outputscale = 1.0
    return kernel


def _matern(dim: int, cat_dims: Sequence[int], **options: Any) -> Kernel:
    if cat_dims:
        return CategoricalMatern(cat_dims, ard_num_dims=dim, **options)
    return MaternKernel(nu=2.5, ard_num_dims=dim, **options)


def cat_dims_of(kernel: Kernel) -> tuple[int, ...]:
    """Indices of the categories of a `matern_kernel`."""
    return tuple(getattr(cast(ScaleKernel, kernel).base_kernel, "cat_dims", ()))


def noise_model(*, learned: bool) -> GaussianLikelihood:
    """A likelihood of any positive noise; frozen unless the noise is learned."""
    constraint = Positive(transform=torch.exp, inv_transform=torch.log)
    likelihood = GaussianLikelihood(noise_constraint=constraint)
    likelihood.noise = 1e-3 if learned else EXACT
    likelihood.noise_covar.raw_noise.requires_grad_(learned)
    return likelihood


def is_matern(kernel: Kernel, dim: int) -> bool:
    """Whether a kernel is a scaled ARD Matern-5/2 in all inputs."""
    if type(kernel) is not ScaleKernel:
        return False
    matern = kernel.base_kernel
    if type(matern) is not CategoricalMatern and getattr(matern, "nu", None) != 2.5:
        return False
    known = type(matern) in (MaternKernel, CategoricalMatern) and matern.active_dims is None
    return known and cast(Tensor, matern.raw_lengthscale).shape == (1, dim)


def frozen(kernel: Kernel) -> Kernel:
    """A detached float64 copy of a `matern_kernel` with second derivatives and without priors.

    Copies of priors take longer.
    """
    given = cast(Any, kernel)
    made = ScaleKernel(_matern(given.base_kernel.ard_num_dims, cat_dims_of(kernel)))
    made.requires_grad_(False).double()
    made.base_kernel.lengthscale = given.base_kernel.lengthscale.detach().double()
    made.outputscale = given.outputscale.detach().double()
    return smoothed(made.eval())


def ours(model: Any) -> bool:
    """Whether a surrogate has the modules above, unchanged and free, and a free constant mean."""
    kernel, likelihood = model.covar_module, model.likelihood
    if not is_matern(kernel, model._dim) or type(likelihood) is not GaussianLikelihood:
        return False
    matern, covariance = kernel.base_kernel, likelihood.noise_covar
    constraints = (matern.raw_lengthscale_constraint, kernel.raw_outputscale_constraint)
    free = (matern.raw_lengthscale, kernel.raw_outputscale)
    prior: Any = getattr(matern, "lengthscale_prior", None)
    return (
        profiled_mean(model)
        and type(prior) is LogNormalPrior
        and float(prior.scale) == 1.0
        and all(type(c) is Positive for c in constraints)
        and all(p.requires_grad for p in free)
        and not (hasattr(kernel, "outputscale_prior") or hasattr(covariance, "noise_prior"))
        and float(covariance.raw_noise_constraint.lower_bound) < FREE
        and covariance.raw_noise.requires_grad == (model.noise == "learned")
    )


def write(model: Any, lengthscales: Any, variance: float, mean: float, noise: float) -> None:
    """Set the values of a surrogate's modules, which are `ours`."""
    kernel, covariance = model.covar_module, model.likelihood.noise_covar
    matern = kernel.base_kernel
    pairs = (
        (matern.raw_lengthscale, matern.raw_lengthscale_constraint, lengthscales),
        (kernel.raw_outputscale, kernel.raw_outputscale_constraint, variance),
        (covariance.raw_noise, covariance.raw_noise_constraint, noise),
        (model.mean_module.raw_constant, None, mean),
    )
    for raw, constraint, value in pairs:
        number = torch.as_tensor(value, dtype=torch.float64)
        number = number if constraint is None else constraint.inverse_transform(number)
        raw.data.copy_(number.reshape(raw.shape))


def relative_priors(model: Any) -> Tensor:
    """Log prior of mean, variance, warp, and of noise relative to the variance, 0-dim."""
    shift, scale = model.units()
    variance = model.covar_module.outputscale.double() / scale**2
    mean = (model._prior_mean().squeeze() - shift) / scale
    total = -0.5 * mean.square() / variance - variance.log() - 1.0 / variance
    ratio = model._noise_scale().squeeze() / model.covar_module.outputscale.double()
    if model.noise == "learned" or float(ratio.detach()) > FLOOR:  # or outcomes at one point differ
        tau = (ratio - FLOOR).clamp_min(1e-12).log()
        total = total - 0.5 * ((tau - TAU[0]) / TAU[1]).square()
    if model.is_warped:
        log_c = (model.state.warp[1] / unit(model.state.Y[0].numpy(force=True))).log()
        total = total - 0.5 * ((log_c - LOG_C[0]) / LOG_C[1]).square()
    return cast(Tensor, total)


class LogDensity:
    """A prior whose closure already gives the log density."""

    def log_prob(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value


def kernel_values(kernel: Kernel) -> tuple[Tensor, float]:
    """Lengthscales ``d`` and variance of a `matern_kernel`, float64."""
    scale = cast(ScaleKernel, kernel)
    lengthscales = cast(Tensor, scale.base_kernel.lengthscale).detach().double().reshape(-1)
    return lengthscales, float(scale.outputscale.detach())
