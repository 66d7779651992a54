"""The prior of a Gaussian process on data nodes, with frozen hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.kernels import cross_kernel
from bo_stream.mathematics.linalg import chol_psd, with_jitter

__all__ = ["NodePrior", "Projection", "node_root"]

LEAST_REPAIR = 1e-13
"""Jitter, as a share of the mean diagonal, for a factorisation that fails by rounding."""


@dataclass(frozen=True)
class NodePrior:
    """The current hyperparameters.

    Attributes:
        kernel: Frozen, float64; with or without one batch dimension of the outputs.
        s2: Scale of the noise held in the state, ``o``.
        mean: Constant prior means, ``o``.
    """

    kernel: Kernel
    s2: Tensor
    mean: Tensor

    def between(self, X: Tensor, Z: Tensor) -> Tensor:
        """Kernel values, ``o x q x q'``."""
        K = cross_kernel(self.kernel, X, Z)
        return K.expand(len(self.s2), -1, -1)

    def variances(self, X: Tensor) -> Tensor:
        """Prior variances, ``o x q``."""
        return self.kernel(X.unsqueeze(-3), diag=True).reshape(-1, len(X)).expand(len(self.s2), -1)


def node_root(K: Tensor) -> Tensor:
    """Cholesky factor of the kernel matrix of nodes, ``o x m x m``; with jitter only if it fails.

    The error of the posterior is that of the matrix factorised, however K is conditioned, because
    ``R^-1`` is applied to columns of kernels only (MATHS 2.3).
    """
    L, info = torch.linalg.cholesky_ex(K)
    return chol_psd(with_jitter(K, LEAST_REPAIR)) if bool(info.any()) else L


@dataclass(frozen=True)
class Projection:
    """Projection of points on the nodes under the current hyperparameters.

    Attributes:
        K: Kernel matrix of the nodes, ``o x m x m``.
        L: Its root.
        G: Kernel of nodes and points, ``o x m x q``.
        W: Rows of the points, transposed: ``K^-1 G``.
        rho: Conditional variances of the points, ``o x q``.
        variances: Their prior variances, ``o x q``.
    """

    K: Tensor
    L: Tensor
    G: Tensor
    W: Tensor
    rho: Tensor
    variances: Tensor

    @classmethod
    def of(cls, prior: NodePrior, Z: Tensor, X: Tensor) -> Self:
        """O(m^3 + q m^2)."""
        K, G, variances = prior.between(Z, Z), prior.between(Z, X), prior.variances(X)
        L = node_root(K)
        a = torch.linalg.solve_triangular(L, G, upper=False)
        W = torch.linalg.solve_triangular(L.mT, a, upper=True)
        return cls(K, L, G, W, variances - a.square().sum(-2), variances)
