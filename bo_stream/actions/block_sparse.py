"""Block-sparse actions with learned values: CaGP-Opt.

[CaGP, section 4.2, eqs. 13, 14; MATHS 5.3]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.actions.policy import CountedActions
from bo_stream.errors import InputError, ShapeError
from bo_stream.mathematics.computation_aware.locality import locality_blocks, split_blocks
from bo_stream.mathematics.computation_aware.matrix import BlockMatrix


@dataclass(frozen=True, eq=False)
class BlockSparse(CountedActions):
    """One action for each block of rows, with values learned along with the hyperparameters.

    Args:
        num_actions: Number i of actions; min(i, n) are used, so that up to i points the model is
            the exact GP.
        values: A flat n-vector in data order, the starting values of S; it implies
            ``order="given"``. By default 1/sqrt(k) plus a seeded perturbation, so that learning
            can distinguish the rows of a block.
        order: ``"locality"`` puts neighbours in space into one block (cells of a k-d tree in the
            units of the kernel's lengthscales); ``"given"`` divides the rows in data order.
        seed: Seed of the perturbation.

    Example:
        >>> from bo_stream.actions import BlockSparse
        >>> BlockSparse(64).num_actions
        64
    """

    values: Tensor | None = None
    order: Literal["locality", "given"] = "locality"
    seed: int = 0

    learned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order not in ("locality", "given"):
            raise InputError(
                'order "locality" or "given"', f"{self.order!r}", "Choose one of the two."
            )
        if self.values is not None:
            object.__setattr__(self, "order", "given")
            object.__setattr__(self, "values", self.values.detach().clone().double())

    @property
    def by_locality(self) -> bool:
        """Whether ``order`` is ``"locality"``."""
        return self.order == "locality"

    def build(self, X: Tensor, e: Tensor, noise: Tensor, kernel: Kernel) -> BlockMatrix:
        """S for the data.

        Raises:
            ShapeError: unless there is one value for each row of X.
            InputError: if a block's values are all zero or not finite.
        """
        n = X.shape[0]
        if self.order == "given":
            block = split_blocks(n, self.num_actions, X.device)
        else:
            block = locality_blocks(scaled(X, kernel), self.num_actions)
        S = BlockMatrix(block, self._start(X), min(self.num_actions, n))
        if n and not bool((S.gram(torch.ones_like(S.values)).diagonal() > 0).all()):
            raise InputError(
                "values finite and not all zero in any block",
                "a block of zeros or NaN",
                "Give every block at least one value.",
            )
        return S.normalised()

    def _start(self, X: Tensor) -> Tensor:
        n = X.shape[0]
        if self.values is None:
            generator = torch.Generator().manual_seed(self.seed)
            noise = torch.randn(n, generator=generator, dtype=torch.float64)
            return (1.0 + 0.1 * noise).to(X.device)
        if self.values.shape != (n,):
            raise ShapeError(
                f"{n} values, one a row",
                f"{tuple(self.values.shape)}",
                "Give a flat vector in the order of the data, or leave `values` out.",
            )
        return self.values.to(X.device)


def scaled(X: Tensor, kernel: Kernel) -> Tensor:
    """X in units of the kernel's lengthscales, if it has them (one, or one for each column)."""
    base = getattr(kernel, "base_kernel", kernel)
    lengthscale = getattr(base, "lengthscale", None)
    if lengthscale is None or lengthscale.numel() not in (1, X.shape[-1]):
        return X
    return X / lengthscale.detach().reshape(-1).to(X)
