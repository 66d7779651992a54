"""Some of the outputs of a posterior process."""

from __future__ import annotations

from dataclasses import dataclass

from linear_operator.operators import LinearOperator
from torch import Size, Tensor

from bo_stream.mathematics.posterior.gaussian import JointGaussian
from bo_stream.mathematics.posterior.integral import Integral
from bo_stream.mathematics.posterior.paths import Path
from bo_stream.mathematics.posterior.process import PosteriorProcess

__all__ = ["SubsetGaussian", "SubsetProcess"]


@dataclass(frozen=True)
class SubsetGaussian(JointGaussian):
    """Some of the outputs of a joint posterior."""

    base: JointGaussian
    index: list[int]

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        """Means, ``batch x len(index) x q``."""
        return self.base.mean[..., self.index, :]

    def variance(self) -> Tensor:
        """Marginal variances."""
        return self.base.variance()[..., self.index, :]

    def covariance(self, other: SubsetGaussian) -> Tensor:
        """Covariance with the values at other points."""
        return self.base.covariance(other.base)[..., self.index, :, :]

    def operator(self) -> LinearOperator:
        """The covariance as an operator whose diagonal is cheap."""
        return self.base.operator()[..., self.index, :, :]


@dataclass(frozen=True)
class SubsetProcess(PosteriorProcess):
    """Some of the outputs of a process."""

    base: PosteriorProcess
    index: list[int]

    def at(self, X: Tensor) -> SubsetGaussian:
        """The joint posterior at points ``batch x q x d``."""
        return SubsetGaussian(self.base.at(X), self.index)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions of the chosen outputs."""
        base = self.base.path(sample_shape)
        return lambda X: base(X)[..., self.index, :]

    def integral(self, points: Tensor, weights: Tensor) -> SubsetIntegral:
        """The base's sums, restricted to the outputs."""
        return SubsetIntegral(self.base.integral(points, weights), self.index)


@dataclass(frozen=True)
class SubsetIntegral:
    """Some of the outputs."""

    base: Integral
    index: list[int]

    @property
    def total(self) -> Tensor:
        """Weighted sum of the variances, ``batch x o``."""
        return self.base.total[..., self.index]

    def gram(self, a: SubsetGaussian, b: SubsetGaussian) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``."""
        left = a.base
        return self.base.gram(left, left if a is b else b.base)[..., self.index, :, :]

    def gram_diagonal(self, a: SubsetGaussian) -> Tensor:
        """The diagonal of ``gram(a, a)``."""
        return self.base.gram_diagonal(a.base)[..., self.index, :]
