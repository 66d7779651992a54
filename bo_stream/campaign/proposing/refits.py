"""Fits of a campaign's surrogate: from where it is, and from first hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bo_stream.base.fitting import FitReport
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.outcomes.count_outcomes import fits_twice
from bo_stream.campaign.proposing.fallbacks import falling_back

__all__ = ["fitted_or_kept"]

FRESH_BELOW = 1000
"""Number of counts below which they are also fitted from first hyperparameters: few counts may be
explained by the nugget alone, and a fit that starts there may stay there."""

AGAIN = "A fit starts again from first hyperparameters."


def fitted_or_kept(
    model: StreamingGP,
    fresh: Callable[[], StreamingGP],
    limits: tuple[int | None, int | None],
    later: bool,
    named: bool,
) -> tuple[StreamingGP, FitReport | None]:
    """The surrogate after a fit; one fitted from first hyperparameters if that fails, or as it was.

    Args:
        model: The surrogate.
        fresh: Builds a new one of the same outcomes.
        limits: Maximum numbers of evaluations: of this fit, and of one from first hyperparameters.
        later: Whether the surrogate was fitted before.
        named: Whether it is none of a user's callable, whose errors are raised.

    Returns:
        The surrogate, and the report of the fit, None if both failed.
    """
    with falling_back(AGAIN, allowed=named, checked=True):
        report = model.fit(limits[0])
        if later and model.num_observed < FRESH_BELOW and fits_twice(model):
            return _better_fit(model, report, fresh(), limits[1])
        return model, report
    with falling_back("Hyperparameters stay.", allowed=named, checked=True):
        other = fresh()
        return other, other.fit(limits[1])
    return model, None


def _better_fit(
    model: StreamingGP, report: FitReport, fresh: StreamingGP, limit: int | None
) -> tuple[StreamingGP, FitReport]:
    """The surrogate of higher evidence: a fitted one, or a new one after its fit."""
    other = fresh.fit(limit)
    spent = report.evaluations + other.evaluations
    if other.value > report.value:
        model, report = fresh, other
    return model, replace(report, evaluations=spent)
