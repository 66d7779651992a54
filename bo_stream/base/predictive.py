"""Scores of a surrogate's predictions of new data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bo_stream.base.fitting.surprise import shortfall
from bo_stream.mathematics.linalg import chol_psd

__all__ = ["PredictiveScore", "predictive_score"]


class PredictiveScore(NamedTuple):
    """The score of a prediction; all 0-dim.

    Attributes:
        log_density: Log density of the data in raw units, nats.
        shortfall: Expected minus actual log density under the prediction, nats.
        variance: Variance of the shortfall if the prediction is right.
    """

    log_density: Tensor
    shortfall: Tensor
    variance: Tensor


@torch.no_grad()
def predictive_score(
    model: Any,
    X: Tensor,
    Y: Tensor,
    Yvar: Tensor | None,
    moments: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
) -> PredictiveScore:
    """Score a surrogate's prediction of raw, checked data ``n x d``, ``n x m``.

    Args:
        model: The surrogate.
        X: Raw points.
        Y: Their outcomes.
        Yvar: Their noise variances, or None.
        moments: Posterior means ``o x q`` and covariances ``o x q x q`` at transformed points; by
            default the process's.
    """
    if not X.shape[0]:
        zero = X.new_zeros((), dtype=torch.float64)
        return PredictiveScore(zero, zero, zero)
    with torch.inference_mode(False):
        raw = Y.detach().double().clone().requires_grad_()
        Y_t, Yvar_t = model._outcomes(raw, Yvar, X)
        (slope,) = torch.autograd.grad(Y_t.sum(), raw)
    Z = model._transformed(X)
    if moments is None:
        joint = model.process().at(Z)
        mean, covariance = joint.mean, joint.covariance(joint)
    else:
        mean, covariance = moments(Z)
    noise = model._noise_scale().unsqueeze(-1).expand(Y_t.mT.shape)
    noise = noise if Yvar_t is None else noise * Yvar_t.mT
    L = chol_psd(covariance + torch.diag_embed(noise))
    residuals = (Y_t.mT.detach() - mean).unsqueeze(-1)
    white = torch.linalg.solve_triangular(L, residuals, upper=False)
    log_density = -0.5 * white.square().sum() - L.diagonal(dim1=-2, dim2=-1).log().sum()
    log_density += slope.abs().log().sum() - 0.5 * white.numel() * math.log(2.0 * math.pi)
    return PredictiveScore(log_density, *shortfall(white))
