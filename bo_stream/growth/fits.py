"""Fits of a growing model: its hyperparameters, and inducing points to match them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, cast

import torch
from gpytorch.mlls import MarginalLogLikelihood

from bo_stream.base.fitting.fit import fit_model
from bo_stream.base.fitting.report import FitReport
from bo_stream.growth.misfit_monitor import MisfitMonitor
from bo_stream.growth.search import search
from bo_stream.mathematics.inducing.state import Batch, joined, thinned
from bo_stream.mathematics.inducing.update import rebase

__all__ = ["GrowingFits"]

REFIT_FROM = 20
"""Batches of at least this many points refit the hyperparameters by default."""


class GrowingFits:
    """The fitting methods of a surrogate whose state is a `StreamState`.

    Attributes:
        search_rows: Rows used in a search for shorter lengthscales.
    """

    search_rows = 512

    # provided by the surrogate
    covar_module: Any
    growth: Any
    num_observed: Any
    trust: float | None
    hold: Any
    make_mll: Any
    _changed: Any
    _kernel_numbers: Any
    _lock: Any
    _noise_scale: Any
    _prior_mean: Any
    _record: Any
    _register_state: Any
    _step: Any
    _unchanged: Any
    _wholly: Any

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit the hyperparameters to the last batch's online bound, and replay its update.

        The first fit to a first batch chooses the inducing points again under the hyperparameters
        learned, fits once more, and tries shorter lengthscales, which are taken if their gain
        justifies the additional points (`bo_stream.growth`). A later fit moves no hyperparameter
        further than `trust` and keeps the inducing points. Without `trust`, if residuals show
        structure that the model attributes to noise (`watch`), the rows of later batches are
        gathered until there are 512, and shorter lengthscales are tried on them. Each search waits
        until the data have doubled.

        Args:
            max_evals: Most objective-and-gradient evaluations, O(N M^2 + M^3) each; if given, there
                is one climb and no search.
        """
        return self._lock(torch.enable_grad()(self._fitted))(max_evals)

    def _fitted(self, max_evals: int | None) -> FitReport:
        """`fit`, with the lock held."""
        state = self._record()
        first = int(state.batches) <= 1
        watch = state.watch if first else self._looked()
        report = self._climbed(max_evals, None if first else self.trust)
        gathered = state.gathered
        if max_evals is None and state.batch.size:
            if first and not bool(watch.sought):
                watch, report = self._begun(watch.searched(self.num_observed), report)
            elif self.trust is None and (gathered.size or watch.due(self.num_observed)):
                gathered = thinned(joined(gathered, state.batch), self.search_rows)
                if gathered.size >= self.search_rows:
                    watch = watch.searched(self.num_observed)
                    report, _ = self._searched(gathered, report)
                    gathered = thinned(gathered, 0)
        self.hold("state", replace(self._record(), watch=watch, gathered=gathered))
        return report

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Callable[..., Any] | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        optimizer: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """The hook of `fit_gpytorch_mll`; like `fit`, it ends by replaying the last update."""
        fit_by: Any = super()
        mll = fit_by.custom_fit(mll, closure, closure_kwargs, optimizer_kwargs, optimizer, **kwargs)
        self._again(reselect=False)
        return mll

    def reselect(self) -> Self:
        """Choose the inducing points of the last batch again, under the current hyperparameters.

        For the first batch, whose points were chosen under the initial hyperparameters.
        """
        self._again(reselect=True)
        return self

    def _begun(self, watch: MisfitMonitor, report: FitReport) -> tuple[MisfitMonitor, FitReport]:
        """The rest of a first fit: inducing points chosen again, and shorter lengthscales."""
        report = report.and_then(self.reselect()._climbed(None, None))
        rows = self._record().batch
        if rows.size >= REFIT_FROM:
            report, found = self._searched(thinned(rows, self.search_rows), report)
            for _ in range(2 * found):
                report = report.and_then(self.reselect()._climbed(None, None))
        return watch, report

    def _climbed(self, max_evals: int | None, trust: float | None) -> FitReport:
        """Fit with the inducing points held, and replay the last update."""
        try:
            return fit_model(cast(Any, self), max_evals, trust)
        finally:
            self._again(reselect=False)

    def _looked(self) -> MisfitMonitor:
        """The monitor with the last batch, as it was predicted before it was absorbed."""
        state = self._record()
        watch = cast(MisfitMonitor, state.watch)
        batch = state.last_batch(self._noise_scale().detach()[0])
        if batch.size < 2 or batch.index < float(watch.batches):
            return watch
        with torch.no_grad():
            same, mean = self._unchanged(state.kernel_before), self._prior_mean()[0].clone()
            before = rebase(state.before, self.covar_module, mean, same_kernel=same)[0]
            return watch.seen(before, batch, self.covar_module)

    def _searched(self, rows: Batch, report: FitReport) -> tuple[FitReport, bool]:
        """Search on some rows; take hyperparameters that are worth their points, and reselect."""
        first = int(self._record().batches) <= 1
        found = search(
            lambda: self._restarted(rows), self.covar_module, rows.X, suspected=not first
        )
        report = replace(report, evaluations=report.evaluations + found.evaluations)
        if found.worth_it:
            for name in ("covar_module", "likelihood", "mean_module"):
                learned = getattr(found.model, name).state_dict()
                getattr(self, name).load_state_dict(learned)
            self._forget_curvature()
            self._again(reselect=True)
        return report, found.worth_it

    def _restarted(self, rows: Batch) -> Self:
        """A copy that has seen nothing but these rows (noise before any learned scale)."""
        model = copy.deepcopy(self)
        mean = self._prior_mean().detach()[0].clone()
        state = model._record().restarted(rows, mean, model._kernel_numbers())
        model.hold("state", state)
        model._forget_curvature()
        return model

    def _forget_curvature(self) -> None:
        self._register_state("_curvature", torch.empty(0, 0, dtype=torch.float64))

    def _again(self, *, reselect: bool) -> None:
        """Absorb the last batch again, from the state before it, under the current
        hyperparameters.
        """
        self._wholly(lambda: self._replayed(reselect))

    def _replayed(self, reselect: bool) -> None:
        state = self._record()
        batch = state.last_batch(self._noise_scale().detach()[0])
        if not batch.size:
            return
        choose = self.growth if reselect else state.choice()
        result = self._step(state.before, state.kernel_before, batch, choose)
        self.hold("state", state.settled(result, self._kernel_numbers()))
        self._changed()
