"""Action policies: how the action matrix S is built from the data, and how it is fitted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix
from bo_stream.mathematics.computation_aware.problem import RegressionProblem


@dataclass(frozen=True, eq=False)
class Actions(ABC):
    """A policy that chooses actions.

    Attributes:
        learned: Whether a fit learns the values of S along with the hyperparameters.
        follows_hyperparameters: Whether S is a function of the hyperparameters, built again when
            they change.
    """

    learned: ClassVar[bool] = False
    follows_hyperparameters: ClassVar[bool] = False

    @property
    def by_locality(self) -> bool:
        """Whether rows are divided into blocks of neighbours, in units of the lengthscales."""
        return False

    @abstractmethod
    def build(self, X: Tensor, e: Tensor, noise: Tensor, kernel: Kernel) -> ActionMatrix:
        """S for the data, with S'S = I.

        Args:
            X: ``n x d`` inputs in transformed space.
            e: ``n`` residuals y - c.
            noise: ``n`` noise variances.
            kernel: The prior's kernel.
        """

    def made_for(self, problem: RegressionProblem) -> ActionMatrix:
        """S for data under a prior, without gradient."""
        e, noise = problem.y - problem.mean.detach(), problem.noise.detach()
        return self.build(problem.X, e, noise, problem.kernel)

    def budget(self) -> int | None:
        """Number of actions above which a stream compresses them; None for no limit."""
        return None


@dataclass(frozen=True, eq=False)
class CountedActions(Actions):
    """A policy with a number of actions.

    Args:
        num_actions: Number i of actions; min(i, n) are used.

    Raises:
        InputError: unless it is a positive whole number.
    """

    num_actions: int

    def __post_init__(self) -> None:
        i = self.num_actions
        if not isinstance(i, int) or isinstance(i, bool) or i < 1:
            raise InputError("num_actions >= 1, an int", f"{i!r}", "Give the number of actions.")

    def budget(self) -> int:
        """The number of actions."""
        return self.num_actions


def most_actions(actions: object, append: str, max_actions: int | None) -> int | None:
    """The number of actions above which they are compressed; None for no limit.

    Raises:
        InputError: on invalid options.
    """
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
