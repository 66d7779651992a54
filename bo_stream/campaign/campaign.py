"""Active learning over a pool by a loop that measures itself.

Random initial cells, then at every step: ask (a policy chooses cells of the pool), evaluate,
observe, fit, score at cells set aside, record. Surrogates and policies come in as callables; no
cell is queried twice. Time is data: the seconds of each part are columns of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from os import PathLike
from typing import Any

import pandas as pd
import torch
from botorch.models.transforms.outcome import Standardize
from torch import Tensor

from bo_stream.campaign.config import CampaignConfig, Cells, Split
from bo_stream.campaign.records import Row, environment, write_table
from bo_stream.core.streaming import StreamingGP
from bo_stream.errors import InputError, StateError
from bo_stream.scores import marginals, noise_variance, score

__all__ = ["Campaign", "CampaignConfig", "Policy"]

Policy = Callable[[StreamingGP, Tensor, Tensor, int], Tensor]
"""``(model, test_X, pool_X, q)`` to ``q`` different indices into the pool."""

_PARTS = ("fit", "acquisition", "evaluation", "update")
_COLUMNS = (
    *("step", "n", "observation", "rmse", "nlpd", "coverage", "integrated_variance"),
    *("log_predictive", "fit_evaluations", "fit_objective", "clipped", "bytes"),
    *(f"{part}_seconds" for part in (*_PARTS, "step", "wallclock", "score")),
)


class Campaign:
    """One active-learning campaign, reproducible by its seed.

    The table has a row for the initial cells (step 0) and one per step:

    - ``step``, ``n`` (cells queried), ``observation`` (the observation model), ``bytes`` (the
      surrogate's state);
    - ``rmse`` against the cells' values; ``nlpd`` and ``coverage`` of a test *observation* (latent
      plus noise against the value where the noise is learned, against a noisy draw where it is
      known); ``integrated_variance``, latent, raw units squared;
    - ``log_predictive``: log density of the batch before it was absorbed;
    - ``fit_evaluations``, ``fit_objective``; ``clipped``: readings of the batch that were;
    - ``fit_seconds``, ``acquisition_seconds``, ``evaluation_seconds``, ``update_seconds``, their
      sum ``step_seconds`` and its running sum ``wallclock_seconds``; apart from these
      ``score_seconds``, which chooses nothing.

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
        >>> config = CampaignConfig(steps=2, num_test=100)
        >>> make = partial(surrogate, "wiski", grid_size=10)
        >>> Campaign(load_malaria(cells=400), make, first, config).run()["n"].tolist()
        [10, 16, 22]
    """

    def __init__(
        self,
        cells: Cells,
        make_surrogate: Callable[..., StreamingGP],
        policy: Policy,
        config: CampaignConfig | None = None,
        callback: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.cells = cells
        self.make_surrogate = make_surrogate
        self.policy = policy
        self.config = config or CampaignConfig()
        self.callback = callback
        self.split = Split.of(cells, self.config)
        self.pool = self.split.pool
        self.queried = self.pool[:0]
        self.readings = self.split.observed[:0]
        self.test_X = cells.X[self.split.test]
        self.model: StreamingGP | None = None
        self.rows: list[dict[str, Any]] = []

    def run(self) -> pd.DataFrame:
        """Start if not started, take the steps that are left, return the table."""
        if not self.rows:
            self.start()
        while self.rows[-1]["step"] < self.config.steps:
            self.step()
        return self.table()

    def start(self) -> dict[str, Any]:
        """Step 0: query the initial cells, build and fit the surrogate."""
        row = Row(_COLUMNS)
        with row.timed("evaluation_seconds"):
            X, Y, Yvar = self._query(self.split.initial)
            self.readings, row["clipped"] = Y, 0
        with row.timed("update_seconds"):
            box = torch.stack([torch.zeros_like(X[0]), torch.ones_like(X[0])])
            self.model = self.make_surrogate(
                X, Y, Yvar, bounds=box, outcome_transform=Standardize(m=1)
            )
        self._fit(self.model, row, 0)
        return self._record(self.model, row, 0)

    def step(self) -> dict[str, Any]:
        """One step; returns its row."""
        model, c = self._started(), self.config
        number, row = self.rows[-1]["step"] + 1, Row(_COLUMNS)
        with row.timed("acquisition_seconds"), torch.random.fork_rng(devices=[]):
            torch.manual_seed(1_000_003 * c.seed + number)
            chosen = self.policy(model, self.test_X, self.cells.X[self.pool], c.q)
        with row.timed("evaluation_seconds"):
            X, Y, Yvar = self._query(self._taken(chosen))
        with row.timed("score_seconds"):
            row["log_predictive"] = float(model.log_predictive(X, Y, Yvar))
        with row.timed("update_seconds"):
            kept = self._clipped(model, X, Y, Yvar)
            row["clipped"] = int((kept != Y).sum())
            self.readings = torch.cat([self.readings, kept])
            model.observe(X, kept, Yvar)
        if c.fit.due(number, model.refit_due):
            self._fit(model, row, number)
        return self._record(model, row, number)

    def observations(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y and Yvar of all cells queried, in order, as absorbed: for any other surrogate."""
        noise = self.split.noise
        Yvar = None if noise is None else noise[self.queried]
        return self.cells.X[self.queried], self.readings, Yvar

    def table(self) -> pd.DataFrame:
        """The rows so far."""
        return pd.DataFrame(self.rows)

    def save(self, path: str | PathLike[str], **facts: Any) -> None:
        """Write the table to ``path`` (CSV) and how it came about beside it (JSON).

        Args:
            path: Of the CSV; the JSON has the same name but for the suffix.
            facts: Named facts to add to the JSON: cells, surrogate, policy. It also has the
                observation model, the configuration, and the cells queried with their readings.
        """
        about = {
            **facts,
            "observation": self.config.observation,
            "config": asdict(self.config),
            "queried": self.queried.tolist(),
            "readings": self.readings[:, 0].tolist(),
            "environment": environment(),
        }
        write_table(self.table(), path, about)

    # -- pieces ----------------------------------------------------------------------------------

    def _taken(self, chosen: Tensor) -> Tensor:
        """Take the policy's choice out of the pool.

        Raises:
            InputError: unless it is q different indices into the pool.
        """
        unique = chosen.unique()
        if chosen.shape != (self.config.q,) or len(unique) != len(chosen):
            raise InputError(
                f"{self.config.q} different indices into the pool",
                f"{chosen.tolist()}",
                "A policy may choose no cell twice.",
            )
        cells = self.pool[chosen]
        left = torch.ones(len(self.pool), dtype=torch.bool, device=self.pool.device)
        left[chosen] = False
        self.pool = self.pool[left]
        return cells

    def _query(self, cells: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        self.queried = torch.cat([self.queried, cells])
        noise = self.split.noise
        Yvar = None if noise is None else noise[cells]
        return self.cells.X[cells], self.split.observed[cells], Yvar

    def _clipped(self, model: StreamingGP, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> Tensor:
        """Readings no further than ``clip`` predictive standard deviations from their mean."""
        c = self.config
        if model.num_observed < c.clip_from:
            return Y
        mean, variance = (part.unsqueeze(-1) for part in marginals(model, X))
        noise = noise_variance(model) if Yvar is None else Yvar
        reach = c.clip * (variance + noise).sqrt()
        return Y.clamp(mean - reach, mean + reach)

    def _fit(self, model: StreamingGP, row: Row, step: int) -> None:
        """Standardise by all cells queried, then fit: both only change together."""
        policy = self.config.fit
        with row.timed("update_seconds"):
            if step:
                model.restandardise(self.readings)
        with row.timed("fit_seconds"):
            report = model.fit(policy.max_evals if step else policy.first_max_evals)
        row["fit_evaluations"], row["fit_objective"] = report.evaluations, report.value

    def _record(self, model: StreamingGP, row: Row, step: int) -> dict[str, Any]:
        with row.timed("update_seconds"):
            model.process()  # making it belongs to the update, not to the score
        last = self.rows[-1]["wallclock_seconds"] if self.rows else 0.0
        row["step"], row["n"], row["bytes"] = step, model.num_observed, model.state_bytes
        row["observation"] = self.config.observation
        row["step_seconds"] = sum(row[f"{part}_seconds"] for part in _PARTS)
        row["wallclock_seconds"] = last + row["step_seconds"]
        with row.timed("score_seconds"):
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
        self.rows.append(dict(row))
        if self.callback is not None:
            self.callback(self.rows[-1])
        return self.rows[-1]

    def _started(self) -> StreamingGP:
        if self.model is None:
            raise StateError("a campaign that was started", "none", "Call start() or run() first.")
        return self.model
