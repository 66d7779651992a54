"""What every family's posterior is: a frozen process, and its joint Gaussian law at given points.

A family's `PosteriorProcess` is a snapshot: detached state, a detached copy of the kernel. It is
differentiable in the points only, so a posterior, a fantasy or a conditioned posterior built on it
keeps its meaning when the surrogate it came from observes more data.

Shapes: points ``batch x q x d`` in transformed space, float64. The output dimension ``o`` (the
number of independent outputs) is always there and stands just before the point dimensions: means
``batch x o x q``, covariances ``batch x o x q x q'``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, TypeVar

from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Size, Tensor

__all__ = ["JointGaussian", "Path", "PosteriorProcess"]


Path = Callable[[Tensor], Tensor]
"""Sample functions: points ``batch x q x d`` to values ``batch' x o x q``, where ``batch'`` is
``batch`` broadcast with ``sample_shape``, as in BoTorch: points may differ between samples."""


L = TypeVar("L", bound="JointGaussian")


class JointGaussian(ABC):
    """The joint Gaussian law of the latent function at one set of points, under one process."""

    mean: Tensor

    @abstractmethod
    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``."""

    @abstractmethod
    def covariance(self: L, other: L) -> Tensor:
        """Covariance with another law of the same process, ``batch x o x q x q'``; batches
        broadcast.
        """

    def times(self: L, other: L, M: Tensor) -> Tensor:
        """Covariance with another law times ``M`` (``o x q' x k``): ``batch x o x q x k``."""
        return self.covariance(other) @ M

    def operator(self) -> LinearOperator:
        """The covariance ``batch x o x q x q`` as an operator whose diagonal is cheap."""
        return to_linear_operator(self.covariance(self))


class PosteriorProcess(Protocol):
    """A frozen posterior process; `at` gives its law at any points, `path` draws sample
    functions.
    """

    def at(self, X: Tensor) -> JointGaussian:
        """The law at points ``batch x q x d``."""
        ...

    def path(self, sample_shape: Size) -> Path:
        """Sample functions, ``sample_shape`` of them, that can be evaluated anywhere."""
        ...
