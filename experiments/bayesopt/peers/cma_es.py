"""CMA-ES, in batches out of its population, started anew with a larger one when it stops."""

import math
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from experiments.bayesopt.peers.peer import Peer, needed


class Judged(NamedTuple):
    """A run: the median value of its last population, and the mean of its distribution."""

    score: float
    mean: np.ndarray


class CMAES(Peer):
    """Covariance matrix adaptation by the package ``cma``, in the unit cube, bounds respected.

    It starts at the best point of the initial design. A population has `cma`'s default size,
    rounded up to whole batches. When one of its criteria stops it, it starts again at a random
    point with a population twice as large. Noise is not treated; a point that failed counts as the
    worst value told. Recommends the mean of the distribution; of several runs, that of the one
    whose last population had the highest median; before a population is complete, the best point
    observed. ``sigma`` is the first standard deviation, in units of the box; ``options`` are those
    of `cma.CMAEvolutionStrategy`.
    """

    packages = ("cma",)

    def __init__(
        self,
        bounds: Tensor,
        seed: int = 0,
        *,
        sigma: float = 0.25,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(bounds, seed)
        self._cma = needed("cma")
        self.sigma, self.options = sigma, dict(options or {})
        self._generator = np.random.default_rng(seed)
        self._strategy: Any = None
        self._waiting: list[np.ndarray] = []  # of this population, to be asked
        self._asked: list[np.ndarray] = []
        self._costs: list[float | None] = []  # of those asked: values with the sign turned
        self._ended: list[Judged] = []
        self._now = Judged(-math.inf, np.empty(0))

    def _propose(self, q: int) -> Tensor:
        worst = -float(self.Y.min())
        self._costs = [worst if cost is None else cost for cost in self._costs]
        self._finish()
        if not self._waiting:
            if self._strategy is None or self._strategy.stop():
                self._start(q)
            self._waiting = list(self._strategy.ask())
        if len(self._waiting) < q:  # another q than before: the population grows
            self._waiting += self._strategy.ask(number=q - len(self._waiting))
        batch, self._waiting = self._waiting[:q], self._waiting[q:]
        self._asked += batch
        self._costs += [None] * q
        return torch.stack([self._point(x) for x in batch])

    def _learn(self, X: Tensor, Y: Tensor) -> None:
        for x, y in zip(X, Y[:, 0].tolist(), strict=True):
            for i, cost in enumerate(self._costs):
                if cost is None and torch.equal(self._point(self._asked[i]), x):
                    self._costs[i] = -y
                    break
        self._finish()

    def _best(self) -> Tensor:
        best = max([*self._ended, self._now], key=lambda run: run.score)
        return self._point(best.mean).unsqueeze(0) if math.isfinite(best.score) else super()._best()

    # -- pieces ----------------------------------------------------------------------------------

    def _start(self, q: int) -> None:
        """A first run, or another one with a population twice as large."""
        low, high = self.bounds
        size = self.options.get("popsize", 4 + int(3 * math.log(self.dim)))
        begin = ((super()._best()[0] - low) / (high - low)).numpy()
        if self._strategy is not None:
            self._ended.append(self._now)
            size, begin = 2 * self._strategy.popsize, self._generator.random(self.dim)
        settings = {
            "bounds": [0.0, 1.0],
            "randn": lambda *shape: self._generator.standard_normal(shape),
            "seed": math.nan,  # leaves numpy's global generator alone
            "verbose": -9,
            "verb_log": 0,
            **self.options,
            "popsize": q * math.ceil(size / q),
        }
        self._strategy = self._cma.CMAEvolutionStrategy(begin, self.sigma, settings)
        self._now = Judged(-math.inf, begin)

    def _finish(self) -> None:
        """Tell the strategy of a population once all of it is known."""
        if self._waiting or not self._asked or None in self._costs:
            return
        costs = [cost for cost in self._costs if cost is not None]
        self._strategy.tell(self._asked, costs)
        self._now = Judged(-median(costs), np.array(self._strategy.result.xfavorite))
        self._asked, self._costs = [], []

    def _point(self, x: np.ndarray) -> Tensor:
        """A point of the unit cube in the box, ``d``."""
        low, high = self.bounds
        X = low + (high - low) * torch.from_numpy(np.asarray(x, dtype=np.float64))
        return torch.minimum(torch.maximum(X, low), high)
