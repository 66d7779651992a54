"""Simulated active learning over a pool of cells with known values, timed by parts.

After random initial cells, in every step a policy chooses cells of the pool, the surrogate observes
their readings and is fitted, and its predictions at test cells are scored. Surrogates and policies
are callables. No cell is queried twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from math import isfinite
from os import PathLike
from typing import Any, cast

import pandas as pd
import torch
from torch import Tensor

from acquisitions import Proposal, Rule, View
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.effort import seeded
from bo_stream.campaign.engine import Engine
from bo_stream.campaign.learner import Stage
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Pool
from bo_stream.errors import InputError
from bo_stream.scores import marginals, noise_variance, score
from experiments.common.loops.pool_config import PoolConfig, PoolData, Split
from experiments.common.loops.run import PARTS, SimulatedRun
from experiments.common.records import Clock, TimedRow, clock, environment
from experiments.common.tables import write_table

__all__ = ["PoolLoop", "PoolConfig", "Policy"]

Policy = Callable[[StreamingGP, Tensor, Tensor, int], Tensor]
"""Chooses ``q`` different indices into the pool, given ``(model, test_X, pool_X, q)``."""

_COLUMNS = (
    *("step", "n", "observation", "rmse", "nlpd", "coverage", "integrated_variance"),
    *("log_predictive", "fit_evaluations", "fit_objective", "clipped", "failed", "behind", "bytes"),
    *(f"{part}_seconds" for part in (*PARTS, "step", "wallclock", "cpu", "score")),
)


class _ByPolicy(Rule):
    """The rule of a loop's policy."""

    def __init__(self, loop: PoolLoop) -> None:
        self.loop = loop

    def propose(self, view: View, q: int) -> Proposal:
        """The policy's choice."""
        model, places = cast(StreamingGP, view.model), cast(Tensor, view.places)
        return Proposal(self.loop.chosen(model, places, q))


class PoolLoop(SimulatedRun):
    """A simulated run of active learning, reproducible by its seed.

    The table has a row for the initial cells (step 0) and one per step:

    - ``step``, ``n`` (number of readings observed), ``observation`` (the observation model),
      ``bytes`` (size of the surrogate's state);
    - ``rmse`` against the cells' values; ``nlpd`` and ``coverage`` of a test *observation* (the
      latent function plus noise; against the value if the noise is learned, against a noisy draw if
      it is known); ``integrated_variance`` of the latent function, in raw units squared;
    - ``log_predictive``: log density of the batch before it was observed;
    - ``fit_evaluations``, ``fit_objective``; ``clipped``: number of readings that were clipped;
      ``failed``: number of readings that were NaN or infinite, which are not observed;
    - ``fit_seconds``, ``acquisition_seconds``, ``evaluation_seconds``, ``update_seconds``, their
      sum ``step_seconds`` and its cumulative sum ``wallclock_seconds``; ``cpu_seconds``, the
      processor time of a step without evaluation; ``score_seconds``, which is not part of
      ``step_seconds``. Together they are the whole time of a step.

    Args:
        cells: The cells.
        make_surrogate: Builds a surrogate from ``(X, Y, Yvar, bounds=..., outcome_transform=...)``.
        policy: Chooses q indices into the pool, given ``(model, test_X, pool_X, q)``.
        config: Sizes, seed and budget.
        callback: Called with every row when it is recorded.
        clock: Returns wall-clock seconds and processor seconds.

    Example:
        >>> from functools import partial
        >>> from bo_stream import surrogate
        >>> from problems import load_malaria
        >>> def first(model, test_X, pool, q):
        ...     return torch.arange(q)
        >>> config = PoolConfig(steps=2, num_test=100)
        >>> make = partial(surrogate, "wiski", grid_size=10)
        >>> PoolLoop(load_malaria(cells=400), make, first, config).run()["n"].tolist()
        [10, 16, 22]
    """

    def __init__(
        self,
        cells: PoolData,
        make_surrogate: Callable[..., StreamingGP],
        policy: Policy,
        config: PoolConfig | None = None,
        callback: Callable[[dict[str, Any]], None] | None = None,
        clock: Clock = clock,
    ) -> None:
        self.cells = cells
        self.make_surrogate = make_surrogate
        self.policy = policy
        self.config = config or PoolConfig()
        c = self.config
        self.split = Split.of(cells, c)
        self.test_X = cells.X[self.split.test]
        places = torch.cat([self.split.initial, self.split.pool])
        table = pd.DataFrame(
            cells.X[places].cpu().double().numpy(),
            pd.Index(places.tolist()),
            [f"x{i}" for i in range(cells.X.shape[-1])],
        )
        space = Pool(table)
        settings = Settings(space=space, goal="learn", seed=c.seed, initial=2, fit=c.fit)
        stages = [Stage(self._make, c.fit, _ByPolicy(self))]
        engine = Engine(settings, lambda _: stages, like=cells.X)
        self._every, self._observed = places, list[tuple[Tensor, Tensor]]()
        super().__init__(engine, c.steps, _COLUMNS, callback, clock)

    @property
    def queried(self) -> Tensor:
        """Indices of all cells queried, in order."""
        return torch.cat([self._every[:0], *(cells for cells, _ in self._observed)])

    @property
    def readings(self) -> Tensor:
        """Readings of these cells as observed, ``n x 1``; NaN where a reading failed."""
        return torch.cat([self.cells.Y[:0], *(Y for _, Y in self._observed)])

    @property
    def pool(self) -> Tensor:
        """Indices of the cells that can still be queried."""
        left = torch.ones(len(self.cells.X), dtype=torch.bool, device=self.cells.X.device)
        left[self.queried] = False
        return self.split.pool[left[self.split.pool]]

    def start(self) -> dict[str, Any]:
        """Step 0: query the initial cells, build and fit the surrogate.

        Raises:
            StateError: if it was started before.
            InputError: if fewer than two of these cells have a finite reading.
        """
        self._check_not_started()
        return self._take_step(lambda: torch.arange(len(self.split.initial)))

    def observations(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y and Yvar of all readings as observed, in order, without those that failed."""
        Y, noise = self.readings, self.split.noise
        good = Y[:, 0].isfinite()
        cells = self.queried[good]
        return self.cells.X[cells], Y[good], None if noise is None else noise[cells]

    def save(self, path: str | PathLike[str], **facts: Any) -> None:
        """Write the table to ``path`` (CSV), and configuration and environment beside it (JSON).

        Args:
            path: Path of the CSV; the JSON has the same name with another suffix.
            facts: Facts to add to the JSON: cells, surrogate, policy. It also contains the
                observation model and the cells queried with their readings, null where one failed.
        """
        about = {
            **facts,
            "observation": self.config.observation,
            "config": asdict(self.config),
            "queried": self.queried.tolist(),
            "readings": [y if isfinite(y) else None for y in self.readings[:, 0].tolist()],
            "environment": environment(),
        }
        write_table(self.table(), path, about)

    # -- the parts of a step ---------------------------------------------------------------------

    @property
    def _q(self) -> int:
        return self.config.q

    def _make(self, X: Tensor, Y: Tensor, Yvar: Tensor | None, **options: Any) -> StreamingGP:
        """The surrogate, over the unit cube."""
        box = torch.stack([torch.zeros_like(X[0]), torch.ones_like(X[0])])
        return self.make_surrogate(X, Y, Yvar, **{**options, "bounds": box})

    def chosen(self, model: StreamingGP, pool: Tensor, q: int) -> Tensor:
        """The policy's choice of a step, as indices into the pool."""
        with seeded(1_000_003 * self.config.seed + len(self._rows), pool.device):
            chosen = self.policy(model, self.test_X, pool, q)
        if chosen.shape != (q,) or len(chosen.unique()) != len(chosen):
            raise InputError(
                f"{q} different indices into the pool",
                f"{chosen.tolist()}",
                "A policy must not choose a cell twice.",
            )
        return chosen

    def _free(self) -> Tensor:
        return (~torch.isin(self._every, self.queried)).nonzero()[:, 0].cpu()

    def _evaluate(self, trials: Tensor) -> Tensor:
        return self.split.observed[self._every[trials]]

    def _tell(self, trials: Tensor, values: Tensor, row: TimedRow) -> None:
        good, cells, noise = values[:, 0].isfinite(), self._every[trials], self.split.noise
        X, Y = self.cells.X[cells[good]], values[good]
        Yvar = None if noise is None else noise[cells][good]
        row["clipped"], row["failed"], density = 0, int((~good).sum()), float("nan")
        if row["step"] and len(Y):
            model = self._built()
            with row.timed("score_seconds"):
                density = float(model.log_predictive(X, Y, Yvar))
            kept = self._clipped(model, X, Y, Yvar)
            row["clipped"], Y = int((kept != Y).sum()), kept
        readings = torch.full_like(values, float("nan"))
        readings[good] = Y
        self._observed.append((cells, readings))
        if len(Y):
            self.engine.observe(X, Y, Yvar, row)
        row["log_predictive"] = density  # of the readings before they were clipped

    def _score(self, model: StreamingGP, row: TimedRow) -> None:
        test, noise = self.split.test, self.split.noise
        scores = score(
            model,
            self.test_X,
            self.cells.Y[test],
            self.split.observed[test],
            None if noise is None else noise[test],
            self.config.level,
        )
        row.update(asdict(scores))
        row["observation"] = self.config.observation

    # -- pieces ----------------------------------------------------------------------------------

    def _clipped(self, model: StreamingGP, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> Tensor:
        """Readings clipped to ``clip`` predictive standard deviations around their mean."""
        c = self.config
        if model.num_observed < c.clip_from:
            return Y
        mean, variance = (part.unsqueeze(-1) for part in marginals(model, X))
        noise = noise_variance(model) if Yvar is None else Yvar
        reach = c.clip * (variance + noise).sqrt()
        return Y.clamp(mean - reach, mean + reach)
