"""Functions of the inputs, finitely many, whose coefficients are Gaussian."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from bo_stream.mathematics.posterior.moments import Back

__all__ = ["FeatureMap"]


class FeatureMap(Protocol):
    """The functions: features of a point."""

    def features(self, X: Tensor) -> Tensor:
        """The functions at points ``batch x q x d``: ``batch x q x f``, differentiable."""
        ...

    def sloped(self, X: Tensor) -> tuple[Tensor, Back]:
        """The functions with their derivatives in the places of points, without a graph.

        Args:
            X: Points, ``batch x q x d``.

        Returns:
            ``batch x q x (1 + k) x f``, the values first; and how gradients in the places become
            those in the points.
        """
        ...

    def same_as(self, other: Any) -> bool:
        """Whether sums over these functions and over the other's add up."""
        ...

    @property
    def made_of(self) -> tuple[Tensor, ...]:
        """Tensors that tell these functions from others, as in `Expansion`."""
        ...
