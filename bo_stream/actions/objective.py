"""The objective of a computation-aware GP as a gpytorch module: a loss plus log priors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bo_stream.base.fitting.objective import StreamMLL, log_prior, profiled_mean
from bo_stream.errors import InputError, StateError
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix, BlockMatrix
from bo_stream.mathematics.computation_aware.problem import Loss, RegressionProblem

__all__ = ["ActionMLL", "Handle"]


@dataclass(frozen=True)
class Handle:
    """The surrogate's functions that an objective uses.

    Attributes:
        problem: The data under the current hyperparameters.
        actions: The actions in use, under the current hyperparameters.
        use: Makes the surrogate use actions (``n x i``, columns of length one).
        learned: Whether values of S are learned along with the hyperparameters.
    """

    problem: Callable[[], RegressionProblem]
    actions: Callable[[], ActionMatrix]
    use: Callable[[ActionMatrix], None]
    learned: bool


class ActionMLL(StreamMLL):
    """A CaGP's objective; its parameters are the hyperparameters and the values of S, if learned.

    The values are a copy, ``action_values``: `commit` writes them to the surrogate, as
    `fit_gpytorch_mll` does at the end.

    Args:
        model: The surrogate, whose hyperparameters are optimised.
        handle: Its data and actions.
        loss: ``"elbo"``, or ``"projected"``: the likelihood of S'y alone, for study.
        dtype: Working dtype of the kernel products; float32 is faster and exact to about 1e-6.
    """

    def __init__(
        self,
        model: Any,
        handle: Handle,
        loss: Loss = "elbo",
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(model)
        if loss not in ("elbo", "projected"):
            raise InputError('loss "elbo" or "projected"', f"{loss!r}", "Choose one of the two.")
        self.handle, self.loss, self.dtype = handle, loss, dtype
        self.action_values: nn.Parameter | None = None
        self._own: ActionMatrix | None = None
        self.refresh()

    @property
    def profiled(self) -> bool:
        """Whether the constant mean is at its optimum at every evaluation."""
        return self.loss == "elbo" and profiled_mean(self.model)

    def refresh(self) -> None:
        """Take the surrogate's current actions."""
        self._own = self.action_values = None
        if self.handle.learned:
            S = self.handle.actions()
            if isinstance(S, BlockMatrix) and S.num_actions < S.num_rows:
                self.hold(S)

    def hold(self, S: ActionMatrix) -> None:
        """Evaluate with these actions.

        Values to be learned are in units of 1/sqrt(block size), in which they are about one.
        """
        self._own, self.action_values = S, None
        if self.handle.learned and isinstance(S, BlockMatrix):
            self.action_values = nn.Parameter(S.values * _unit(S))

    def actions(self) -> ActionMatrix:
        """The actions in use with their current values, not normalised."""
        S, values = self._own, self.action_values
        if S is None:
            return self.handle.actions()
        if values is None or not isinstance(S, BlockMatrix):
            return S
        return BlockMatrix(S.block, values, S.num_actions)

    def chosen(self) -> ActionMatrix | None:
        """Its own actions, columns of length one; None if it uses the surrogate's."""
        S, values = self._own, self.action_values
        if values is None or not isinstance(S, BlockMatrix):
            return S
        return BlockMatrix(S.block, values.detach(), S.num_actions).normalised()

    def commit(self) -> None:
        """Write the actions, columns of length one, to the surrogate."""
        S = self.chosen()
        if S is not None:
            self.handle.use(S)

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        """The loss as a log likelihood, plus log priors, 0-dim."""
        return self.value(profile_mean=False)[0]

    def value(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """As `forward`, and with ``profile_mean`` the optimal constant mean, at which it is.

        Raises:
            StateError: if the covariance is not positive definite at these hyperparameters, or if
                the surrogate has observed data since the last `refresh`.
        """
        problem, S = self.handle.problem(), self.actions()
        if S.num_rows != len(problem.y):
            raise StateError(
                f"an objective of all {len(problem.y)} observations",
                f"one made when there were {S.num_rows}",
                "Call make_mll again after observe.",
            )
        value, best = problem.bound(S, self.loss, profile_mean, self.dtype)
        return value + log_prior(self.model), best


def _unit(S: BlockMatrix) -> Tensor:
    """Square root of each row's block size: values of a normalised S times this are about one."""
    ones = torch.ones_like(S.values)
    sizes = ones.new_zeros(S.num_actions).index_add(0, S.block, ones)
    return sizes[S.block].sqrt()
