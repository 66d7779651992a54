"""The fits of a growing model: hyperparameters, and the inducing points they ask for.

Fits are to the window of the last rows (`bo_stream.growth.stream_state`): a batch of 20 rows or
more with the smaller ones after it. While the window is all of the data, a fit chooses the inducing
points again under what it learned. If it was to the bound, not to the evidence, it then fits once
more, and, the first time and after the data have doubled, from shorter lengthscales too, which are
taken if they are worth their points (`bo_stream.growth.search`). A later fit moves no
hyperparameter further than `trust` and leaves the inducing points as they are. Without `trust`,
where residuals show structure that the model takes for noise (`watch`), the new rows from then on
are gathered until there are 512, and shorter lengthscales are tried on them; each search waits
until the data have doubled.

An evaluation costs O(M^3). So with more than `EVERY_BATCH` inducing points `observe` fits on a
schedule: when the data have grown by a quarter, or while predictions are significantly worse than
they promise. Between fits the monitor and the search go on.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, cast

import torch

from bo_stream.base.fitting.fit import LOOK, fit_model
from bo_stream.base.fitting.memory import FitMemory
from bo_stream.base.fitting.report import FitReport
from bo_stream.growth.misfit_monitor import AGAIN, MisfitMonitor
from bo_stream.growth.search import search
from bo_stream.growth.stream_state import SMALL, WINDOW
from bo_stream.mathematics.inducing.state import Batch, joined, thinned
from bo_stream.mathematics.inducing.update import rebase

__all__ = ["fit_growing", "fit_on_schedule"]

SHARE = 0.125
"""New rows from which small batches are fitted, as a share of the data or of a full window; at
least `SMALL`."""

EVERY_BATCH = 256
"""Inducing points up to which each of these fits takes place; beyond, on the schedule."""


def fit_growing(model: Any, max_evals: int | None) -> FitReport:
    """Fit the hyperparameters to the window's online bound, with the inducing points as they are.

    Args:
        model: A surrogate whose state is a `StreamState`.
        max_evals: Most objective-and-gradient evaluations, O(N M^2 + M^3) each; if given, there is
            a single ascent and no search.
    """
    state = model.state
    begins = state.before.size == 0 and model.reselects
    first = int(state.batches) <= 1 or (begins and model.trust is None)
    watch = state.watch if first else _watched(model)
    report = fit_model(model, max_evals, None if first else model.trust)
    gathered = state.gathered
    if max_evals is None and state.batch.size:
        if first:
            watch, report = _begun(model, watch, report)
        else:
            watch, gathered, report = _gathered(model, watch, report)
    fitted = state.fitted.new_tensor(model.num_observed)
    model._note(state=replace(model.state, watch=watch, gathered=gathered, fitted=fitted))
    return report


def fit_on_schedule(model: Any, size: int) -> None:
    """Fit if one after a batch of this size is due; else the monitor and its search."""
    n = model.num_observed
    fresh = n - int(model.state.fitted)
    if size < SMALL and min(fresh, model.state.batch.size) < max(SMALL, SHARE * min(n, WINDOW)):
        return
    looked = model.stream.contents.fits.explored[1:2]
    small = model.state.now.size <= EVERY_BATCH
    due = small or not len(looked) or n >= LOOK * float(looked)
    watch = model.state.watch if due else _watched(model)
    if due or watch.density.behind:
        model.fit()
        return
    watch, gathered, _ = _gathered(model, watch, FitReport(0, 0.0, True))
    model._note(state=replace(model.state, watch=watch, gathered=gathered))


def _gathered(
    model: Any, watch: MisfitMonitor, report: FitReport
) -> tuple[MisfitMonitor, Batch, FitReport]:
    """Rows for a search, with the new ones if one is under way or due, and a search of enough."""
    gathered = model.state.gathered
    if model.trust is not None or not (gathered.size or watch.due(model.num_observed)):
        return watch, gathered, report
    rows = _fresh(model, model.state.batch)
    gathered = thinned(joined(gathered, rows), model.search_rows)
    if gathered.size < model.search_rows:
        return watch, gathered, report
    report, _ = _searched(model, gathered, report)
    return watch.searched(model.num_observed), thinned(gathered, 0), report


def _fresh(model: Any, rows: Batch) -> Batch:
    """The rows of the window that came since the last fit."""
    start = max(0, rows.size - (model.num_observed - int(model.state.fitted)))
    return replace(rows, X=rows.X[start:], y=rows.y[start:], noise=rows.noise[start:])


def _begun(model: Any, watch: MisfitMonitor, report: FitReport) -> tuple[MisfitMonitor, FitReport]:
    """The rest of a fit to all data: points under what it taught, and shorter lengthscales."""
    model.reselect()
    if model.explores:
        return watch.searched(model.num_observed), report
    report = report.and_then(fit_model(model))
    rows = model.state.batch
    if model.num_observed < AGAIN * float(watch.sought):
        return watch, report
    if rows.size >= SMALL:
        report, found = _searched(model, thinned(rows, model.search_rows), report)
        for _ in range(2 * found):
            report = report.and_then(fit_model(model.reselect()))
    return watch.searched(model.num_observed), report


def _watched(model: Any) -> MisfitMonitor:
    """With the new rows, as they were predicted before the window."""
    state = model.state
    watch = cast(MisfitMonitor, state.watch)
    batch = _fresh(model, state.window(model._noise_scale().detach()[0]))
    if batch.size < 2 or batch.index < float(watch.batches):
        return watch
    with torch.no_grad():
        same, mean = model._kernel_is(state.kernel_before), model._prior_mean()[0].clone()
        before = rebase(state.before, model.covar_module, mean, same_kernel=same)[0]
        return watch.seen(before, batch, model.covar_module)


def _searched(model: Any, rows: Batch, report: FitReport) -> tuple[FitReport, bool]:
    """Take hyperparameters that a search on some rows finds to be worth it, and reselect."""
    first = model.state.before.size == 0
    found = search(lambda: _restarted(model, rows), model.covar_module, rows.X, suspected=not first)
    report = replace(report, evaluations=report.evaluations + found.evaluations)
    if found.worth_it:
        for name in ("covar_module", "likelihood", "mean_module"):
            learned = getattr(found.model, name).state_dict()
            getattr(model, name).load_state_dict(learned)
        _forget_curvature(model)
        model.reselect()
    return report, found.worth_it


def _restarted(model: Any, rows: Batch) -> Any:
    """A copy that has seen nothing but these rows (noise before any learned scale)."""
    made = copy.deepcopy(model)
    mean = model._prior_mean().detach()[0].clone()
    made._replace(state=made.state.restarted(rows, mean, made._kernel_numbers()))
    _forget_curvature(made)
    return made


def _forget_curvature(model: Any) -> None:
    memory = model.stream.contents.fits
    model._note(fits=FitMemory(memory.curvature.new_empty(0, 0), memory.explored))
