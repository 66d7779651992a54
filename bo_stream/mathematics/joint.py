"""The joint Gaussian of the latent function at some points, in the form of each family.

Shapes: points ``batch x q x d`` in transformed space, float64. The output dimension ``o`` (the
number of independent outputs) is always present, just before the point dimensions: means ``batch x
o x q``, covariances ``batch x o x q x q'``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator, MatmulLinearOperator
from torch import Tensor

from bo_stream.mathematics.kernels import cross_kernel
from bo_stream.mathematics.lasting import lasting_property

__all__ = ["FactorGaussian", "JointGaussian", "products", "solved_rows"]

L = TypeVar("L", bound="JointGaussian")


class JointGaussian(ABC):
    """The joint Gaussian of the latent function at one set of points under one process."""

    mean: Tensor

    @abstractmethod
    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``."""

    @abstractmethod
    def covariance(self: L, other: L) -> Tensor:
        """Covariance with the values at other points, ``batch x o x q x q'``; batches
        broadcast.
        """

    def times(self: L, other: L, M: Tensor) -> Tensor:
        """Covariance with the values at other points times M (``o x q' x k``)."""
        return self.covariance(other) @ M

    @abstractmethod
    def joined(self: L, other: L) -> L:
        """The joint Gaussian at the points of both, which have no batch."""

    def operator(self) -> LinearOperator:
        """The covariance ``batch x o x q x q`` as an operator whose diagonal is cheap."""
        return to_linear_operator(self.covariance(self))


@dataclass(frozen=True)
class FactorGaussian(JointGaussian):
    """Joint posterior with covariance ``k(x, z) - a_x'a_z + V_x'V_z``, ``V_x = L^-1 a_x``.

    Without a kernel the prior is ``a_x'a_z``, and the covariance ``V_x'V_z``; without L, ``V`` is
    zero.

    Attributes:
        mean: ``batch x o x q``.
        X: Points, ``batch x q x d``.
        kernel: The prior's kernel, frozen, or None.
        rows: ``a``, ``batch x o x q x r``.
        L: Lower triangular, ``o x r x r``, or None.
    """

    mean: Tensor
    X: Tensor
    kernel: Kernel | None
    rows: Tensor
    L: Tensor | None = None

    @lasting_property
    def plus(self) -> Tensor | None:
        """``V``, ``batch x o x q x r``: O(r^2) per point, in one solve for the whole batch."""
        if self.L is None:
            return self.rows if self.kernel is None else None
        return solved_rows(self.L, self.rows)

    @lasting_property
    def coefficients(self) -> Tensor:
        """``L^-T V``: coefficients of ``V_x'V_z`` as a function of x, ``batch x o x q x r``."""
        V = cast(Tensor, self.plus)
        return V if self.L is None else solved_rows(self.L.mT, V, upper=True)

    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``."""
        parts = [] if self.plus is None else [self.plus.square().sum(-1)]
        if self.kernel is not None:
            prior = self.kernel(self.X.unsqueeze(-3), diag=True)
            parts.insert(0, prior - self.rows.square().sum(-1))
        return sum(parts[1:], parts[0])

    def covariance(self, other: FactorGaussian) -> Tensor:
        """Covariance with the values at other points."""
        if self.X.ndim > 2 and other.X.ndim == 2:
            shape = self.X.shape[:-1]
            return self._flat().covariance(other).unflatten(-2, shape).movedim(0, -3)
        cov: Tensor | None = None
        if self.kernel is not None:
            cov = cross_kernel(self.kernel, self.X, other.X) - self.rows @ other.rows.mT
        if self.plus is not None and other.plus is not None:
            positive = self.plus @ other.plus.mT
            cov = positive if cov is None else cov + positive
        return torch.as_tensor(cov)

    def times(self, other: FactorGaussian, M: Tensor) -> Tensor:
        """Covariance with the values at other points times M, without the full covariance."""
        if self.X.ndim > 2:
            return super().times(other, M)
        product: Tensor | None = None
        if self.kernel is not None:
            product = cross_kernel(self.kernel, self.X, other.X) @ M
            product = product - self.rows @ (other.rows.mT @ M)
        if self.plus is not None and other.plus is not None:
            positive = self.plus @ (other.plus.mT @ M)
            product = positive if product is None else product + positive
        return torch.as_tensor(product)

    def joined(self, other: FactorGaussian) -> FactorGaussian:
        """The joint posterior at the points of both, which have no batch."""
        mean, X = torch.cat([self.mean, other.mean], -1), torch.cat([self.X, other.X])
        rows = torch.cat([self.rows, other.rows], -2)
        both = FactorGaussian(mean, X, self.kernel, rows, self.L)
        for name in ("plus", "coefficients"):
            if self.L is not None and name in vars(self):
                vars(both)[name] = torch.cat([getattr(self, name), getattr(other, name)], -2)
        return both

    def _flat(self) -> FactorGaussian:
        """The same points without batch, so that a product with many points is one product."""
        X, mean = self.X.reshape(-1, self.X.shape[-1]), flattened(self.mean.unsqueeze(-1))[..., 0]
        flat = FactorGaussian(mean, X, self.kernel, flattened(self.rows), self.L)
        if self.plus is not None:
            vars(flat)["plus"] = flattened(self.plus)
        return flat

    def operator(self) -> LinearOperator:
        """The covariance as an operator whose diagonal is cheap."""
        parts = [] if self.plus is None else [MatmulLinearOperator(self.plus, self.plus.mT)]
        if self.kernel is not None:
            prior = self.kernel(self.X.unsqueeze(-3))
            parts.insert(0, prior + MatmulLinearOperator(-self.rows, self.rows.mT))
        return sum(parts[1:], parts[0])


def solved_rows(L: Tensor, rows: Tensor, *, upper: bool = False) -> Tensor:
    """``L^-1 a`` for rows a, ``batch x o x q x r``, and triangular L, ``o x r x r``.

    A single triangular solve for the whole batch, since a batched one would copy the factor.
    """
    shape = rows.shape[:-3], rows.shape[-2]
    flat = torch.linalg.solve_triangular(L.mT, flattened(rows), upper=not upper, left=False)
    return flat.unflatten(-2, (*shape[0], shape[1])).movedim(0, -3)


def products(rows: Tensor, others: Tensor) -> Tensor:
    """``A B`` for ``batch x o x q x k`` and ``o x k x p``: a single product for the whole batch,
    since a batched one would copy B.
    """
    if rows.ndim == 3 or others.ndim > 3:
        return rows @ others
    shape = rows.shape[:-3], rows.shape[-2]
    product = flattened(rows) @ others
    return product.unflatten(-2, (*shape[0], shape[1])).movedim(0, -3)


def flattened(rows: Tensor) -> Tensor:
    """``batch x o x q x k`` to ``o x (batch q) x k``."""
    return rows.movedim(-3, 0).flatten(1, -2)
