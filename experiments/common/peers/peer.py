"""The interface of other optimisers: ask where to measure, tell what came out, recommend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import ClassVar

import torch
from torch import Tensor

from bo_stream.campaign.randomness import proposing
from bo_stream.errors import ShapeError, StateError

__all__ = ["Peer"]


class Peer(ABC):
    """An optimiser of a noisy function over a box, to be maximised.

    It is told an initial design first, which it uses as data or as a place to start from. All that
    it draws follows from its seed and from the calls of `ask` and `tell`; the global generators of
    torch are left as they were.

    Args:
        bounds: ``2 x d``.
        seed: Of all that is drawn.

    Attributes:
        packages: Packages that it needs besides those of bo_stream.
        learning: What the seconds of `tell` count as: ``fit`` for a peer that fits a model there,
            else ``update``.
        bounds: ``2 x d``, float64.
        X: ``n x d`` points told so far.
        Y: ``n x 1``, their values.
    """

    packages: ClassVar[tuple[str, ...]] = ()
    learning: ClassVar[str] = "update"

    def __init__(self, bounds: Tensor, seed: int = 0) -> None:
        self.bounds, self.seed = bounds.double().cpu(), seed
        self.X = self.bounds.new_empty(0, bounds.shape[-1])
        self.Y = self.bounds.new_empty(0, 1)
        self._turn = 0

    @property
    def dim(self) -> int:
        """The number ``d`` of inputs."""
        return self.bounds.shape[-1]

    def ask(self, q: int = 1) -> Tensor:
        """Where to measure next: ``q x d`` points of the box.

        Points of an earlier batch that have not been told by now count as failed.

        Raises:
            StateError: before the initial design is told.
        """
        self._told_something()
        with self._drawing():
            X = self._propose(q)
        self._turn += 1
        return torch.minimum(torch.maximum(X, self.bounds[0]), self.bounds[1])

    def tell(self, X: Tensor, Y: Tensor) -> None:
        """Take outcomes: of the last batch, without those that failed, or of points of one's own.

        Args:
            X: ``n x d``.
            Y: ``n x 1``, to be maximised.

        Raises:
            ShapeError: if these do not fit each other or the box.
        """
        if X.ndim != 2 or X.shape[1] != self.dim or Y.shape != (len(X), 1):
            raise ShapeError(
                f"X of n x {self.dim} and Y of n x 1",
                f"{tuple(X.shape)} and {tuple(Y.shape)}",
                "Give one row a point.",
            )
        X, Y = X.double().cpu(), Y.double().cpu()
        self.X, self.Y = torch.cat([self.X, X]), torch.cat([self.Y, Y])
        with self._drawing():
            self._learn(X, Y)
        self._turn += 1

    def recommend(self) -> Tensor:
        """The point that it holds for the best so far, ``1 x d``; changes nothing.

        Raises:
            StateError: before the initial design is told.
        """
        self._told_something()
        with self._drawing():
            return self._best()

    # -- what a peer says ------------------------------------------------------------------------

    @abstractmethod
    def _propose(self, q: int) -> Tensor:
        """Points to measure, ``q x d``."""

    def _learn(self, X: Tensor, Y: Tensor) -> None:  # noqa: B027 (some learn nothing)
        """Take in new outcomes; `X` and `Y` of the peer have them already."""

    def _best(self) -> Tensor:
        """The point recommended, ``1 x d``: here, the one observed with the highest value."""
        return self.X[self.Y[:, 0].argmax()].unsqueeze(0)

    # -- pieces ----------------------------------------------------------------------------------

    def _drawing(self) -> AbstractContextManager[None]:
        """Torch's generators seeded inside, anew for each turn."""
        return proposing(self.seed, self._turn, self.bounds.device)

    def _told_something(self) -> None:
        if not len(self.X):
            raise StateError("an initial design", "none so far", "Call tell first.")
