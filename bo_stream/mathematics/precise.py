"""Known noise that is too small: a warning where a posterior misses its data by far more."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from bo_stream.errors import PrecisionWarning
from bo_stream.mathematics.process import PosteriorProcess

__all__ = ["warn_if_missed", "warn_if_saturated"]

PRECISE = 1e-10
"""Share of the prior variance below which rounding errors may exceed the noise."""
ROWS, MOST = 256, 10.0
"""Rows of the data that are looked at, and the most standard deviations that are a small miss."""
SATURATED = 0.75
"""Share of the features from which they are too few. Intervals of 95 % covered .32 to .67 of four
functions from there on, and at least .88 of those functions below it."""
REMEDY = "Intervals are too narrow. Use a larger Yvar"


@torch.no_grad()
def warn_if_missed(process: PosteriorProcess, X: Tensor, targets: Tensor, noise: Tensor) -> None:
    """Warn if a posterior is far from the last of its data, as rounding errors may make it.

    Noise above 1e-10 of the outcomes' mean square costs nothing but a comparison.

    Args:
        process: The posterior.
        X: Points, ``n x d``, transformed.
        targets: ``o x n``.
        noise: Their noise variances, ``o x n``.
    """
    if not len(X) or bool((noise >= PRECISE * targets.square().mean(-1, keepdim=True)).all()):
        return
    rows = torch.linspace(0, len(X) - 1, min(len(X), ROWS), device=X.device).long()
    joint, d = process.at(X[rows]), noise[:, rows]
    variance = joint.variance()
    worst = (joint.mean - targets[:, rows]).abs() / (variance.clamp_min(0.0) + d).sqrt()
    if float(worst.max()) > MOST or float((variance <= 0.0).double().mean()) > 0.5:
        warnings.warn(
            "The noise is too small for double precision: the posterior misses its data by "
            f"{float(worst.max()):.2g} standard deviations. {REMEDY}.",
            PrecisionWarning,
            stacklevel=12,  # where a posterior is asked for
        )


@torch.no_grad()
def warn_if_saturated(L: Tensor | None) -> None:
    """Warn if the data determine most of the features that a posterior is on.

    Functions then vary by more than the features resolve, and what these leave out is not in the
    intervals.

    Args:
        L: Factors of the coefficients' precisions, ``o x f x f``, relative to the prior.
    """
    if L is None or not L.shape[-1]:
        return
    left = torch.linalg.solve_triangular(L, torch.eye(L.shape[-1]).to(L), upper=False)
    determined = 1.0 - float(left.square().sum((-1, -2)).min()) / L.shape[-1]
    if determined > SATURATED:
        warnings.warn(
            f"The data determine {determined:.0%} of the features, which are too few for such "
            f"small noise. {REMEDY}, more features (`num_features`), ExactGP or NodeWISKI.",
            PrecisionWarning,
            stacklevel=8,
        )
