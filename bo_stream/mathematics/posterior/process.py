"""What every family's posterior is: a frozen process.

A family's `PosteriorProcess` is a snapshot: detached state, a detached copy of the kernel. It is
differentiable in the points only, so a posterior, a fantasy or a conditioned posterior built on it
keeps its meaning when the surrogate it came from observes more data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Size, Tensor

from bo_stream.mathematics.posterior.gaussian import JointGaussian
from bo_stream.mathematics.posterior.integral import Integral, PointIntegral, PoolSums
from bo_stream.mathematics.posterior.moments import Moments

__all__ = ["Path", "PosteriorProcess"]

Path = Callable[[Tensor], Tensor]
"""Sample functions: points ``batch x q x d`` to values ``batch' x o x q``, where ``batch'`` is
``batch`` broadcast with ``sample_shape``, as in BoTorch: points may differ between samples."""


class PosteriorProcess(ABC):
    """A frozen posterior process over transformed points, float64."""

    @abstractmethod
    def at(self, X: Tensor) -> JointGaussian:
        """The joint Gaussian at points ``batch x q x d``."""

    @abstractmethod
    def path(self, sample_shape: Size) -> Path:
        """Sample functions, ``sample_shape`` of them, that can be evaluated anywhere."""

    def integral(
        self, points: Tensor, weights: Tensor, previous: Integral | None = None
    ) -> Integral:
        """Weighted sums over points of products of covariances:
        `bo_stream.mathematics.posterior.integral`.

        Args:
            points: ``P x d``, transformed space.
            weights: ``P``.
            previous: The same under another process of the same surrogate; what does not depend on
                the process is taken from it.
        """
        return PointIntegral.over(self.at, points, weights)

    def pool(self, X: Tensor, points: Tensor, weights: Tensor) -> PoolSums | None:
        """Variances and sums for a pool of candidates, where the family keeps what they take.

        Args:
            X: Candidates, ``N x d``, transformed space.
            points: Points summed over, ``P x d``, transformed space; none for variances only.
            weights: ``P``.

        Returns:
            None where laws and `integral` do as well.
        """
        return None

    def moments(self, X: Tensor, *, slopes: bool) -> Moments | None:
        """Mean and covariance at points ``batch x q x d``, with derivatives in closed form.

        Args:
            X: Points; what they depend on stays outside.
            slopes: Whether derivatives are wanted.

        Returns:
            None where the family has them not, or several outputs; ``at`` does as well.
        """
        return None

    def follow(self, before: PosteriorProcess) -> None:  # noqa: B027
        """Take over what an earlier process kept; same surrogate, same hyperparameters."""
