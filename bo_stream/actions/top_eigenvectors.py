"""The top eigenvectors of the kernel matrix as actions, for comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.actions.policy import CountedActions
from bo_stream.mathematics.computation_aware.matrix import DenseMatrix
from bo_stream.mathematics.computation_aware.products import kernel_block


@dataclass(frozen=True)
class TopEigenvectors(CountedActions):
    """S spans the eigenvectors of K(X, X) of the i largest eigenvalues.

    Args:
        num_actions: Number i of actions; min(i, n) are used. O(n^3) time and, unlike all others,
            O(n^2) memory.
    """

    follows_hyperparameters: ClassVar[bool] = True

    def build(self, X: Tensor, e: Tensor, noise: Tensor, kernel: Kernel) -> DenseMatrix:
        """S with orthonormal columns, a constant of every gradient."""
        i = min(self.num_actions, X.shape[0])
        with torch.no_grad():
            vectors = torch.linalg.eigh(kernel_block(kernel, X, X))[1]
        return DenseMatrix(vectors[:, vectors.shape[1] - i :].flip(-1).contiguous())
