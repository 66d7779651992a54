"""The interface of other optimisers, and the two plainest: random search and Sobol search."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_stream.campaign.randomness import proposing
from bo_stream.errors import BoStreamError, ShapeError, StateError

INSTALL = "pip install 'bo_stream[peers]'"


class MissingPackageError(BoStreamError, ImportError):
    """A peer's package that is not installed, or cannot be imported."""


def needed(package: str) -> Any:
    """A package of the extra ``peers``, imported; refused if it cannot be."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingPackageError(
            f"the package {package!r} (extra 'peers')", f"{error}", f"Install it: {INSTALL}"
        ) from error


class Peer(ABC):
    """An optimiser of a noisy function over a box, to be maximised.

    It is told an initial design first, which it uses as data or as a place to start from. All that
    it draws follows from its seed and from the calls of `ask` and `tell`; the global generators of
    torch are left as they were. A subclass says where to measure (`_propose`), and may learn from
    outcomes (`_learn`) and recommend another point than the best one observed (`_best`).
    ``packages`` are those that it needs besides bo_stream's. The seconds of `tell` count as
    ``learning``: ``fit`` for a peer that fits a model there, else ``update``. ``X`` and ``Y`` have
    the points told so far and their values, ``n x d`` and ``n x 1``.
    """

    packages: ClassVar[tuple[str, ...]] = ()
    learning: ClassVar[str] = "update"

    def __init__(self, bounds: Tensor, seed: int = 0) -> None:
        self.bounds, self.seed = bounds.double().cpu(), seed
        self.dim = bounds.shape[-1]
        self.X, self.Y = self.bounds.new_empty(0, self.dim), self.bounds.new_empty(0, 1)
        self._turn = 0

    def ask(self, q: int = 1) -> Tensor:
        """Where to measure next: ``q x d`` points of the box, once the initial design is told.

        Points of an earlier batch that have not been told by now count as failed.
        """
        self._told_something()
        with self._drawing():
            X = self._propose(q)
        self._turn += 1
        return torch.minimum(torch.maximum(X, self.bounds[0]), self.bounds[1])

    def tell(self, X: Tensor, Y: Tensor) -> None:
        """Take outcomes, ``n x d`` and ``n x 1``: of the last batch, or of points of one's own."""
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
        """The point that it holds for the best so far, ``1 x d``; changes nothing."""
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


class RandomSearch(Peer):
    """Points drawn uniformly from the box; recommends the best one observed."""

    def _propose(self, q: int) -> Tensor:
        low, high = self.bounds
        return low + (high - low) * torch.rand(q, self.dim, dtype=low.dtype)


class SobolSearch(Peer):
    """Points of a scrambled Sobol sequence; recommends the best one observed.

    Where the initial design is the beginning of the sequence with the same seed, as in a study, the
    search goes on where that ended.
    """

    def __init__(self, bounds: Tensor, seed: int = 0) -> None:
        super().__init__(bounds, seed)
        self._sequence = SobolEngine(self.dim, scramble=True, seed=seed)

    def _propose(self, q: int) -> Tensor:
        if self._sequence.num_generated == 0:
            self._sequence.fast_forward(len(self.X))
        low, high = self.bounds
        return low + (high - low) * self._sequence.draw(q, dtype=low.dtype)
