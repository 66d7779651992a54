"""CaGP: a Gaussian process that counts its own computation as uncertainty, on a stream.

[CaGP] Wenger, Wu, Hennig, Gardner, Pleiss, Cunningham 2024, Computation-Aware Gaussian Processes:
Model Selection And Linear-Time Inference; mathematics in MATHS 5, the streaming part (5.4) ours.
The posterior is exact conditioning on i projections S'y of the data, so its covariance is never
below the exact GP's, whatever the budget, the stream or the compression of S.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, Unpack, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.actions import Actions, BlockSparse
from bo_stream.actions.fits import ActionFits
from bo_stream.actions.history import FitHistory
from bo_stream.actions.policy import most_actions
from bo_stream.base.fitting.schedule import RefitSchedule
from bo_stream.base.gp_model import News
from bo_stream.base.hyperparameter_key import numbers_of
from bo_stream.base.options import CommonOptions
from bo_stream.base.state import Memo
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix, identity_actions
from bo_stream.mathematics.computation_aware.posterior import ProjectedProcess
from bo_stream.mathematics.computation_aware.problem import Prior, Problem
from bo_stream.mathematics.computation_aware.state import (
    Append,
    ProjectedState,
    appended,
    batch_actions,
    started,
)
from bo_stream.mathematics.posterior.factor import frozen_kernel
from bo_stream.mathematics.posterior.process import PosteriorProcess

__all__ = ["CaGP"]


@dataclass(frozen=True)
class CaGPState(ProjectedState):
    """Data, actions and their factor, and the fits so far."""

    history: FitHistory = field(kw_only=True)

    @classmethod
    def empty(cls, dim: int, made_with: Tensor) -> Self:
        """No data yet, of ``dim`` inputs, under hyperparameters (flat)."""
        nothing = ProjectedState.empty(dim, made_with)
        parts = {part.name: getattr(nothing, part.name) for part in fields(nothing)}
        return cls(**parts, history=FitHistory.empty())


class CaGP(ActionFits, StreamingGP):
    """Computation-aware GP: i numbers computed from n data, and uncertainty about the rest.

    It keeps all data (state O(n + i^2)). With n data and i actions: `observe` of q points O(n q +
    i^2 q), independent of how often it was called; the posterior O(n + i^2) a point; after a change
    of hyperparameters once O(n^2) kernel values in O(n i) memory; one evidence and its gradient
    O(n^2 + n i^2). One output.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes.
        train_Yvar: ``n x 1`` raw noise variances, or None to learn the noise.
        common: ``bounds``, ``covar_module`` (RBF and Matern kernels are the fastest),
            ``mean_module``, ``likelihood``, ``input_transform``, ``outcome_transform``: see
            `StreamingGP`.
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
        actions: Actions | None = None,
        append: Append = "identity",
        max_actions: int | None = None,
        schedule: RefitSchedule | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(train_X, train_Y, train_Yvar, **common)
        self.actions = BlockSparse(256) if actions is None else actions
        self.append = append
        self.schedule = schedule or RefitSchedule()
        self.max_actions = most_actions(self.actions, append, max_actions)
        self._factored: Memo | None = None
        self._begin(train_X, train_Y, train_Yvar)

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        policy = f"{type(self.actions).__name__}({self.actions.budget()})"
        return {**super()._layout(), "actions": policy, "append": self.append}

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "p": len(self._prior().hyperparameters)}

    def _empty_state(self) -> CaGPState:
        return CaGPState.empty(self._dim, self._prior().hyperparameters)

    def _state_now(self) -> CaGPState:
        return cast(CaGPState, self.held())

    @property
    def S(self) -> ActionMatrix:
        """The actions in use, ``n x i``; every column of unit length."""
        follows = self.actions.follows_hyperparameters
        return self._factored_state().S if follows else self._state_now().S

    @property
    def num_actions(self) -> int:
        """The number of actions in use."""
        return self.S.num_actions

    @property
    def explores(self) -> bool:
        """Whether actions suffice to judge hyperparameters far from those they were made for."""
        return not self.actions.learned or self._state_now().S.num_actions == self.num_observed

    def _absorb(
        self, state: CaGPState, X: Tensor, Y: Tensor, R: Tensor, *, exact: bool
    ) -> CaGPState:
        """S <- blkdiag(S, S2), L bordered, and merged where that makes too many (MATHS 5.4).

        Exact conditioning: every point an action, none merged.
        """
        y, r, prior = Y[0], R[0], self._prior()
        if state.size == 0:
            problem = Problem(X, y, prior.noise * r, prior.kernel, prior.mean)
            S = identity_actions(len(y), X) if exact else self.actions.made_for(problem)
            return started(state, X, y, r, S, prior)
        budget = self.actions.budget()
        S2 = identity_actions(len(y), X) if exact else batch_actions(X, self.append, budget)
        limit = None if exact else self.max_actions
        current = self._factored_state(prior)
        new, w = appended(current, X, y, r, S2, prior, limit, budget or limit or 0)
        return replace(new, history=state.history.surprised(w))

    def _rescale(self, state: CaGPState, shift: Tensor, factor: Tensor) -> CaGPState:
        return state.in_units(shift, factor, self.noise_mode != "learned")

    # -- posterior -------------------------------------------------------------------------------

    def _prior(self) -> Prior:
        """The prior under the hyperparameters of now, differentiable."""
        known = numbers_of(self.covar_module, self.likelihood, self.mean_module)
        own = known.to(self.get_buffer("_noise_sum"))
        return Prior(self.covar_module, self._prior_mean(), self._noise_scale(), own)

    def _problem(self) -> Problem:
        """All data under the hyperparameters of now, differentiable."""
        return self._state_now().problem(self._prior())

    def _factored_state(self, prior: Prior | None = None) -> CaGPState:
        """The state factored under the hyperparameters of now: O(n^2) kernel values if they have
        changed.

        What is held is left as it is: only `observe` and `fit` write it.
        """
        prior, state = prior or self._prior(), self._state_now()
        if state.size == 0 or state.factored_under(prior):
            return state
        made, meaning = self._factored, self._meaning()
        token = cast(Tensor, self._buffers["_count"])
        if made is None or made.token is not token or not made.meaning.as_it_stands(meaning):
            S, problem = self._current_actions(), state.problem(prior)
            state = state.with_actions(S, problem.factor(S), prior.hyperparameters)
            made = self._factored = Memo(state, meaning, token)
        return cast(CaGPState, made.value)

    def _current_actions(self) -> ActionMatrix:
        """S, made anew if it is a function of hyperparameters that have changed."""
        state = self._state_now()
        if state.size and self.actions.follows_hyperparameters:
            prior = self._prior()
            if not state.factored_under(prior):
                return self.actions.made_for(state.problem(prior))
        return state.S

    def _build_process(self, state: CaGPState) -> ProjectedProcess:
        return self._process_of(frozen_kernel(self.covar_module))

    def _update_process(
        self, process: PosteriorProcess, news: tuple[News, ...]
    ) -> ProjectedProcess:
        """With the frozen copy of the kernel that there is."""
        return self._process_of(cast(ProjectedProcess, process).kernel)

    def _process_of(self, kernel: Kernel) -> ProjectedProcess:
        state = self._factored_state()
        problem = state.problem(self._prior())
        mean = problem.mean.detach().clone()
        u = state.S.transpose_times(state.Y - mean)
        w = torch.linalg.solve_triangular(state.L, u[:, None], upper=False)[:, 0]
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
        return self._problem().bound(self._state_now().S, profile_mean=profile_mean)
