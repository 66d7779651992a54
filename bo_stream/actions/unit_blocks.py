"""Fixed block averages: block-sparse actions without learned values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.actions.block_sparse import scaled
from bo_stream.actions.policy import Actions, check_num_actions
from bo_stream.mathematics.computation_aware.locality import locality_blocks
from bo_stream.mathematics.computation_aware.matrix import BlockMatrix


@dataclass(frozen=True)
class UnitBlocks(Actions):
    """Normalised averages over the cells of a k-d tree.

    Args:
        num_actions: Number i of actions; min(i, n) are used.
    """

    num_actions: int

    def __post_init__(self) -> None:
        check_num_actions(self.num_actions)

    def budget(self) -> int:
        """The number of actions."""
        return self.num_actions

    @property
    def ordered_by_locality(self) -> bool:
        """Yes."""
        return True

    def build(self, X: Tensor, e: Tensor, noise: Tensor, kernel: Kernel) -> BlockMatrix:
        """S with equal values in a block."""
        block = locality_blocks(scaled(X, kernel), self.num_actions)
        ones = torch.ones(X.shape[0], dtype=X.dtype, device=X.device)
        return BlockMatrix(block, ones, min(self.num_actions, X.shape[0])).normalised()
