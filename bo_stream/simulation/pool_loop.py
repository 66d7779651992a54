"""Active learning over a pool by a loop that measures itself.

Random initial cells, then at every step: ask (a policy chooses cells of the pool), evaluate, book,
observe, fit, score at cells set aside, record. Surrogates and policies come in as callables; no
cell is queried twice. Time is data: the seconds of each part are columns of the result. What an
interruption leaves behind, and how a campaign goes on from there, is said in
`bo_stream.simulation.run`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from math import isfinite
from os import PathLike
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.proposals import Known
from bo_stream.campaign.randomness import seeded
from bo_stream.campaign.records import Row, environment, write_table
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Pool
from bo_stream.errors import InputError
from bo_stream.scores import marginals, noise_variance, score
from bo_stream.simulation.pool_config import Cells, PoolConfig, Split
from bo_stream.simulation.run import PARTS, OpenStep, Run
from bo_stream.simulation.simulated_campaign import SimulatedCampaign

__all__ = ["PoolLoop", "PoolConfig", "Policy"]

Policy = Callable[[StreamingGP, Tensor, Tensor, int], Tensor]
"""``(model, test_X, pool_X, q)`` to ``q`` different indices into the pool."""

_COLUMNS = (
    *("step", "n", "observation", "rmse", "nlpd", "coverage", "integrated_variance"),
    *("log_predictive", "fit_evaluations", "fit_objective", "clipped", "failed", "behind", "bytes"),
    *(f"{part}_seconds" for part in (*PARTS, "step", "wallclock", "cpu", "score")),
)


class PoolLoop(Run):
    """One active-learning campaign, reproducible by its seed.

    The table has a row for the initial cells (step 0) and one per step:

    - ``step``, ``n`` (readings absorbed), ``observation`` (the observation model), ``bytes`` (the
      surrogate's state);
    - ``rmse`` against the cells' values; ``nlpd`` and ``coverage`` of a test *observation* (latent
      plus noise against the value where the noise is learned, against a noisy draw where it is
      known); ``integrated_variance``, latent, raw units squared;
    - ``log_predictive``: log density of the batch before it was absorbed;
    - ``fit_evaluations``, ``fit_objective``; ``clipped``: readings of the batch that were;
      ``failed``: those that were NaN or infinite, which are booked and not absorbed;
    - ``fit_seconds``, ``acquisition_seconds``, ``evaluation_seconds``, ``update_seconds``, their
      sum ``step_seconds`` and its running sum ``wallclock_seconds``; ``cpu_seconds``, processor
      time of all of these but the evaluation; apart from these
      ``score_seconds``, which chooses nothing. Together they are all the time of a step.

    Args:
        cells: What can be measured.
        make_surrogate: ``(X, Y, Yvar, bounds=..., outcome_transform=...)`` to a surrogate.
        policy: ``(model, test_X, pool_X, q)`` to q indices into the pool.
        config: The rest.
        callback: Called with every row as it is recorded.

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
        cells: Cells,
        make_surrogate: Callable[..., StreamingGP],
        policy: Policy,
        config: PoolConfig | None = None,
        callback: Callable[[dict[str, Any]], None] | None = None,
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
        settings = Settings(space, "learn", None, None, c.seed, 2, c.fit)
        campaign = SimulatedCampaign(settings, self._make, self._choose, cells.X)
        super().__init__(campaign, c.steps, _COLUMNS, callback)

    @property
    def queried(self) -> Tensor:
        """Indices of all cells queried, in order."""
        return self._paid()[0]

    @property
    def readings(self) -> Tensor:
        """``n x 1``, what they gave, as absorbed; not finite where a reading failed.

        Those of a step that was interrupted are here as they were read.
        """
        return self._paid()[1]

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
        self._not_started()
        if self._open is None:
            self._open = self._opened()
        return self._finish(self._open)

    def observations(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y and Yvar of all readings, in order, as absorbed: for any other surrogate.

        Readings that failed are left out.
        """
        cells, Y = self._paid()
        good, noise = Y[:, 0].isfinite(), self.split.noise
        cells = cells[good]
        return self.cells.X[cells], Y[good], None if noise is None else noise[cells]

    def save(self, path: str | PathLike[str], **facts: Any) -> None:
        """Write the table to ``path`` (CSV) and how it came about beside it (JSON).

        Args:
            path: Of the CSV; the JSON has the same name but for the suffix.
            facts: Named facts to add to the JSON: cells, surrogate, policy. It also has the
                observation model, the configuration, and the cells queried with their readings,
                null where a reading failed.
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

    def _begin(self) -> pd.DataFrame:
        return self.campaign.enqueue(pd.DataFrame({"place": self.split.initial.tolist()}))

    def _make(self, X: Tensor, Y: Tensor, Yvar: Tensor | None, **options: Any) -> StreamingGP:
        """The surrogate, over the unit cube."""
        box = torch.stack([torch.zeros_like(X[0]), torch.ones_like(X[0])])
        return self.make_surrogate(X, Y, Yvar, **{**options, "bounds": box})

    def _choose(self, model: StreamingGP, q: int, known: Known) -> Tensor:
        """What the policy chooses, as indices into the free places."""
        every = torch.cat([self.split.initial, self.split.pool])
        pool = self.cells.X[every[known.free]]
        with seeded(1_000_003 * self.config.seed + len(self._rows), pool.device):
            chosen = self.policy(model, self.test_X, pool, q)
        if chosen.shape != (q,) or len(chosen.unique()) != len(chosen):
            raise InputError(
                f"{q} different indices into the pool",
                f"{chosen.tolist()}",
                "A policy may choose no cell twice.",
            )
        return chosen

    def _evaluate(self, step: OpenStep) -> None:
        cells = self._cells_of(cast(pd.DataFrame, step.trials))
        step.answer = self.split.observed[cells]

    def _tell(self, step: OpenStep, row: Row) -> None:
        trials, read = cast(pd.DataFrame, step.trials), cast(Tensor, step.answer)
        good = read[:, 0].isfinite()
        cells, known = self._cells_of(trials), good.cpu().numpy()
        Y, noise = read[good], self.split.noise
        Yvar = None if noise is None else noise[cells][good]
        row["clipped"], row["failed"], density = 0, int((~good).sum()), float("nan")
        if step.number and len(Y):
            X, model = self.cells.X[cells[good]], self._built()
            with row.timed("score_seconds"):
                density = float(model.log_predictive(X, Y, Yvar))
            kept = self._clipped(model, X, Y, Yvar)
            row["clipped"], Y = int((kept != Y).sum()), kept
        if not known.all():
            self.campaign.fail(trials.index[~known], "no finite reading")
        if known.any():
            told = trials[known].assign(y=Y[:, 0].cpu().double().numpy())
            if Yvar is not None:
                told["yvar"] = Yvar[:, 0].cpu().double().numpy()
            self.campaign.tell(told)
        row["log_predictive"] = density  # of what was read, before it was clipped

    def _judge(self, model: StreamingGP, step: OpenStep, row: Row) -> None:
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

    def _cells_of(self, trials: pd.DataFrame) -> Tensor:
        """Indices of the cells that trials are about."""
        return torch.tensor(trials["place"].to_numpy(), device=self.cells.X.device)

    def _paid(self) -> tuple[Tensor, Tensor]:
        """Cells that were read, in order, and what they gave."""
        trials = self.campaign.trials()
        waiting = self._answered()
        if waiting is None:
            trials = trials[trials["status"] != "running"]
        else:
            trials.loc[waiting[0].index, "y"] = waiting[1][:, 0].cpu().double().numpy()
        Y = torch.tensor(trials["y"].to_numpy(np.float64)).unsqueeze(-1)
        return self._cells_of(trials), Y.to(self.cells.X)

    def _clipped(self, model: StreamingGP, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> Tensor:
        """Readings no further than ``clip`` predictive standard deviations from their mean."""
        c = self.config
        if model.num_observed < c.clip_from:
            return Y
        mean, variance = (part.unsqueeze(-1) for part in marginals(model, X))
        noise = noise_variance(model) if Yvar is None else Yvar
        reach = c.clip * (variance + noise).sqrt()
        return Y.clamp(mean - reach, mean + reach)
