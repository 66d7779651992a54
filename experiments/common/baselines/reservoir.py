"""A uniform sample of all rows of a stream, in bounded memory."""

import torch
from torch import Tensor

from bo_stream.errors import InputError


class Reservoir:
    """At most ``size`` rows, every row seen so far with the same chance to be among them.

    Minibatches drawn from it are unbiased samples of the stream so far, as stochastic gradients of
    a bound on all of it require; those of a window of the last rows would be biased.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        if size < 1:
            raise InputError("a size of 1 or more", f"{size}", "Correct it.")
        self.size, self.seen = size, 0
        self.X = self.Y = torch.empty(0, 0, dtype=torch.float64)
        self._generator = torch.Generator().manual_seed(seed)

    def add(self, X: Tensor, Y: Tensor) -> None:
        """Offer ``n x d`` and ``n x 1`` rows: each takes the place of a random one, or none."""
        room = max(0, self.size - self.seen)
        X_first, Y_first = X[:room].clone(), Y[:room].clone()
        self.X = X_first if not self.seen else torch.cat([self.X, X_first])
        self.Y = Y_first if not self.seen else torch.cat([self.Y, Y_first])
        self.seen += len(X_first)
        for x, y in zip(X[room:], Y[room:], strict=True):
            self.seen += 1
            place = int(torch.randint(self.seen, (), generator=self._generator))
            if place < self.size:
                self.X[place], self.Y[place] = x, y

    def minibatch(self, count: int) -> tuple[Tensor, Tensor]:
        """At most so many of the rows, ``k x d`` and ``k``, drawn without replacement."""
        rows = self.some(len(self.X), count)
        return self.X[rows], self.Y[rows, 0]

    def some(self, among: int, count: int) -> Tensor:
        """At most ``count`` of the numbers below ``among``, drawn without replacement."""
        return torch.randperm(among, generator=self._generator)[:count]
