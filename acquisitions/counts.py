"""Where to count next: the integrated variance of a prevalence or of a rate (MATHS 11.6)."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from acquisitions.nipv import NIPV
from bo_stream.surrogates.counts import CountGP

__all__ = ["response_nipv"]


def response_nipv(
    model: CountGP, mc_points: Tensor, trials: Any = None, X_pending: Tensor | None = None
) -> NIPV:
    """Negative integrated variance of the response, to first order, after future counts.

    Test points are weighted by the squared mean slope of the response, and a future count is as
    noisy as its expected information says.

    Args:
        model: A surrogate of counts.
        mc_points: ``P x d`` raw test points.
        trials: Trials or exposure of a future count; by default the mean of those seen.
        X_pending: ``n' x d`` raw points under evaluation.

    Returns:
        An acquisition function on the latent surface, for a box or for `select_from_pool`.
    """
    noise, weights = partial(model.future_noise, trials=trials), model.response_weights(mc_points)
    return NIPV(model.model, mc_points, X_pending=X_pending, weights=weights, noise=noise)
