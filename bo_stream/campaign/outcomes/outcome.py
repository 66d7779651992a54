"""One kind of outcome, a column that is measured: `Measured`, `Completed`, or a `Count`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_stream.base.checks import largest_outcome
from bo_stream.campaign.history import Entry, Log, Trial, TrialHistory
from bo_stream.campaign.space.columns import column, numbers
from bo_stream.errors import NoiseError

__all__ = ["COMPLETED", "LARGEST", "Completed", "Measured", "Outcome", "noise_column"]

LARGEST = largest_outcome()
"""The largest outcome, in size, that can be learned."""

COMPLETED = "completed"
"""Column of `Completed`, which no frame has."""

COMPLETION_NOISE = 0.02
"""Variance of the noise of `Completed`, which a smooth function follows with some: less makes a
process ring beside its jump, and more hides a single failure."""


def noise_column(outcome: str) -> str:
    """The column with the noise variances of an outcome."""
    return "yvar" if outcome == "y" else f"{outcome}_var"


class Outcome(ABC):
    """One column that is measured. An entry of a trial is its value, and a second number.

    Attributes:
        column: The column of values.
        sign: Factor of values that makes larger ones better.
        variance: Variance of the noise of every value, if it is known.
    """

    column: str
    sign: float
    variance: float | None = None

    # -- frames ----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def second(self) -> str | None:
        """The column of the second numbers of entries: noise variances or sizes; None for none."""

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The columns to be filled in."""

    @property
    def known_columns(self) -> list[str]:
        """The columns to be filled in, then those that may be."""
        return list(dict.fromkeys(name for name in (*self.columns, self.second) if name))

    @abstractmethod
    def read(self, frame: pd.DataFrame, earlier: Entry | None) -> list[Entry | None]:
        """Entries of the rows of a frame; None where there is none.

        Args:
            frame: A frame.
            earlier: The entry of an earlier trial, if there is one.

        Raises:
            InputError: for a missing column and invalid values.
            NoiseError: for invalid noise variances, or some in part of a campaign only.
        """

    def unmeasured(self, frame: pd.DataFrame) -> dict[str, np.ndarray]:
        """Rows that are to be left out with a warning, each ``n``, by what they are."""
        return {}

    def shown(self, entries: Sequence[Entry | None]) -> dict[str, np.ndarray]:
        """Columns of entries, NaN where there is none; the second one if any is known."""
        values, second = _arrays([entry or (None, None) for entry in entries])
        shown = {self.column: values}
        if self.second is not None and not np.isnan(second).all():
            shown[self.second] = second
        return shown

    def cells(self, entry: Entry) -> dict[str, float]:
        """An entry as cells of a frame."""
        named = zip((self.column, self.second), entry, strict=True)
        return {name: value for name, value in named if name and value is not None}

    def text(self, entry: Entry) -> str:
        """An entry in words."""
        return repr(entry[0])

    # -- what is learned -------------------------------------------------------------------------

    def log_of(self, history: TrialHistory) -> Log:
        """The trials that have an entry."""
        return history.logs[self.column]

    def entry_of(self, trial: Trial) -> Entry | None:
        """The entry of a trial, if it has one."""
        return trial.entries.get(self.column)

    def tensors(self, entries: Sequence[Entry], like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Values to be maximised, and noise variances (of counts, sizes) if known, each ``n x 1``.

        Args:
            entries: Those of ``n`` trials.
            like: A tensor of the dtype and device to use.
        """
        values, second = (torch.from_numpy(one).unsqueeze(-1).to(like) for one in _arrays(entries))
        Y = self.sign * values
        if not second.isnan().any():
            return Y, second
        return Y, None if self.variance is None else torch.full_like(Y, self.variance)


@dataclass(frozen=True)
class Measured(Outcome):
    """A number that is measured with noise; an entry is the number and its noise variance."""

    column: str
    sign: float = 1.0
    variance: float | None = None

    @property
    def second(self) -> str | None:
        """The column of noise variances."""
        return noise_column(self.column)

    @property
    def columns(self) -> list[str]:
        """The column of values."""
        return [self.column]

    def read(self, frame: pd.DataFrame, earlier: Entry | None) -> list[Entry | None]:
        """Values and variances; an empty cell is no entry."""
        present = column(frame, self.column).notna().to_numpy()
        part = frame[present]
        values = numbers(part, self.column, LARGEST).tolist()
        entries: list[Entry | None] = [None] * len(frame)
        read = zip(values, self._variances(part, earlier), strict=True)
        for row, entry in zip(np.flatnonzero(present), read, strict=True):
            entries[row] = entry
        return entries

    def _variances(self, frame: pd.DataFrame, earlier: Entry | None) -> list[float | None]:
        name = noise_column(self.column)
        present = name in frame
        known = present if earlier is None else earlier[1] is not None
        if len(frame) and present != known:
            raise NoiseError(
                f"outcomes {'with' if known else 'without'} a column {name!r}, as before",
                "one" if present else "none",
                "Give noise variances for all outcomes of a column or for none of them.",
            )
        if not present:
            return [None] * len(frame)
        variances = numbers(frame, name, LARGEST**2)
        if (variances <= 0.0).any():
            raise NoiseError(
                f"positive noise variances in {name!r}", f"{variances.min():g}", "Give variances."
            )
        return list(variances.tolist())


@dataclass(frozen=True)
class Completed(Measured):
    """Whether trials are completed: 1 of told ones, and 0 of failed ones; nothing is filled in."""

    column: str = COMPLETED
    variance: float | None = COMPLETION_NOISE

    def log_of(self, history: TrialHistory) -> Log:
        """The trials that were told or have failed."""
        return history.completed

    def entry_of(self, trial: Trial) -> Entry | None:
        """1 or 0, without a noise variance of its own."""
        return float(trial.status == "told"), None


def _arrays(entries: Sequence[tuple[float | None, float | None]]) -> tuple[np.ndarray, np.ndarray]:
    """The two numbers of entries as columns, each ``n``, NaN for None."""
    table = np.array(entries, dtype=np.float64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()
