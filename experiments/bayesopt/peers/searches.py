"""Random search and Sobol search: what any optimiser has to beat."""

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from experiments.bayesopt.peers.peer import Peer


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
