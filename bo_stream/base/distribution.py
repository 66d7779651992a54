"""Conversion of a joint Gaussian of the latent function to a BoTorch posterior."""

from __future__ import annotations

import copy
from typing import Any

import torch
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator import to_linear_operator
from linear_operator.operators import BlockDiagLinearOperator, DiagLinearOperator
from torch import Tensor

from bo_stream.mathematics.posterior.gaussian import JointGaussian

__all__ = ["botorch_posterior", "distribution"]

DENSE_POINTS = 256
"""Above this number of points a joint posterior keeps its covariance as a lazy operator with a
cheap diagonal."""


def distribution(
    joint: JointGaussian,
    noise: Tensor | None = None,
    outputs: list[int] | None = None,
    dtype: torch.dtype = torch.float64,
    standardized: Standardize | None = None,
) -> MultivariateNormal:
    """The joint Gaussian plus noise ``... x o x (q | 1)``.

    With ``standardized`` (one output only) it is returned in raw units. BoTorch's `Standardize`
    gives the same as a product of three operators, which costs more than the joint itself.
    """
    mean = joint.mean
    dense = mean.shape[-1] <= DENSE_POINTS
    cov: Any = joint.covariance(joint) if dense else joint.operator()
    if noise is not None:
        diagonal = noise.expand(*noise.shape[:-1], mean.shape[-1])
        cov = cov + (torch.diag_embed(diagonal) if dense else DiagLinearOperator(diagonal))
    if outputs is not None:
        index = torch.as_tensor(outputs, device=mean.device)
        mean, cov = mean[..., index, :], cov[..., index, :, :]
    if standardized is not None:
        scale = standardized.stdvs.squeeze()
        mean, cov = standardized.means.squeeze() + scale * mean, cov * scale.square()
    mean, cov = mean.to(dtype), cov.to(dtype=dtype)
    if cov.shape[:-1] != mean.shape:  # fantasies share it; BoTorch's transforms need the batch
        cov = cov.expand(*mean.shape, mean.shape[-1])
    if mean.shape[-2] == 1:
        return MultivariateNormal(mean[..., 0, :], to_linear_operator(cov[..., 0, :, :]))
    # block-diagonal, not interleaved: BoTorch's cached roots rely on it
    cov = BlockDiagLinearOperator(to_linear_operator(cov), block_dim=-3)
    return MultitaskMultivariateNormal(mean.mT, cov, interleaved=False)


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
    if type(transform) is Standardize and joint.mean.shape[-2] == 1:
        return GPyTorchPosterior(distribution(joint, noise, outputs, X.dtype, transform))
    posterior = GPyTorchPosterior(distribution(joint, noise, outputs, X.dtype))
    if transform is None:
        return posterior
    if outputs is not None:
        transform = transform.subset_output(outputs)
    if X.dtype != torch.float64:
        transform = copy.deepcopy(transform).to(X)
    return transform.untransform_posterior(posterior, X=X)
