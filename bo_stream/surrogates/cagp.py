"""CaGP: a Gaussian process whose uncertainty includes its limited computation, on a stream.

[CaGP] Wenger, Wu, Hennig, Gardner, Pleiss, Cunningham 2024, Computation-Aware Gaussian Processes:
Model Selection And Linear-Time Inference; mathematics in MATHS 5, with our streaming part in 5.4.
The posterior conditions exactly on i projections S'y of the data, so its covariance is never below
the exact GP's, whatever the budget, the stream or the compression of S.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack, cast

import torch
from torch import Tensor

from bo_stream.actions import Actions, BlockSparse
from bo_stream.actions.fit import fit_actions
from bo_stream.actions.history import FitHistory
from bo_stream.actions.objective import ActionMLL
from bo_stream.actions.policy import most_actions
from bo_stream.actions.state import Append, CaGPState, batch_actions
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.fitting.schedule import RefitSchedule
from bo_stream.base.options import CommonOptions, from_plain
from bo_stream.base.snapshot import Derived, numbers_of
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix
from bo_stream.mathematics.computation_aware.posterior import ActionBasis
from bo_stream.mathematics.computation_aware.problem import Loss, Prior, RegressionProblem
from bo_stream.mathematics.kernels import frozen_kernel
from bo_stream.mathematics.precise import warn_if_missed
from bo_stream.mathematics.process import Process

__all__ = ["CaGP"]


class CaGP(StreamingGP):
    """Computation-aware Gaussian process: exact conditioning on i projections of n data.

    It keeps all data (state O(n + i^2)). With n data and i actions: `observe` of q points takes
    O(n q + i^2 q), independent of the number of earlier calls, and the posterior O(n + i^2) per
    point. A change of hyperparameters costs O(n^2) kernel values once, in O(n i) memory. One
    evidence with its gradient costs O(n^2 + n i^2). One output.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes.
        train_Yvar: ``n x 1`` raw noise variances, or None to learn the noise.
        common: ``bounds``, ``covar_module`` (RBF and Matern kernels are the fastest),
            ``mean_module``, ``likelihood``, ``input_transform``, ``outcome_transform``: see
            `CommonOptions`.
        actions: Policy that chooses the actions from the first data and again in `fit`, or its name
            and options as plain data: ``{"name": "block_sparse", "num_actions": 64}``. The default
            ``BlockSparse(256)`` orders rows by locality and is the exact GP for up to 256 points.
        append: How later data are added: ``"identity"`` adds one action per point (exact
            conditioning; batches larger than the budget are divided into blocks), ``"block"`` one
            per batch.
        max_actions: Actions above this number are compressed; by default 1.25 times the policy's.
        schedule: Decides when `refit_due` asks for a `fit`.

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
        actions: Actions | str | Mapping[str, Any] | None = None,
        append: Append = "identity",
        max_actions: int | None = None,
        schedule: RefitSchedule | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(train_X, train_Y, train_Yvar, **common)
        self.actions = BlockSparse(256) if actions is None else from_plain("actions", actions)
        self.append = append
        self.schedule = from_plain("schedule", schedule) or RefitSchedule()
        self.max_actions = most_actions(self.actions, append, max_actions)
        self._factored: Derived[CaGPState] = Derived()
        self._begin(train_X, train_Y, train_Yvar)

    def _layout(self) -> dict[str, Any]:
        policy = f"{type(self.actions).__name__}({self.actions.budget()})"
        return {**super()._layout(), "actions": policy, "append": self.append}

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "p": len(self._prior().hyperparameters)}

    def _empty_state(self) -> CaGPState:
        return CaGPState.empty(self._dim, self._prior().hyperparameters)

    @property
    def S(self) -> ActionMatrix:
        """The current actions, ``n x i``, with columns of unit length."""
        follows = self.actions.follows_hyperparameters
        return self._factored_state().S if follows else self.state.S

    @property
    def num_actions(self) -> int:
        """Number of current actions."""
        return self.S.num_actions

    @property
    def explores(self) -> bool:
        """Whether the actions allow comparing hyperparameters far from the current ones."""
        return not self.actions.learned or self.state.S.num_actions == self.num_observed

    def _absorb(self, state: CaGPState, X: Tensor, Y: Tensor, R: Tensor) -> CaGPState:
        """S <- blkdiag(S, S2), with L bordered; actions in excess are merged (MATHS 5.4)."""
        y, r, prior = Y[0], R[0], self._prior()
        if state.size == 0:
            problem = RegressionProblem(X, y, prior.noise * r, prior.kernel, prior.mean)
            return state.started(X, y, r, self.actions.made_for(problem), prior)
        budget = self.actions.budget()
        S2, limit = batch_actions(X, self.append, budget), self.max_actions
        current = replace(self._factored_state(prior), history=state.history)
        return current.appended(X, y, r, S2, prior, limit, budget or limit or 0)

    def _prior(self) -> Prior:
        """The prior under the current hyperparameters, differentiable."""
        known = numbers_of(self.covar_module, self.likelihood, self.mean_module)
        own = known.to(self._like)
        return Prior(self.covar_module, self._prior_mean(), self._noise_scale(), own)

    def _problem(self) -> RegressionProblem:
        """All data under the current hyperparameters, differentiable."""
        return self.state.problem(self._prior())

    def _factored_state(self, prior: Prior | None = None) -> CaGPState:
        """The state factored under the current hyperparameters: O(n^2) if they have changed."""
        prior, state = prior or self._prior(), self.state
        if state.size == 0 or state.factored_under(prior):
            return cast(CaGPState, state)
        return self._factored.made(self._key(), lambda: state.refactored(self.actions, prior))

    def _current_actions(self) -> ActionMatrix:
        """The actions under the current hyperparameters."""
        return cast(CaGPState, self.state).current_actions(self.actions, self._prior())

    def _build_process(self, state: CaGPState) -> Process:
        state = self._factored_state()
        problem = state.problem(self._prior())
        mean = problem.mean.detach().clone()
        u = state.S.transpose_times(state.Y - mean)
        w = torch.linalg.solve_triangular(state.L, u[:, None], upper=False)[:, 0]
        kernel = frozen_kernel(self.covar_module)
        basis = ActionBasis(kernel, state.X, state.S, problem.noise)
        process = Process(kernel, basis, state.L[None], None, w[None], mean.reshape(1))
        warn_if_missed(process, state.X, state.Y[None], problem.noise[None])
        return process

    def log_evidence(self) -> Tensor:
        """The evidence lower bound [CaGP, eq. 11], without priors.

        0-dim, with all constants, differentiable. O(n^2) kernel values, O(n i^2) time.
        """
        return self._problem().bound(self._current_actions())[0]

    def projected_log_likelihood(self) -> Tensor:
        """Log density of the projected data S'y, S normalised [CaGP, eq. 9], without priors."""
        return self._problem().bound(self._current_actions(), "projected")[0]

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """The bound for the current actions."""
        return self._problem().bound(self.state.S, profile_mean=profile_mean)

    def make_mll(self, loss: Loss = "elbo") -> ActionMLL:
        """The objective of `fit_gpytorch_mll`; see `ActionMLL` for ``loss``."""
        return ActionMLL(self, loss)

    def _search(self, max_evals: int | None) -> FitReport:
        """Hyperparameters and, for learned actions, the values of S.

        With many more data than actions and a rough function, the bound attributes to noise what
        the actions cannot resolve, so that noise and lengthscales are overestimated. Then
        hyperparameters learned earlier, from fewer data, predict better. If values are learned,
        the fit runs for at most 200 evaluations by default.
        """
        return fit_actions(self, max_evals)

    @all_or_nothing
    def _use_actions(self, S: ActionMatrix) -> None:
        """Replace the actions (``n x i``, columns of length one)."""
        self._replace(state=self.state.with_actions(S))

    def _keep_history(self, history: FitHistory) -> None:
        self._note(state=replace(self.state, history=history))

    @property
    def refit_due(self) -> bool:
        """Whether the schedule asks for a `fit`; call it after each `observe`."""
        return self.state.history.refit_due(self.schedule, self.num_observed)
