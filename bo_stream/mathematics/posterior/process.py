"""The posterior of a family as a frozen process.

A `PosteriorProcess` is a snapshot with a detached state and a detached copy of the kernel. It is
differentiable in the points only, and stays the same when its surrogate observes more data.
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
            previous: The integral under another process of the same surrogate, whose parts that do
                not depend on the process are reused.
        """
        return PointIntegral.over(self.at, points, weights)

    def pool(self, X: Tensor, points: Tensor, weights: Tensor) -> PoolSums | None:
        """Variances and sums for a pool of candidates, if the family keeps their covariances.

        Args:
            X: Candidates, ``N x d``, transformed space.
            points: Points summed over, ``P x d``, transformed space; none for variances only.
            weights: ``P``.

        Returns:
            None if joint posteriors and `integral` are to be used instead.
        """
        return None

    def moments(self, X: Tensor, *, slopes: bool) -> Moments | None:
        """Mean and covariance at points ``batch x q x d``, with derivatives in closed form.

        Args:
            X: Points; their graph is not followed.
            slopes: Whether to return derivatives.

        Returns:
            None if unsupported, or for several outputs: use `at`.
        """
        return None

    def follow(self, before: PosteriorProcess) -> None:  # noqa: B027
        """Take over what an earlier process of the same surrogate kept, under the same
        hyperparameters.
        """
