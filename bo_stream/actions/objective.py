"""The objective of a computation-aware GP as a gpytorch module: a loss plus log priors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from torch import Tensor, nn

from bo_stream.actions.history import FitHistory
from bo_stream.actions.policy import Actions
from bo_stream.actions.state import CaGPState
from bo_stream.base.fitting.objective import Fittable, StreamMLL, log_prior
from bo_stream.errors import InputError, StateError
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix, BlockMatrix
from bo_stream.mathematics.computation_aware.problem import Loss, Prior, RegressionProblem

__all__ = ["ActionMLL", "ActionModel"]


class ActionModel(Fittable, Protocol):
    """The interface that objective and fit require of a `CaGP`, besides that of all families."""

    actions: Actions

    @property
    def state(self) -> CaGPState:
        """The data, actions and history of fits."""
        ...

    def _prior(self) -> Prior: ...

    def _problem(self) -> RegressionProblem: ...

    def _current_actions(self) -> ActionMatrix: ...

    def _use_actions(self, S: ActionMatrix) -> None: ...

    def _keep_history(self, history: FitHistory) -> None: ...


class ActionMLL(StreamMLL):
    """A CaGP's objective; its parameters are the hyperparameters and the values of S, if learned.

    The values are a copy, ``action_values``: `commit` writes them to the surrogate, as
    `fit_gpytorch_mll` does at the end. Values that are not learned are the surrogate's.

    Args:
        model: The surrogate, whose hyperparameters are optimised.
        loss: ``"elbo"``, or ``"projected"``: the likelihood of S'y alone, for study.

    Raises:
        InputError: for another loss.
    """

    model: ActionModel
    action_values: nn.Parameter | None

    def __init__(self, model: ActionModel, loss: Loss = "elbo") -> None:
        super().__init__(model)
        if loss not in ("elbo", "projected"):
            raise InputError('loss "elbo" or "projected"', f"{loss!r}", "Choose one of the two.")
        self.loss = loss
        self.refresh()

    def refresh(self) -> None:
        """Take the surrogate's current actions."""
        self._blocks: BlockMatrix | None = None
        self.action_values = None
        if self.model.actions.learned:
            self.hold(self.model._current_actions())

    def hold(self, S: ActionMatrix) -> None:
        """Evaluate with other blocks, if there are fewer than rows, and learn their values.

        These are in units of 1/sqrt(block size), in which they are about one.
        """
        if isinstance(S, BlockMatrix) and S.num_actions < S.num_rows:
            sizes = S.block.bincount()[S.block]
            self._blocks, self.action_values = S, nn.Parameter(S.values * sizes.sqrt())

    def commit(self) -> None:
        """Write learned values to the surrogate, with columns of length one."""
        if self._blocks is not None and self.action_values is not None:
            learned = replace(self._blocks, values=self.action_values.detach())
            self.model._use_actions(learned.normalised())

    def climb(self, optimizer: Callable[..., Any], options: Mapping[str, Any]) -> None:
        """Run a user's optimizer from the surrogate's actions, and write what it has learned."""
        self.refresh()
        super().climb(optimizer, options)
        self.commit()
        model = self.model
        model._keep_history(model.state.history.ended(model.num_observed, learned=True))

    def actions(self) -> ActionMatrix:
        """The actions in use with their current values; learned ones are not normalised."""
        if self._blocks is None or self.action_values is None:
            return self.model._current_actions()
        return replace(self._blocks, values=self.action_values)

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        """The loss as a log likelihood, plus log priors, 0-dim."""
        return self.value(profile_mean=False)[0]

    def value(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """As `forward`, and with ``profile_mean`` the optimal constant mean, at which it is.

        Raises:
            StateError: if the covariance is not positive definite at these hyperparameters, or if
                the surrogate has observed data since the last `refresh`.
        """
        problem, S = self.model._problem(), self.actions()
        if S.num_rows != len(problem.y):
            raise StateError(
                f"an objective of all {len(problem.y)} observations",
                f"one made when there were {S.num_rows}",
                "Call make_mll again after observe.",
            )
        value, best = problem.bound(S, self.loss, profile_mean)
        return value + log_prior(self.model), best
