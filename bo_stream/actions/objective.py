"""What a fit of a computation-aware GP climbs: a loss plus log priors, as gpytorch wants it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bo_stream.base.fitting.objective import StreamMLL, log_prior, profiled_mean
from bo_stream.errors import InputError, StateError
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix, BlockMatrix
from bo_stream.mathematics.computation_aware.problem import Loss, Problem

__all__ = ["ActionMLL", "Handle"]


@dataclass(frozen=True)
class Handle:
    """What a fit may ask of a surrogate, and what it may tell it.

    Attributes:
        problem: The data under the hyperparameters of now.
        actions: The actions in use, under the hyperparameters of now.
        use: Take these actions (``n x i``, columns of length one) from now on.
        learned: Whether values of S are climbed along with the hyperparameters.
    """

    problem: Callable[[], Problem]
    actions: Callable[[], ActionMatrix]
    use: Callable[[ActionMatrix], None]
    learned: bool


class ActionMLL(StreamMLL):
    """A CaGP's objective; its parameters are the hyperparameters and the values of S, if learned.

    The values are a copy, ``action_values``: `commit` writes them to the surrogate, as
    `fit_gpytorch_mll` does at the end.

    Args:
        model: The surrogate, whose hyperparameters are climbed.
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
        """Whether the constant mean takes its best value at every evaluation."""
        return self.loss == "elbo" and profiled_mean(self.model)

    def refresh(self) -> None:
        """Take the surrogate's actions anew."""
        self._own = self.action_values = None
        if self.handle.learned:
            S = self.handle.actions()
            if isinstance(S, BlockMatrix) and S.num_actions < S.num_rows:
                self.hold(S)

    def hold(self, S: ActionMatrix) -> None:
        """Judge hyperparameters by these actions from now on.

        Values to be learned are climbed in units of 1/sqrt(block size), in which they are about
        one.
        """
        self._own, self.action_values = S, None
        if self.handle.learned and isinstance(S, BlockMatrix):
            self.action_values = nn.Parameter(S.values * _unit(S))

    def actions(self) -> ActionMatrix:
        """The actions in use, with the values as they are now: columns of any length."""
        S, values = self._own, self.action_values
        if S is None:
            return self.handle.actions()
        if values is None or not isinstance(S, BlockMatrix):
            return S
        return BlockMatrix(S.block, values, S.num_actions)

    def chosen(self) -> ActionMatrix | None:
        """Actions of its own, as they are now, columns of length one; None if it has none."""
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
        """As `forward`; with ``profile_mean`` at the best constant mean, which comes second.

        Raises:
            StateError: if the covariance is not positive definite at these hyperparameters, or if
                the surrogate has observed data since it was last asked for its actions.
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
