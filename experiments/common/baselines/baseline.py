"""What a study asks of a method: take rows as they come, predict, say how long learning took."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar, TypeVar

from botorch.models.model import Model
from torch import Tensor

from bo_stream.errors import StateError, UnsupportedError

T = TypeVar("T")


class Baseline(ABC):
    """A method of one outcome, in a stream; ``seconds`` of processor time were spent in `observe`.

    ``alone`` says why no acquisition can be built on it. ``clock`` tells the time in seconds.
    """

    alone: ClassVar[str] = "a baseline that predicts one point at a time"

    def __init__(self) -> None:
        self.seconds = 0.0
        self.clock: Callable[[], float] = time.process_time

    def observe(self, X: Tensor, Y: Tensor, budget: float = 0.0) -> None:
        """Absorb ``n x d`` and ``n x 1`` rows, of which there may be none, and learn.

        The budget are seconds of processor time, absorbing included, for a method that can always
        learn more; such a method takes one step at least. Others take what they need.
        """
        began = self.clock()
        if len(X):
            self._absorb(X, Y)
        self._learn(budget - (self.clock() - began))
        self.seconds += self.clock() - began

    @abstractmethod
    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations at ``n x d`` points, ``n`` each."""

    def model(self) -> Model:
        """The model that an acquisition is built on; refused without a joint distribution."""
        raise UnsupportedError(
            "a surrogate with a joint distribution of several points, for acquisitions",
            self.alone,
            "Take a family of bo_stream, such as OnlineSGPR.",
        )

    @abstractmethod
    def _absorb(self, X: Tensor, Y: Tensor) -> None:
        """Take in rows."""

    def _learn(self, seconds: float) -> None:  # noqa: B027 (most methods learn as they absorb)
        """Learn for so many seconds of processor time more."""


def trained(model: T | None) -> T:
    """What a method has made of its first rows; refused before there were any."""
    if model is None:
        raise StateError("rows", "none so far", "Call observe first.")
    return model


def shares(seconds: float, clock: Callable[[], float]) -> Iterator[float]:
    """Shares of a time that have been spent, from 0, until all is; the first comes in any case."""
    began, share = clock(), 0.0
    while share < 1.0:
        yield share
        share = (clock() - began) / seconds if seconds > 0.0 else 1.0
