"""How good predictions are: errors, densities and coverage at test points, and a baseline.

Scores look at one point at a time, so no joint law of the test points is ever formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from bo_stream.core.model import ProcessModel
from bo_stream.errors import InputError, UnsupportedError

__all__ = ["Scores", "inverse_distance", "marginals", "noise_variance", "score"]

CHUNK = 4096


def marginals(model: ProcessModel, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and latent variance at each point by itself, raw units, each ``n``; one output.

    Args:
        model: A surrogate of `bo_stream`.
        X: ``n x d`` raw points.

    Raises:
        UnsupportedError: for several outputs, or an outcome transform that is not linear.
    """
    if model.num_outputs != 1:
        raise UnsupportedError("one output", f"{model.num_outputs}", "Use subset_output.")
    law = model.process()
    means, variances = [], []
    with torch.no_grad():
        for part in model.transformed(X).split(CHUNK):
            point = law.at(part)
            means.append(point.mean[0])
            variances.append(point.variance()[0])
        return _raw(model, X, torch.cat(means), torch.cat(variances))


def noise_variance(model: ProcessModel) -> Tensor:
    """Noise variance of a typical observation, raw units, 0-dim; one output.

    Raises:
        NoiseError: if noise is known and nothing was observed.
    """
    noise = model.typical_noise()
    anywhere = noise.new_zeros(1, 1)
    return _raw(model, anywhere, torch.zeros_like(noise), noise)[1].squeeze(0)


def _raw(model: ProcessModel, X: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Transformed means and variances, each ``n``, in raw units."""
    posterior: Any = GPyTorchPosterior(MultivariateNormal(mean, DiagLinearOperator(variance)))
    if hasattr(model, "outcome_transform"):
        transform = cast(OutcomeTransform, model.outcome_transform)
        posterior = transform.untransform_posterior(posterior, X=X)
    if not isinstance(posterior, GPyTorchPosterior):
        raise UnsupportedError(
            "a linear outcome transform", type(model.outcome_transform).__name__, "Standardize."
        )
    return posterior.mean.reshape(-1), posterior.variance.reshape(-1)


@dataclass(frozen=True)
class Scores:
    """Predictions against what is known at the test points.

    Attributes:
        rmse: Root mean squared error of the posterior mean against the true values.
        nlpd: Mean negative log density of the test observations, nats.
        coverage: Share of test observations inside the central interval of ``level``.
        integrated_variance: Mean latent variance over the test points, raw units squared.
    """

    rmse: float
    nlpd: float
    coverage: float
    integrated_variance: float


def score(
    model: ProcessModel,
    X: Tensor,
    truth: Tensor,
    observed: Tensor,
    noise: Tensor | None = None,
    level: float = 0.95,
) -> Scores:
    """Score a surrogate of one output at test points: one law a point, O(n) of them.

    Args:
        model: The surrogate.
        X: ``n x d`` raw points.
        truth: ``n`` (or ``n x 1``) values the mean is compared with.
        observed: Likewise, an observation at each point: what density and coverage are of.
        noise: Likewise, the known variance of those observations; None: that of a typical
            observation of the surrogate, learned.
        level: Of the central interval.

    Raises:
        InputError: for a level that is no probability.
    """
    if not 0.0 < level < 1.0:
        raise InputError("a level between 0 and 1", f"{level}", "0.95 is usual.")
    mean, latent = marginals(model, X)
    if noise is None:
        noise = noise_variance(model).expand_as(mean)
    total = latent + noise.reshape(-1)
    error = observed.reshape(-1) - mean
    half = math.sqrt(2.0) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))
    nlpd = 0.5 * ((2.0 * math.pi * total).log() + error.square() / total)
    return Scores(
        rmse=float((truth.reshape(-1) - mean).square().mean().sqrt()),
        nlpd=float(nlpd.mean()),
        coverage=float((error.abs() <= half * total.sqrt()).double().mean()),
        integrated_variance=float(latent.mean()),
    )


def inverse_distance(
    X: Tensor, Y: Tensor, at: Tensor, neighbours: int = 4, power: float = 2.0
) -> Tensor:
    """Inverse-distance weighting, what a map maker does without a model: ``k x 1`` values.

    Args:
        X: ``n x d`` points.
        Y: ``n x 1`` values.
        at: ``k x d`` points; one that coincides with a point of X takes its value.
        neighbours: How many of the nearest points count.
        power: Of the distance.
    """
    parts = []
    for part in at.split(CHUNK):
        distance, index = torch.cdist(part, X).topk(min(neighbours, len(X)), largest=False)
        weight = distance.clamp_min(1e-12).pow(-power)
        weight = weight / weight.sum(-1, keepdim=True)
        parts.append((weight * Y[index, 0]).sum(-1, keepdim=True))
    return torch.cat(parts)
