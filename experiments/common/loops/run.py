"""Steps that every simulated run takes: ask, evaluate, tell, fit, score and record the seconds.

All seconds of a step are in its row. Apart from the parts that are timed by themselves, asking
counts as acquisition and telling as update, bookkeeping included; scoring counts as neither. A run
that was interrupted inside a step cannot continue: it is run again, and gives the same rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from acquisitions import Rule
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.campaign_state import CampaignState
from bo_stream.campaign.engine import Engine
from bo_stream.campaign.learner import Stage
from bo_stream.campaign.ledger import Ledger
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.errors import DtypeError, InputError, ShapeError, StateError
from experiments.common.records import Clock, TimedRow

__all__ = ["OPTIMISER", "PARTS", "SimulatedCampaign", "SimulatedRun"]

PARTS = ("fit", "acquisition", "evaluation", "update")
"""Parts that the seconds of a step are divided into."""
OPTIMISER = ("fit_seconds", "acquisition_seconds", "update_seconds")
"""Columns of the seconds that the optimiser spends, without evaluation and scoring."""


class SimulatedCampaign(Campaign):
    """A campaign in memory, in any dtype and on any device.

    Args:
        settings: Its settings.
        make: Builds the surrogate.
        rule: Chooses the next trials once there is a surrogate.
        like: A tensor of the dtype and device to use.
    """

    def __init__(
        self,
        settings: Settings,
        make: Callable[..., StreamingGP],
        rule: Rule,
        like: Tensor,
    ) -> None:
        store = MemoryStore()
        store.create("study", settings.to_dict())
        stages = [Stage(make, settings.fit, rule)]
        engine = Engine(settings, lambda _: stages, like=like)
        self.ledger, self._callbacks = Ledger(store, "study", settings), ()
        self.state = CampaignState(self.ledger, engine)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the surrogate's inputs and outcomes."""
        return self.state.engine.like.dtype

    def candidates(self) -> Tensor:
        """A bounded number of observed points that the best one is among."""
        return self.state.observations.candidates()


class SimulatedRun(ABC):
    """A table of steps, each asked, evaluated, told, fitted and recorded.

    Args:
        campaign: The campaign.
        steps: Number of steps after step 0.
        columns: Columns of the table.
        callback: Called with every row when it is recorded.
        clock: Returns wall-clock seconds and processor seconds.
    """

    def __init__(
        self,
        campaign: SimulatedCampaign,
        steps: int,
        columns: Iterable[str],
        callback: Callable[[dict[str, Any]], None] | None,
        clock: Clock,
    ) -> None:
        self.campaign, self.callback = campaign, callback
        self._steps, self._columns = steps, tuple(columns)
        self._rows: list[dict[str, Any]] = []
        self._clock, self._inside_step = clock, False

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate; None before the start."""
        return self.campaign.model

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows recorded so far, one per step."""
        return list(self._rows)

    def table(self) -> pd.DataFrame:
        """The rows recorded so far, as a table."""
        return pd.DataFrame(self._rows)

    def run(self) -> pd.DataFrame:
        """Start unless started, take the remaining steps and return the table."""
        if not self._rows:
            self.start()
        while self._rows[-1]["step"] < self._steps:
            self.step()
        return self.table()

    def step(self) -> dict[str, Any]:
        """Take one step and return its row.

        Raises:
            StateError: before `start`, and after a step that was interrupted or failed.
        """
        self._check_started()
        return self._take_step(lambda: self.campaign.ask(self._q))

    # -- what a kind of run defines --------------------------------------------------------------

    @property
    @abstractmethod
    def _q(self) -> int:
        """Trials of a step."""

    @abstractmethod
    def start(self) -> dict[str, Any]:
        """Step 0: evaluate the initial trials, build and fit the surrogate."""

    @abstractmethod
    def _evaluate(self, trials: pd.DataFrame) -> Tensor:
        """Values of the trials, ``q x 1``; NaN where an evaluation failed."""

    @abstractmethod
    def _tell(self, trials: pd.DataFrame, values: Tensor, row: TimedRow) -> None:
        """Tell the campaign the values."""

    @abstractmethod
    def _score(self, model: StreamingGP, row: TimedRow) -> None:
        """Fill in the columns that are neither seconds nor counts."""

    # -- pieces ----------------------------------------------------------------------------------

    def _take_step(
        self, ask: Callable[[], pd.DataFrame], values: Tensor | None = None
    ) -> dict[str, Any]:
        """One step: the trials of ``ask``, evaluated unless their values are given."""
        if self._inside_step:
            raise StateError(
                "a run whose last step was finished",
                "one that was interrupted or failed inside a step",
                "Make a new one and run it from the start.",
            )
        self._inside_step = True
        campaign, row = self.campaign, self._new_row()
        campaign.ledger.row = row
        row["step"] = len(self._rows)
        with row.rest("acquisition_seconds"):
            trials = ask()
        with row.timed("evaluation_seconds"):
            values = self._evaluate(trials) if values is None else values
        _check_values(values, len(trials), campaign.dtype)
        with row.rest("update_seconds"):
            self._tell(trials, values, row)
            campaign.state.update()
            model = self._built()
            model.process()  # bringing the posterior up to date belongs to the update
        self._account(model, row)
        with row.rest("score_seconds"):
            self._score(model, row)
        self._rows.append({name: row[name] for name in self._columns})
        self._inside_step = False
        if self.callback is not None:
            self.callback(self._rows[-1])
        return self._rows[-1]

    def _new_row(self) -> TimedRow:
        return TimedRow(self._columns, self._clock)

    def _account(self, model: StreamingGP, row: TimedRow) -> None:
        """Fill in the counts and sums of seconds."""
        row["n"], row["bytes"] = model.num_observed, model.state_bytes
        row["behind"] = self.campaign.state.engine.behind
        row["step_seconds"] = sum(row[f"{part}_seconds"] for part in PARTS)
        row["cpu_seconds"] = row.spent_on(OPTIMISER)
        before = self._rows[-1]["wallclock_seconds"] if self._rows else 0.0
        row["wallclock_seconds"] = row["step_seconds"] + before

    def _check_started(self) -> None:
        if not self._rows:
            raise StateError("a run that was started", "none", "Call start() or run() first.")

    def _check_not_started(self) -> None:
        if self._rows:
            raise StateError(
                "a run that was not started", "one that was", "Call run() to continue."
            )

    def _built(self) -> StreamingGP:
        model = self.model
        if model is None:
            trials = self.campaign.trials()
            raise InputError(
                "two finite values to start with",
                f"{(trials['status'] == 'told').sum()} of {len(trials)}",
                "Run it again with other initial trials, or with more of them.",
            )
        return model


def _check_values(values: Any, count: int, dtype: torch.dtype) -> None:
    """Refuse values that cannot belong to the trials."""
    shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
    if shape != (count, 1):
        raise ShapeError(
            f"values of shape {(count, 1)}",
            f"{shape}",
            "Return one row for each point, NaN where an evaluation failed.",
        )
    if values.dtype != dtype:
        raise DtypeError(f"values of {dtype}", f"{values.dtype}", "Return the dtype of the points.")
