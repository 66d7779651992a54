"""Conversion of a joint Gaussian of the latent function to a BoTorch posterior."""

from __future__ import annotations

import copy
from typing import Any

import torch
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator import to_linear_operator
from linear_operator.operators import (
    BlockDiagLinearOperator,
    ConstantMulLinearOperator,
    DiagLinearOperator,
    TriangularLinearOperator,
)
from torch import Tensor

from bo_stream.mathematics.joint import JointGaussian

__all__ = [
    "ScaleFreeMultitaskNormal",
    "ScaleFreeNormal",
    "botorch_posterior",
    "distribution",
    "scale_free",
]

DENSE_POINTS = 256
"""Above this number of points a joint posterior keeps its covariance as a lazy operator with a
cheap diagonal."""


class ScaleFreeNormal(MultivariateNormal):
    """A multivariate normal distribution in any unit.

    gpytorch raises variances to 1e-6 (1e-4 in float32) in the unit of the outcome. Here they are
    the diagonal of the covariance; what rounding has made zero or negative is the smallest
    positive number.
    """

    @property
    def variance(self) -> Tensor:
        """Marginal variances, positive."""
        diagonal = self.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
        diagonal = diagonal.expand(torch.broadcast_shapes(diagonal.shape, self.loc.shape))
        return diagonal.clamp_min(torch.finfo(diagonal.dtype).tiny)


class ScaleFreeMultitaskNormal(MultitaskMultivariateNormal, ScaleFreeNormal):
    """`ScaleFreeNormal` of several outputs."""


class ScaledCovariance(ConstantMulLinearOperator):
    """A multiple of a covariance, which is factorised before it is multiplied.

    linear_operator adds fixed amounts to the diagonal of a covariance that it cannot factorise:
    here they are added in the units of the model.
    """

    def cholesky(self, upper: bool = False) -> TriangularLinearOperator:
        """The triangular factor."""
        factor = self.base_linear_op.cholesky(upper=upper).to_dense()
        return TriangularLinearOperator(factor * self.expanded_constant.sqrt(), upper=upper)


def scale_free(posterior: Any) -> Any:
    """The posterior with a `ScaleFreeNormal`, if it has a plain multivariate normal distribution.

    Args:
        posterior: BoTorch's posterior, as an outcome or posterior transform returns it.
    """
    if type(posterior) is not GPyTorchPosterior:
        return posterior
    found = posterior.distribution
    if type(found) is not MultivariateNormal:
        return posterior
    return GPyTorchPosterior(ScaleFreeNormal(found.mean, found.lazy_covariance_matrix))


def distribution(
    joint: JointGaussian,
    noise: Tensor | None = None,
    outputs: list[int] | None = None,
    dtype: torch.dtype = torch.float64,
    standardized: Standardize | None = None,
) -> MultivariateNormal:
    """The joint Gaussian plus noise ``... x o x (q | 1)``.

    With ``standardized`` it is returned in raw units. BoTorch's `Standardize` gives the same as a
    product of three operators, which costs more than the joint itself.
    """
    mean = joint.mean
    dense = mean.shape[-1] <= DENSE_POINTS
    cov: Any = joint.covariance(joint) if dense else joint.operator()
    if noise is not None:
        diagonal = noise.expand(*noise.shape[:-1], mean.shape[-1])
        cov = cov + (torch.diag_embed(diagonal) if dense else DiagLinearOperator(diagonal))
    scales = None
    if standardized is not None:
        scales = standardized.stdvs.reshape(-1)
        mean = standardized.means.reshape(-1, 1) + scales.unsqueeze(-1) * mean
    if outputs is not None:
        index = torch.as_tensor(outputs, device=mean.device)
        mean, cov = mean[..., index, :], cov[..., index, :, :]
        scales = None if scales is None else scales[index]
    mean, cov = mean.to(dtype), cov.to(dtype=dtype)
    if cov.shape[:-1] != mean.shape:  # fantasies share it; BoTorch's transforms need the batch
        cov = cov.expand(*mean.shape, mean.shape[-1])
    single = mean.shape[-2] == 1
    cov = to_linear_operator(cov[..., 0, :, :] if single else cov)
    if scales is not None:
        squares = scales.square().to(dtype)
        cov = ScaledCovariance(cov, squares[0] if single else squares.expand(cov.batch_shape))
    if single:
        return ScaleFreeNormal(mean[..., 0, :], cov)
    # block-diagonal, not interleaved: BoTorch's cached roots rely on it
    cov = BlockDiagLinearOperator(cov, block_dim=-3)
    return ScaleFreeMultitaskNormal(mean.mT, cov, interleaved=False)


def botorch_posterior(
    joint: JointGaussian,
    noise: Tensor | None,
    outputs: list[int] | None,
    transform: OutcomeTransform | None,
    X: Tensor,
) -> Any:
    """The posterior in raw units and in the dtype of X.

    Args:
        joint: The joint Gaussian at the points.
        noise: Noise to add, ``... x o x (q | 1)``, or None.
        outputs: Outputs to return; None: all.
        transform: The outcome transform to undo.
        X: The raw points.
    """
    if type(transform) is Standardize:
        return GPyTorchPosterior(distribution(joint, noise, outputs, X.dtype, transform))
    posterior = GPyTorchPosterior(distribution(joint, noise, outputs, X.dtype))
    if transform is None:
        return posterior
    if outputs is not None:
        transform = transform.subset_output(outputs)
    if X.dtype != torch.float64:
        transform = copy.deepcopy(transform).to(X)
    return transform.untransform_posterior(posterior, X=X)
