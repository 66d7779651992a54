"""The joint Gaussian of the latent function at some points, in the form of each family.

Shapes: points ``batch x q x d`` in transformed space, float64. The output dimension ``o`` (the
number of independent outputs) is always present, just before the point dimensions: means ``batch x
o x q``, covariances ``batch x o x q x q'``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

__all__ = ["JointGaussian"]

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

    def joined(self: L, other: L) -> L:
        """The joint Gaussian at the points of both, which have no batch; for families whose
        posterior is conditioned on new data.
        """
        raise NotImplementedError

    def operator(self) -> LinearOperator:
        """The covariance ``batch x o x q x q`` as an operator whose diagonal is cheap."""
        return to_linear_operator(self.covariance(self))
