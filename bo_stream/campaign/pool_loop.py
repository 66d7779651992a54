"""Active learning over a pool by a loop that measures itself.

Random initial cells, then at every step: ask (a policy chooses cells of the pool), evaluate, book,
observe, fit, score at cells set aside, record. Surrogates and policies come in as callables; no
cell is queried twice. Time is data: the seconds of each part are columns of the result. What an
interruption leaves behind, and how a campaign goes on from there, is said in
`bo_stream.campaign.run`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from math import isfinite
from os import PathLike
from typing import Any, cast

import torch
from botorch.models.transforms.outcome import Standardize
from torch import Tensor

from bo_stream.campaign.books import Books, OpenStep
from bo_stream.campaign.pool_config import Cells, PoolConfig, Split
from bo_stream.campaign.randomness import drawn, seeded
from bo_stream.campaign.records import Row, environment, write_table
from bo_stream.campaign.run import PARTS, Run
from bo_stream.core.streaming import StreamingGP
from bo_stream.errors import InputError
from bo_stream.scores import marginals, noise_variance, score

__all__ = ["PoolLoop", "PoolConfig", "Policy"]

Policy = Callable[[StreamingGP, Tensor, Tensor, int], Tensor]
"""``(model, test_X, pool_X, q)`` to ``q`` different indices into the pool."""

_COLUMNS = (
    *("step", "n", "observation", "rmse", "nlpd", "coverage", "integrated_variance"),
    *("log_predictive", "fit_evaluations", "fit_objective", "clipped", "failed", "bytes"),
    *(f"{part}_seconds" for part in (*PARTS, "step", "wallclock", "score")),
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
        self.split = Split.of(cells, self.config)
        self.test_X = cells.X[self.split.test]
        books = Books(self.split.pool[:0], self.split.observed[:0])
        super().__init__(self.config.steps, books, cells.X.device, callback)

    @property
    def queried(self) -> Tensor:
        """Indices of all cells queried, in order."""
        return self._books.paid()[0]

    @property
    def readings(self) -> Tensor:
        """``n x 1``, what they gave, as absorbed; not finite where a reading failed.

        Those of a step that was interrupted are here as they were read.
        """
        return self._books.paid()[1]

    @property
    def pool(self) -> Tensor:
        """Indices of the cells that can still be queried."""
        left = torch.ones(len(self.cells.X), dtype=torch.bool, device=self._device)
        left[self.queried] = False
        return self.split.pool[left[self.split.pool]]

    def start(self) -> dict[str, Any]:
        """Step 0: query the initial cells, build and fit the surrogate.

        Raises:
            StateError: if it was started before.
            InputError: if fewer than two of these cells have a finite reading.
        """
        self._not_started()
        if self._books.open is None:
            with self._seeded(0):
                step = OpenStep(0, self.split.initial, Row(_COLUMNS), drawn(self._device))
            self._books = replace(self._books, open=step)
        return self._finish(cast(OpenStep, self._books.open))

    def observations(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y and Yvar of all readings, in order, as absorbed: for any other surrogate.

        Readings that failed are left out.
        """
        return self._readable(*self._books.paid())

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

    def _ask(self, model: StreamingGP, number: int) -> OpenStep:
        row, pool = Row(_COLUMNS), self.pool
        with self._seeded(number), row.timed("acquisition_seconds"):
            chosen = self.policy(model, self.test_X, self.cells.X[pool], self.config.q)
            if chosen.shape != (self.config.q,) or len(chosen.unique()) != len(chosen):
                raise InputError(
                    f"{self.config.q} different indices into the pool",
                    f"{chosen.tolist()}",
                    "A policy may choose no cell twice.",
                )
            return OpenStep(number, pool[chosen], row, drawn(self._device))

    def _evaluate(self, step: OpenStep) -> None:
        with step.row.timed("evaluation_seconds"):
            step.answer = self.split.observed[step.asked]

    def _build(self, step: OpenStep, row: Row) -> StreamingGP:
        X, Y, Yvar = self.observations()
        if len(Y) < 2:
            raise InputError(
                "two initial cells with a finite reading",
                f"{len(Y)} of {len(step.asked)}",
                "Take more initial cells, or leave out cells without a value.",
            )
        with row.timed("update_seconds"):
            box = torch.stack([torch.zeros_like(X[0]), torch.ones_like(X[0])])
            return self.make_surrogate(X, Y, Yvar, bounds=box, outcome_transform=Standardize(m=1))

    def _absorb(self, model: StreamingGP, step: OpenStep, row: Row) -> Tensor:
        answers, c = cast(Tensor, step.answer), self.config
        X, Y, Yvar = self._readable(step.asked, answers)
        good, kept = answers[:, 0].isfinite(), answers.clone()
        row["clipped"] = 0
        if step.number and len(Y):
            with row.timed("score_seconds"):
                row["log_predictive"] = float(model.log_predictive(X, Y, Yvar))
            with row.timed("update_seconds"):
                kept[good] = self._clipped(model, X, Y, Yvar)
                row["clipped"] = int((kept[good] != Y).sum())
                model.observe(X, kept[good], Yvar)
        if c.fit.due(step.number, model.refit_due):
            self._fit(model, step, row, kept)
        with row.timed("update_seconds"):
            model.process()  # bringing the posterior up to date belongs to the update
        self._accounted(model, step, row, failed=len(kept) - len(Y))
        with row.timed("score_seconds"):
            test, noise = self.split.test, self.split.noise
            scores = score(
                model,
                self.test_X,
                self.cells.Y[test],
                self.split.observed[test],
                None if noise is None else noise[test],
                c.level,
            )
        row.update(asdict(scores))
        row["observation"] = c.observation
        return kept

    # -- pieces ----------------------------------------------------------------------------------

    def _readable(self, cells: Tensor, Y: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y and Yvar of cells, without the readings that failed."""
        good, noise = Y[:, 0].isfinite(), self.split.noise
        cells = cells[good]
        return self.cells.X[cells], Y[good], None if noise is None else noise[cells]

    def _clipped(self, model: StreamingGP, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> Tensor:
        """Readings no further than ``clip`` predictive standard deviations from their mean."""
        c = self.config
        if model.num_observed < c.clip_from:
            return Y
        mean, variance = (part.unsqueeze(-1) for part in marginals(model, X))
        noise = noise_variance(model) if Yvar is None else Yvar
        reach = c.clip * (variance + noise).sqrt()
        return Y.clamp(mean - reach, mean + reach)

    def _fit(self, model: StreamingGP, step: OpenStep, row: Row, kept: Tensor) -> None:
        """Standardise by all cells queried, then fit: both only change together."""
        policy, books = self.config.fit, self._books
        with row.timed("update_seconds"):
            if step.number:
                asked, Y = torch.cat([books.asked, step.asked]), torch.cat([books.answers, kept])
                model.restandardise(self._readable(asked, Y)[1])
        with row.timed("fit_seconds"):
            report = model.fit(policy.max_evals if step.number else policy.first_max_evals)
        row["fit_evaluations"], row["fit_objective"] = report.evaluations, report.value

    def _seeded(self, step: int) -> AbstractContextManager[None]:
        return seeded(1_000_003 * self.config.seed + step, self._device)
