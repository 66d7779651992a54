"""The posterior process of a computation-aware GP, frozen.  [CaGP, eq. 5; MATHS 5.1]"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.mathematics.computation_aware.matrix import ActionMatrix, BlockMatrix
from bo_stream.mathematics.computation_aware.products import cross_product
from bo_stream.mathematics.posterior.expansion import Expansion
from bo_stream.mathematics.posterior.factor import FactorGaussian
from bo_stream.mathematics.posterior.paths import prior_path
from bo_stream.mathematics.posterior.pool import ExpandedProcess
from bo_stream.mathematics.posterior.process import Path

__all__ = ["ProjectedProcess"]


@dataclass(frozen=True)
class ProjectedProcess(ExpandedProcess):
    """Posterior given S'y: mean ``c + A_x'w``, ``A_x = L^-1 S'k(X, x)``, ``w = L^-1 S'(y - c)``."""

    kernel: Kernel
    X: Tensor
    S: ActionMatrix
    L: Tensor
    w: Tensor
    noise: Tensor
    mean: Tensor

    def at(self, X: Tensor) -> FactorGaussian:
        """The joint Gaussian at points ``batch x q x d``: O(n + i^2) each."""
        KS = cross_product(self.kernel, X.reshape(-1, X.shape[-1]), self.X, self.S)
        A = torch.linalg.solve_triangular(self.L, KS.mT, upper=False)  # i x batch q
        mean = (self.mean + self.w @ A).reshape(*X.shape[:-2], 1, X.shape[-2])
        A = A.reshape(len(self.L), *X.shape[:-1]).movedim(0, -2).unsqueeze(-3)
        return FactorGaussian(mean, X, self.kernel, A)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions by Matheron's rule on random features of the prior."""
        prior = prior_path(self.kernel, self.X.shape[-1], self.mean, sample_shape, self.X)
        values = prior(self.X)
        noisy = values + self.noise.sqrt() * torch.randn_like(values) - self.mean
        u = self.S.transpose_times(noisy.reshape(sample_shape.numel(), -1).mT)
        gap = self.w[:, None] - torch.linalg.solve_triangular(self.L, u, upper=False)
        weights = torch.linalg.solve_triangular(self.L.mT, gap, upper=True)
        weights = weights.mT.reshape(*sample_shape, 1, len(self.L), 1)

        def sample(X: Tensor) -> Tensor:
            KS = cross_product(self.kernel, X.reshape(-1, X.shape[-1]), self.X, self.S)
            KS = KS.reshape(*X.shape[:-2], 1, X.shape[-2], len(self.L))
            return prior(X) + (KS @ weights)[..., 0]

        return sample

    def expansion(self, before: Expansion | None) -> Expansion:
        """In kernels at the data, projected."""
        S, L = self.S, self.L[None]
        actions = (S.block, S.values) if isinstance(S, BlockMatrix) else (S.S,)

        def values(X: Tensor, first: int) -> Tensor:
            used, some = S.later(first)
            return cross_product(self.kernel, X, self.X[used], some).mT[None]

        return Expansion(self.kernel, L, None, values, (self.X, L, *actions))
