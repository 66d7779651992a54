"""Fits of a computation-aware GP: hyperparameters and actions, by its policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, cast

import torch
from gpytorch.mlls import MarginalLogLikelihood

from bo_stream.actions.climb import ClimbSettings, Optimizer
from bo_stream.actions.fit_trace import FitTrace, Progress
from bo_stream.actions.history import FitHistory
from bo_stream.actions.objective import ActionMLL, Handle
from bo_stream.actions.policy import Actions
from bo_stream.actions.stages import Task
from bo_stream.base.fitting.coordinates import Coordinates
from bo_stream.base.fitting.fit import fit_model
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.fitting.schedule import RefitSchedule
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix
from bo_stream.mathematics.computation_aware.problem import Loss

__all__ = ["ActionFits"]


class ActionFits:
    """The fitting methods of a surrogate whose state has actions and a `FitHistory`."""

    actions: Actions
    schedule: RefitSchedule

    # provided by the surrogate
    num_observed: Any
    hold: Any
    _changed: Any
    _current_actions: Any
    _lock: Any
    _prior: Any
    _problem: Any
    _state_now: Any
    _wholly: Any

    def make_mll(self, loss: Loss = "elbo", dtype: torch.dtype = torch.float64) -> ActionMLL:
        """The objective of `fit`, for `fit_gpytorch_mll`: a loss plus log priors.

        Args:
            loss: ``"elbo"``, or ``"projected"`` for study.
            dtype: Working dtype of the kernel products while fitting; float32 is faster on large
                data whose noise is not tiny.
        """
        learned = self.actions.learned
        handle = Handle(self._problem, self._current_actions, self._use, learned)
        return ActionMLL(self, handle, loss, dtype)

    def fit(
        self,
        max_evals: int | None = None,
        *,
        optimizer: Optimizer | None = None,
        lr: float = 0.1,
        loss: Loss = "elbo",
        dtype: torch.dtype = torch.float64,
        progress: Progress | None = None,
    ) -> FitReport:
        """Fit hyperparameters and, for learned actions, the values of S; warm-started.

        Policies that order rows by locality do so in units of lengthscales. The first such fit, and
        one after the data have grown by half, proceeds in stages, and divides rows into blocks
        again between them under the lengthscales just learned. The first stages start from the
        current hyperparameters and, on a stream, from those before the first fit; the better result
        is continued. If the data have grown by a quarter, values are learned again, because values
        merged by compression favour the hyperparameters of that time. Any other fit keeps S and
        takes a few evaluations.

        The bound attributes to noise what too few actions cannot resolve: with many more data than
        actions and a rough function, a fit learns too much noise and too long lengthscales.
        Hyperparameters learned while the actions sufficed then predict better.

        Long fits log a line every ten seconds, at level INFO, to the logger
        `bo_stream.surrogates.cagp`. An interrupted fit leaves the surrogate at the best point seen.

        Args:
            max_evals: Most objective-and-gradient evaluations; None: until converged, at most 200
                (Adam: 600 epochs) if values are learned.
            optimizer: ``"lbfgs"`` or ``"adam"``; naming one learns values of S again.
            lr: Adam's first rate; it falls linearly to zero.
            loss: See `make_mll`.
            dtype: See `make_mll`.
            progress: Called after each evaluation with its number and the objective's value.

        Returns:
            The report; a `LearningCurve` if values are learned or options are given.
        """
        search = ClimbSettings(max_evals, optimizer, lr, progress)
        fit = self._lock(torch.enable_grad()(self._fit))
        return fit(self.make_mll(loss, dtype), search)

    def _fit(self, mll: ActionMLL, search: ClimbSettings) -> FitReport:
        """Let the policy fit the hyperparameters and choose the actions."""
        history = self._state_now().history.begun(Coordinates(self, skip_mean=False).get())
        self._note(history)
        trace = FitTrace(search.progress)
        try:
            mll.train()
            outcome = self.actions.fit(Task(mll, search, history, trace, self._fit_held))
            if outcome.S is not None:
                self._use(outcome.S)
        except BaseException:  # Ctrl-C too
            trace.restore(mll)
            raise
        finally:
            mll.eval()
        n = self.num_observed
        self._note(history.ended(n, outcome.repartitioned, outcome.learned))
        return outcome.report

    def _fit_held(self, S: ActionMatrix | None, max_evals: int | None) -> FitReport:
        """Fit hyperparameters alone, with actions S from now on; None: those in use."""
        stale = not self._state_now().factored_under(self._prior())
        if S is None and self.actions.follows_hyperparameters and stale:
            S = self._current_actions()
        if S is not None:
            self._use(S)
        return fit_model(cast(Any, self), max_evals)

    def _note(self, history: FitHistory) -> None:
        """Store the history of fits."""
        self.hold("state", replace(self._state_now(), history=history))

    def _use(self, S: ActionMatrix) -> None:
        """Take these actions (``n x i``, columns of length one) from now on."""

        def change() -> None:
            self.hold("state", self._state_now().with_actions(S))
            self._changed()

        self._wholly(change)

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Callable[..., Any] | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        optimizer: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """The hook of `fit_gpytorch_mll`: `fit`, or a user's optimizer on the same objective.

        Raises:
            UnsupportedError: if a closure is given: the objective is the family's.
        """
        objective = mll if isinstance(mll, ActionMLL) else self.make_mll()
        objective.refresh()
        if optimizer is None and closure is None and not closure_kwargs:
            wanted = dict(optimizer_kwargs or {})
            wanted.setdefault("max_evals", wanted.get("options", {}).get("maxiter"))
            known = {field.name for field in fields(ClimbSettings)}
            self._fit(objective, ClimbSettings(**{k: v for k, v in wanted.items() if k in known}))
            return mll.eval()
        fit_by: Any = super()
        fit_by.custom_fit(objective, closure, closure_kwargs, optimizer_kwargs, optimizer)
        objective.commit()
        self._note(self._state_now().history.ended(self.num_observed, learned=True))
        return mll.eval()

    @property
    def refit_due(self) -> bool:
        """Whether a `fit` is due by the schedule: check after each `observe`."""
        return self._state_now().history.refit_due(self.schedule, self.num_observed)
