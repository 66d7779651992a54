"""What an action policy is: a frozen choice of how the action matrix S comes from the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.projection.matrix import ActionMatrix


@dataclass(frozen=True)
class Actions(ABC):
    """A policy that chooses actions.

    Attributes:
        learned: Whether a fit learns the values of S along with the hyperparameters.
        follows_hyperparameters: Whether S is a function of the hyperparameters, made anew when they
            change.
    """

    learned: ClassVar[bool] = False
    follows_hyperparameters: ClassVar[bool] = False

    @property
    def ordered_by_locality(self) -> bool:
        """Whether S comes from an order of rows in units of the kernel's lengthscales."""
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

    def budget(self) -> int | None:
        """How many actions a stream may hold before they are compressed; None: no limit."""
        return None


def check_num_actions(num_actions: int) -> None:
    """Refuse anything but a positive whole number.

    Raises:
        InputError: accordingly.
    """
    if not isinstance(num_actions, int) or isinstance(num_actions, bool) or num_actions < 1:
        raise InputError(
            "num_actions >= 1, an int", f"{num_actions!r}", "Give the number of actions."
        )


def split_blocks(n: int, num_actions: int, device: torch.device) -> Tensor:
    """Block indices of n rows in order, cut like `numpy.array_split` (longer blocks first)."""
    i = min(num_actions, n)
    if i == 0:
        return torch.empty(0, dtype=torch.int64, device=device)
    short, longer = divmod(n, i)
    sizes = torch.full((i,), short, device=device)
    sizes[:longer] += 1
    return torch.repeat_interleave(torch.arange(i, device=device), sizes)
