"""CaGP: a Gaussian process that counts its own computation as uncertainty, on a stream.

[CaGP] Wenger, Wu, Hennig, Gardner, Pleiss, Cunningham 2024, Computation-Aware Gaussian Processes:
Model Selection And Linear-Time Inference; mathematics in MATHS 5, the streaming part (5.4)
ours. The posterior is exact conditioning on i projections S'y of the data, so its covariance is
never below the exact GP's, whatever the budget, the stream or the compression of S.

State: the data (all of them), the actions S, and L = chol(S'(K + D)S) under the hyperparameters it
was made with. `observe` appends actions and borders L; only a change of hyperparameters makes L
anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar, cast

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from bo_stream.actions import Actions, BlockSparse
from bo_stream.actions.climb import Optimizer, Search
from bo_stream.actions.course import Course, Progress
from bo_stream.actions.history import FitHistory
from bo_stream.actions.objective import ActionMLL, Handle
from bo_stream.actions.stages import Task
from bo_stream.core.state import Memo
from bo_stream.core.streaming import Promises, StreamingGP
from bo_stream.errors import InputError
from bo_stream.fitting import fit_model
from bo_stream.fitting.coordinates import Coordinates
from bo_stream.fitting.report import FitReport
from bo_stream.fitting.schedule import RefitSchedule
from bo_stream.posterior.factor import frozen_kernel
from bo_stream.posterior.process import PosteriorProcess
from bo_stream.projection.matrix import ActionMatrix, identity_actions
from bo_stream.projection.posterior import ProjectedProcess
from bo_stream.projection.problem import Loss, Prior, Problem
from bo_stream.projection.state import Append, ProjectedState, appended, batch_actions, started

__all__ = ["CaGP"]

T = TypeVar("T", ProjectedState, FitHistory)


class CaGP(StreamingGP):
    """Computation-aware GP: i numbers computed from n data, and uncertainty about the rest.

    It keeps all data (state O(n + i^2)). With n data and i actions: `observe` of q points O(n q +
    i^2 q), independent of how often it was called; the posterior O(n + i^2) a point; after a change
    of hyperparameters once O(n^2) kernel values in O(n i) memory; one evidence and its gradient
    O(n^2 + n i^2). One output.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes.
        train_Yvar: ``n x 1`` raw noise variances, or None to learn the noise.
        bounds: Optional ``2 x d`` raw bounds; points outside are refused.
        covar_module, mean_module, likelihood, input_transform, outcome_transform: see
            `StreamingGP`. RBF and Matern kernels are the fastest.
        actions: How actions are chosen from the first data, and again by `fit`; default
            ``BlockSparse(256)``, which orders rows by locality itself and is the exact GP up to
            256 points.
        append: What later data add: ``"identity"``, one action a point (exact conditioning; a
            batch larger than the budget is divided into blocks), or ``"block"``, one a batch.
        max_actions: Actions are compressed to the policy's number when they exceed this; default a
            quarter more than that number.
        schedule: When `refit_due` says that a loop should call `fit`.

    Raises:
        UnsupportedError: for more than one output (use a `ModelListGP` of surrogates).

    Example:
        >>> import torch
        >>> from bo_stream.actions import BlockSparse
        >>> X = torch.rand(40, 2, dtype=torch.double)
        >>> model = CaGP(X, X.sum(-1, keepdim=True), actions=BlockSparse(10))
        >>> model.observe(X[:2] / 2, X[:2].sum(-1, keepdim=True) / 2).num_actions
        12
        >>> model.posterior(X[:5]).mean.shape
        torch.Size([5, 1])
    """

    promises = Promises(
        order_invariant=True, bytes_constant=False, updates_without_drift=300, multi_output=False
    )

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        bounds: Tensor | None = None,
        covar_module: Kernel | None = None,
        mean_module: Mean | None = None,
        likelihood: Likelihood | None = None,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
        actions: Actions | None = None,
        append: Append = "identity",
        max_actions: int | None = None,
        schedule: RefitSchedule | None = None,
    ) -> None:
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            bounds=bounds,
            covar_module=covar_module,
            mean_module=mean_module,
            likelihood=likelihood,
            input_transform=input_transform,
            outcome_transform=outcome_transform,
        )
        self.actions = BlockSparse(256) if actions is None else actions
        self.append = append
        self.schedule = schedule or RefitSchedule()
        self.max_actions = _limit(self.actions, append, max_actions)
        for part in (ProjectedState.empty(self._dim), FitHistory.empty()):
            for field in fields(part):
                self._register_state(field.name, getattr(part, field.name))
        self._conditioning = False
        self._factored = Memo()
        self.observe(train_X, train_Y, train_Yvar)
        self.eval()

    def _layout(self) -> dict[str, Any]:
        policy = f"{type(self.actions).__name__}({self.actions.budget()})"
        return {**super()._layout(), "actions": policy, "append": self.append}

    def _held(self, kind: type[T]) -> T:
        """A part of the state, from its buffers."""
        return kind(**{f.name: cast(Tensor, self._buffers[f.name]) for f in fields(kind)})

    def _hold(self, part: ProjectedState | FitHistory) -> None:
        """Keep a part of the state: all its buffers change at once."""
        self._buffers.update({field.name: getattr(part, field.name) for field in fields(part)})

    # -- state: data, S, and L under the hyperparameters `made_with` -----------------------------

    @property
    def S(self) -> ActionMatrix:
        """The actions in use, ``n x i``; every column of unit length."""
        follows = self.actions.follows_hyperparameters
        return self._factored_state().S if follows else self._held(ProjectedState).S

    @property
    def num_actions(self) -> int:
        """The number of actions in use."""
        return self.S.num_actions

    def _absorb(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        y, r = Y[0], torch.ones_like(Y[0]) if Yvar is None else Yvar[0]
        state, prior = self._held(ProjectedState), self._prior()
        if state.size == 0:
            problem = Problem(X, y, prior.noise * r, prior.kernel, prior.mean)
            exact = identity_actions(len(y), X)
            S = exact if self._conditioning else self.actions.made_for(problem)
            self._hold(started(state, X, y, r, S, prior))
            return
        budget, limit = self.actions.budget(), self.max_actions
        if self._conditioning:  # exactly: every point an action, none merged
            S2, limit = identity_actions(len(y), X), None
        else:
            S2 = batch_actions(X, self.append, budget)
        state = self._factored_state(prior)
        state, w = appended(state, X, y, r, S2, prior, limit, budget or limit or 0)
        history = self._held(FitHistory).surprised(w)
        self._hold(state)
        self._hold(history)

    def _rescale(self, shift: Tensor, factor: Tensor) -> None:
        """Targets in the new units; known noise too, which takes a new factor."""
        known = self.noise_mode != "learned"
        self._hold(self._held(ProjectedState).in_units(shift, factor, known))

    def _condition_in_place(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """Exact: identity actions, no compression."""
        self._conditioning = True
        try:
            super()._condition_in_place(X, Y, Yvar)
        finally:
            self._conditioning = False

    # -- posterior -------------------------------------------------------------------------------

    def _prior(self) -> Prior:
        """The prior under the hyperparameters of now, differentiable."""
        return Prior(
            self.covar_module, self._prior_mean(), self._noise_scale(), self._hyperparameters()
        )

    def _problem(self) -> Problem:
        """All data under the hyperparameters of now, differentiable."""
        return self._held(ProjectedState).problem(self._prior())

    def _factored_state(self, prior: Prior | None = None) -> ProjectedState:
        """The state factored under the hyperparameters of now: O(n^2) kernel values if they have
        changed.

        What is held is left as it is: only `observe` and `fit` write it.
        """
        prior, state = prior or self._prior(), self._held(ProjectedState)
        if state.size == 0 or state.factored_under(prior):
            return state
        made, values = self._factored, prior.hyperparameters
        if not made.fits(values) or made.revision != self._revision:
            S, problem = self._current_actions(), state.problem(prior)
            state = state.with_actions(S, problem.factor(S), values)
            made = self._factored = Memo(state, values.clone(), self._revision)
        return cast(ProjectedState, made.value)

    def _current_actions(self) -> ActionMatrix:
        """S, made anew if it is a function of hyperparameters that have changed."""
        state = self._held(ProjectedState)
        if state.size and self.actions.follows_hyperparameters:
            prior = self._prior()
            if not state.factored_under(prior):
                return self.actions.made_for(state.problem(prior))
        return state.S

    def _build_process(self, previous: PosteriorProcess | None) -> PosteriorProcess:
        state = self._factored_state()
        problem = state.problem(self._prior())
        mean = problem.mean.detach().clone()
        u = state.S.transpose_times(state.Y - mean)
        w = torch.linalg.solve_triangular(state.L, u[:, None], upper=False)[:, 0]
        kernel = previous.kernel if isinstance(previous, ProjectedProcess) else None
        kernel = kernel or frozen_kernel(self.covar_module)
        return ProjectedProcess(kernel, state.X, state.S, state.L, w, problem.noise, mean)

    # -- objectives ------------------------------------------------------------------------------

    def log_evidence(self) -> Tensor:
        """The evidence lower bound [CaGP, eq. 11], without priors: at most the log evidence.

        0-dim, constants included, differentiable in every hyperparameter. O(n^2) kernel values,
        O(n i^2) time, O(n i) memory.
        """
        return self._problem().bound(self._current_actions())[0]

    def projected_log_likelihood(self) -> Tensor:
        """Log density of the projected data S'y, S normalised [CaGP, eq. 9], without priors."""
        return self._problem().bound(self._current_actions(), "projected")[0]

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """The bound for the actions that are held, whatever the hyperparameters have become."""
        return self._problem().bound(self._held(ProjectedState).S, profile_mean=profile_mean)

    # -- fitting ---------------------------------------------------------------------------------

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

        Long fits log a line every ten seconds, at level INFO, to the logger `bo_stream.cagp`. One
        that is interrupted leaves the surrogate at the best point seen.

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
        return self._fit(self.make_mll(loss, dtype), Search(max_evals, optimizer, lr, progress))

    def _fit(self, mll: ActionMLL, search: Search) -> FitReport:
        """As the policy has it: it moves hyperparameters, and says which actions to use."""
        history = self._held(FitHistory).begun(Coordinates(self, skip_mean=False).get())
        self._hold(history)
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
        self._hold(history.ended(n, outcome.repartitioned, outcome.learned))
        return outcome.report

    def _fit_held(self, S: ActionMatrix | None, max_evals: int | None) -> FitReport:
        """Fit hyperparameters alone, with actions S from now on; None: those in use."""
        stale = not self._held(ProjectedState).factored_under(self._prior())
        if S is None and self.actions.follows_hyperparameters and stale:
            S = self._current_actions()
        if S is not None:
            self._use(S)
        return fit_model(self, max_evals)

    def _use(self, S: ActionMatrix) -> None:
        """Take these actions (``n x i``, columns of length one) from now on."""
        self._changed()
        self._hold(self._held(ProjectedState).with_actions(S))
        self._changed()

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
        super().custom_fit(objective, closure, closure_kwargs, optimizer_kwargs, optimizer)
        objective.commit()
        self._hold(self._held(FitHistory).ended(self.num_observed, learned=True))
        return mll.eval()

    @property
    def refit_due(self) -> bool:
        """Whether the schedule says that it is time to `fit`: ask after each `observe`."""
        return self._held(FitHistory).refit_due(self.schedule, self.num_observed)


def _limit(actions: Actions, append: str, max_actions: int | None) -> int | None:
    """The number of actions above which they are compressed."""
    if append not in ("identity", "block"):
        raise InputError('append "identity" or "block"', f"{append!r}", "Choose one of the two.")
    if not isinstance(actions, Actions):
        raise InputError(
            "an action policy: an object of a subclass of `bo_stream.actions.Actions`",
            f"{actions!r}",
            "Take one from bo_stream.actions, for example actions=BlockSparse(256).",
        )
    budget = actions.budget()
    if max_actions is None:
        return None if budget is None else budget + budget // 4
    if budget is None or max_actions < budget:
        raise InputError(
            "max_actions of at least the policy's number of actions",
            f"{max_actions} for {actions}",
            "Give a policy fewer actions, or leave max_actions out.",
        )
    return max_actions
