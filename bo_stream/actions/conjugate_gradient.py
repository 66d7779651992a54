"""The residuals of conjugate gradients as actions: CaGP-CG.  [CaGP, section 4.1; MATHS 5.3]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.actions.policy import CountedActions
from bo_stream.mathematics.computation_aware.matrix import DenseMatrix
from bo_stream.mathematics.computation_aware.products import KernelOperator

BREAKDOWN = 1e-10
"""CG has converged when a new direction is this small a share of the last product."""


@dataclass(frozen=True)
class ConjugateGradient(CountedActions):
    """S spans the residuals r_0 .. r_{i-1} of CG on (K + D) v = y - c from v_0 = 0.

    Residuals of CG are Lanczos vectors up to scale, and are computed as such, each orthogonalised
    twice against all earlier ones. The posterior mean is that of the CG iterate v_i: mean = c +
    k(x, X) v_i. There are fewer than i actions if CG converges earlier.

    Args:
        num_actions: Number i of actions. O(n^2 i) kernel values, O(n i) memory.
    """

    follows_hyperparameters: ClassVar[bool] = True

    def build(self, X: Tensor, e: Tensor, noise: Tensor, kernel: Kernel) -> DenseMatrix:
        """S with orthonormal columns, a constant of every gradient."""
        with torch.no_grad():
            i = min(self.num_actions, X.shape[0])
            S = X.new_zeros(X.shape[0], i)
            residual = e.detach() if bool(e.any()) else torch.ones_like(noise)
            before = residual.norm()
            K = KernelOperator(kernel, X)
            for j in range(i):
                length = residual.norm()
                if bool(length <= BREAKDOWN * before):
                    return DenseMatrix(S[:, :j])
                S[:, j] = residual / length
                residual = K.times(S[:, j]) + noise * S[:, j]
                before = residual.norm()
                for _ in range(2):
                    residual = residual - S[:, : j + 1] @ (S[:, : j + 1].mT @ residual)
            return DenseMatrix(S)
