"""The fits of a computation-aware GP: hyperparameters and actions, as its policy has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, cast

import torch
from gpytorch.mlls import MarginalLogLikelihood

from bo_stream.actions.climb import Optimizer, Search
from bo_stream.actions.fit_trace import Course, Progress
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
    """Part of a surrogate whose state has actions and a `FitHistory`: how it is fitted."""

    actions: Actions
    schedule: RefitSchedule

    # what the surrogate has
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

        Policies that order rows by locality do so in units of lengthscales. So where the data have
        grown by half since the last such fit (or never had one) the fit goes in stages, and between
        them rows are divided into blocks anew: the learned lengthscales say what a neighbour is;
        the first stages start from the hyperparameters of now and, on a stream, from those before
        the first fit, and the better goes on. Where they have grown by a quarter, values are
        learned again: those that compression merged under earlier hyperparameters favour them. Any
        other fit keeps S, and takes a handful of evaluations.

        The bound takes what too few actions cannot resolve for noise: with many more data than
        actions, and a rough function, a fit learns more noise than there is and longer
        lengthscales. Hyperparameters learned while the actions still sufficed then predict better.

        Long fits log a line every ten seconds, at level INFO, to the logger
        `bo_stream.surrogates.cagp`. One that is interrupted leaves the surrogate at the best point
        seen.

        Args:
            max_evals: Most objective-and-gradient evaluations; None: until converged, at most 200
                (Adam: 600 epochs) where values are learned.
            optimizer: ``"lbfgs"`` or ``"adam"``; naming one learns values of S again.
            lr: Adam's first rate; it falls linearly to zero.
            loss: See `make_mll`.
            dtype: See `make_mll`.
            progress: Called after each evaluation with its number and the objective's value.

        Returns:
            The report; a `LearningCurve` where values are learned or options given.
        """
        search = Search(max_evals, optimizer, lr, progress)
        fit = self._lock(torch.enable_grad()(self._fit))
        return fit(self.make_mll(loss, dtype), search)

    def _fit(self, mll: ActionMLL, search: Search) -> FitReport:
        """As the policy has it: it moves hyperparameters, and says which actions to use."""
        history = self._state_now().history.begun(Coordinates(self, skip_mean=False).get())
        self._note(history)
        course = Course(search.progress)
        try:
            mll.train()
            outcome = self.actions.fit(Task(mll, search, history, course, self._fit_held))
            if outcome.S is not None:
                self._use(outcome.S)
        except BaseException:  # Ctrl-C too
            course.restore(mll)
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
        """Keep the bookkeeping of fits."""
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
            known = {field.name for field in fields(Search)}
            self._fit(objective, Search(**{k: v for k, v in wanted.items() if k in known}))
            return mll.eval()
        fit_by: Any = super()
        fit_by.custom_fit(objective, closure, closure_kwargs, optimizer_kwargs, optimizer)
        objective.commit()
        self._note(self._state_now().history.ended(self.num_observed, learned=True))
        return mll.eval()

    @property
    def refit_due(self) -> bool:
        """Whether the schedule says that it is time to `fit`: ask after each `observe`."""
        return self._state_now().history.refit_due(self.schedule, self.num_observed)
