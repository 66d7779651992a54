"""Features: finitely many functions of the inputs, with Gaussian coefficients."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from bo_stream.mathematics.posterior.moments import Pullback

__all__ = ["FeatureMap"]


class FeatureMap(Protocol):
    """The features of a point."""

    def features(self, X: Tensor) -> Tensor:
        """Features at points ``batch x q x d``: ``batch x q x f``, differentiable."""
        ...

    def sloped(self, X: Tensor) -> tuple[Tensor, Pullback]:
        """Features and their derivatives in k coordinates, without an autograd graph.

        Args:
            X: Points, ``batch x q x d``.

        Returns:
            ``batch x q x (1 + k) x f``, the values first; and a function from gradients in the
            coordinates to gradients in X.
        """
        ...

    def same_as(self, other: Any) -> bool:
        """Whether the features are the same."""
        ...

    @property
    def defining_tensors(self) -> tuple[Tensor, ...]:
        """Tensors that determine the features, as in `Expansion`."""
        ...
