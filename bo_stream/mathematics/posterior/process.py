"""The posterior of a family as a frozen process.

A `PosteriorProcess` is a snapshot with a detached state and a detached copy of the kernel. It is
differentiable in the points only, and stays the same when its surrogate observes more data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Size, Tensor

from bo_stream.mathematics.lasting import lasting
from bo_stream.mathematics.posterior.gaussian import JointGaussian
from bo_stream.mathematics.posterior.integral import Integral, PointIntegral
from bo_stream.mathematics.posterior.moments import Moments
from bo_stream.mathematics.posterior.paths import Path, times

__all__ = ["Path", "PosteriorProcess"]


class PosteriorProcess(ABC):
    """A frozen posterior process over transformed points, float64."""

    @abstractmethod
    def at(self, X: Tensor) -> JointGaussian:
        """The joint Gaussian at points ``batch x q x d``."""

    @abstractmethod
    def path(self, sample_shape: Size) -> Path:
        """Sample functions, ``sample_shape`` of them, that can be evaluated anywhere."""

    @lasting
    def integral(self, points: Tensor, weights: Tensor) -> Integral:
        """Weighted sums over points of products of covariances, of which the last are kept:
        `bo_stream.mathematics.posterior.integral`.

        Args:
            points: ``P x d``, transformed space.
            weights: ``P``.
        """
        pair = points, weights
        kept: tuple[tuple[Tensor, Tensor], Integral] | None = vars(self).get("_kept_integral")
        if kept is not None and all(_same(a, b) for a, b in zip(kept[0], pair, strict=True)):
            return kept[1]
        pair = points.clone(), weights.clone()
        made = self._integral(*pair)
        vars(self)["_kept_integral"] = pair, made
        return made

    def _integral(self, points: Tensor, weights: Tensor) -> Integral:
        """As `integral`."""
        return PointIntegral.over(self.at, points, weights)

    @property
    def has_moments(self) -> bool:
        """Whether `moments` has values."""
        return False

    def moments(
        self, X: Tensor, *, slopes: bool, across: JointGaussian | None = None
    ) -> Moments | None:
        """Mean and covariance at points ``batch x q x d``, with derivatives in closed form.

        Args:
            X: Points; their graph is not followed.
            slopes: Whether to return derivatives.
            across: The joint posterior at p other points, to return covariances with them too.

        Returns:
            None if unsupported, or for several outputs: use `at`.
        """
        return None

    def mean_function(self) -> Path:
        """The posterior mean, ``batch x o x q`` at points ``batch x q x d``."""
        return lambda X: self.at(X).mean

    def plus(self, path: Path, at: Any, weights: Tensor) -> Path:
        """A function plus ``cov(x, z) w``.

        Args:
            path: A sample function or the mean function of this process.
            at: The joint posterior at q points z.
            weights: ``w``, ``batch x o x q``.
        """
        return lambda X: path(X) + times(self.at(X).covariance(at), weights)


def _same(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.device == b.device and torch.equal(a, b))
