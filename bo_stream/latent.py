"""Laws of the latent function at a set of points, in the factor forms the families share.

A family's `Predictor` is a frozen snapshot: detached state, a detached copy of the kernel. It is
differentiable in the points only, so a posterior, a fantasy or a conditioned posterior built on it
keeps its meaning when the surrogate it came from observes more data.

Shapes: points ``batch x q x d`` in transformed space, float64. The output dimension ``o`` (the
    number of independent
outputs) is always there and stands just before the point dimensions: means ``batch x o x q``,
covariances ``batch x o x q x q'``.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator, MatmulLinearOperator
from torch import Size, Tensor

__all__ = ["FactorLatent", "Latent", "Path", "Predictor", "frozen_kernel"]

Path = Callable[[Tensor], Tensor]
"""Sample functions: points ``batch x q x d`` to values ``batch' x o x q``, where ``batch'`` is
``batch`` broadcast with ``sample_shape``, as in BoTorch: points may differ between samples."""

L = TypeVar("L", bound="Latent")


class Latent(ABC):
    """The joint Gaussian law of the latent function at one set of points, under one predictor."""

    mean: Tensor

    @abstractmethod
    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``."""

    @abstractmethod
    def covariance(self: L, other: L) -> Tensor:
        """Covariance with another law of the same predictor, ``batch x o x q x q'``; batches
        broadcast.
        """

    def times(self: L, other: L, M: Tensor) -> Tensor:
        """Covariance with another law times ``M`` (``o x q' x k``): ``batch x o x q x k``."""
        return self.covariance(other) @ M

    def operator(self) -> LinearOperator:
        """The covariance ``batch x o x q x q`` as an operator whose diagonal is cheap."""
        return to_linear_operator(self.covariance(self))


class Predictor(Protocol):
    """A frozen posterior process; `latent` gives its law at any points, `path` draws sample
    functions.
    """

    def latent(self, X: Tensor) -> Latent:
        """The law at points ``batch x q x d``."""
        ...

    def path(self, sample_shape: Size) -> Path:
        """Sample functions, ``sample_shape`` of them, that can be evaluated anywhere."""
        ...


def frozen_kernel(kernel: Kernel) -> Kernel:
    """A float64 copy of the kernel that no gradient and no later assignment reaches."""
    return copy.deepcopy(kernel).requires_grad_(False).double().eval()


def cross_kernel(kernel: Kernel, X: Tensor, Z: Tensor) -> Tensor:
    """Kernel values ``batch x o x q x q'`` between ``batch x q x d`` and ``batch x q' x d``."""
    return kernel(X.unsqueeze(-3), Z.unsqueeze(-3)).to_dense()


@dataclass(frozen=True)
class FactorLatent(Latent):
    """Law with covariance ``k(x, z) - A_x' A_z + V_x' V_z``: exact GP, O-SGPR, CaGP.

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

    def covariance(self, other: FactorLatent) -> Tensor:
        """Covariance with another law of the same predictor."""
        if self.X.ndim > 2 and other.X.ndim == 2:
            shape = self.X.shape[:-1]
            return self._flat().covariance(other).unflatten(-2, shape).movedim(0, -3)
        cov = cross_kernel(self.kernel, self.X, other.X) - self.minus.mT @ other.minus
        if self.plus is None or other.plus is None:
            return cov
        return cov + self.plus.mT @ other.plus

    def times(self, other: FactorLatent, M: Tensor) -> Tensor:
        """Covariance with another law times ``M``, without the product of the factors."""
        if self.X.ndim > 2:
            return super().times(other, M)
        product = cross_kernel(self.kernel, self.X, other.X) @ M
        product = product - self.minus.mT @ (other.minus @ M)
        if self.plus is None or other.plus is None:
            return product
        return product + self.plus.mT @ (other.plus @ M)

    def _flat(self) -> FactorLatent:
        """The same points as one set: a product with a large unbatched law is then one product."""
        X = self.X.reshape(-1, self.X.shape[-1])
        minus = _flatten(self.minus.mT).mT
        plus = None if self.plus is None else _flatten(self.plus.mT).mT
        return FactorLatent(_flatten(self.mean.unsqueeze(-1))[..., 0], X, self.kernel, minus, plus)

    def operator(self) -> LinearOperator:
        """The covariance as an operator whose diagonal is cheap."""
        cov = self.kernel(self.X.unsqueeze(-3)) + MatmulLinearOperator(-self.minus.mT, self.minus)
        return cov if self.plus is None else cov + MatmulLinearOperator(self.plus.mT, self.plus)


def _flatten(rows: Tensor) -> Tensor:
    """``batch x o x q x k`` to ``o x (batch q) x k``."""
    return rows.movedim(-3, 0).flatten(1, -2)


def chol_psd(C: Tensor) -> Tensor:
    """Lower Cholesky factor of a covariance; a singular one gets jitter of 1e-10 of its mean
    diagonal, once.
    """
    L, info = torch.linalg.cholesky_ex(C)
    if not bool(info.any()):
        return L
    scale = C.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    eye = torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)
    return torch.linalg.cholesky(C + 1e-10 * scale * eye)
