"""Joint posteriors of kernel methods: the prior covariance minus and plus products of factors."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from gpytorch.kernels import Kernel
from linear_operator.operators import LinearOperator, MatmulLinearOperator
from torch import Tensor

from bo_stream.mathematics.posterior.gaussian import JointGaussian
from bo_stream.mathematics.smooth_matern import smoothed

__all__ = ["FactorGaussian", "cross_kernel", "frozen_kernel"]


def frozen_kernel(kernel: Kernel) -> Kernel:
    """A detached float64 copy of the kernel, with second derivatives."""
    return smoothed(copy.deepcopy(kernel).requires_grad_(False).double().eval())


def cross_kernel(kernel: Kernel, X: Tensor, Z: Tensor) -> Tensor:
    """Kernel values ``batch x o x q x q'`` between ``batch x q x d`` and ``batch x q' x d``."""
    return kernel(X.unsqueeze(-3), Z.unsqueeze(-3)).to_dense()


@dataclass(frozen=True)
class FactorGaussian(JointGaussian):
    """Joint posterior with covariance ``k(x, z) - A_x' A_z + V_x' V_z``: exact GP, O-SGPR, CaGP.

    Attributes:
        mean: ``batch x o x q``.
        X: Points, ``batch x q x d``.
        kernel: The prior's kernel, frozen.
        minus: ``A``, ``batch x o x r x q``.
        plus: ``V``, ``batch x o x r' x q``, or None.
    """

    mean: Tensor
    X: Tensor
    kernel: Kernel
    minus: Tensor
    plus: Tensor | None = None

    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``."""
        variance = self.kernel(self.X.unsqueeze(-3), diag=True) - self.minus.square().sum(-2)
        return variance if self.plus is None else variance + self.plus.square().sum(-2)

    def covariance(self, other: FactorGaussian) -> Tensor:
        """Covariance with the values at other points."""
        if self.X.ndim > 2 and other.X.ndim == 2:
            shape = self.X.shape[:-1]
            return self._flat().covariance(other).unflatten(-2, shape).movedim(0, -3)
        cov = cross_kernel(self.kernel, self.X, other.X) - self.minus.mT @ other.minus
        if self.plus is None or other.plus is None:
            return cov
        return cov + self.plus.mT @ other.plus

    def times(self, other: FactorGaussian, M: Tensor) -> Tensor:
        """Covariance with the values at other points times M, without the full covariance."""
        if self.X.ndim > 2:
            return super().times(other, M)
        product = cross_kernel(self.kernel, self.X, other.X) @ M
        product = product - self.minus.mT @ (other.minus @ M)
        if self.plus is None or other.plus is None:
            return product
        return product + self.plus.mT @ (other.plus @ M)

    def _flat(self) -> FactorGaussian:
        """The same points without batch, so that a product with many points is one product."""
        X = self.X.reshape(-1, self.X.shape[-1])
        minus = _flatten(self.minus.mT).mT
        plus = None if self.plus is None else _flatten(self.plus.mT).mT
        return FactorGaussian(
            _flatten(self.mean.unsqueeze(-1))[..., 0], X, self.kernel, minus, plus
        )

    def operator(self) -> LinearOperator:
        """The covariance as an operator whose diagonal is cheap."""
        cov = self.kernel(self.X.unsqueeze(-3)) + MatmulLinearOperator(-self.minus.mT, self.minus)
        return cov if self.plus is None else cov + MatmulLinearOperator(self.plus.mT, self.plus)


def _flatten(rows: Tensor) -> Tensor:
    """``batch x o x q x k`` to ``o x (batch q) x k``."""
    return rows.movedim(-3, 0).flatten(1, -2)
