"""One kind of outcome, a column that is measured: `Outcome`, `Completed`, or a `Count`.

`Observations` are outcomes as tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd

from bo_stream.campaign.history import Entry, Log, Trial, TrialHistory
from bo_stream.campaign.names import column, numbers
from bo_stream.errors import NoiseError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "COMPLETED",
    "LARGEST",
    "SPREADS",
    "Completed",
    "Observations",
    "Outcome",
    "least_learned",
    "noise_column",
]

LARGEST = 1e-4 * float(np.finfo(np.float64).max) ** 0.5
"""The largest outcome, in size, that can be learned: `bo_stream.base.units.largest_outcome`."""

COMPLETED = "completed"
"""Column of `Completed`, which no frame has."""

COMPLETION_NOISE = 0.02
"""Variance of the noise of `Completed`, which a smooth function follows with some: less makes a
process ring beside its jump, and more hides a single failure."""


TOP, LATEST, BEST = 256, 64, 16
"""Number of the highest outcomes, in all, and of the latest ones that the best point is among, and
of points where a search for it begins."""

SPREADS = 20.0
"""Worse outcomes than so many spreads below the median are learned as if they were there."""

EARLY = 20
"""Number of first outcomes whose spread counts, too: later ones may all be near the optimum."""

FEWEST = 4


def noise_column(outcome: str) -> str:
    """The column with the noise variances of an outcome."""
    return "yvar" if outcome == "y" else f"{outcome}_var"


@dataclass(frozen=True)
class Outcome:
    """One column that is measured. An entry of a trial is its value, and a second number.

    This is a number that is measured with noise, and the second number is the noise variance.

    Attributes:
        column: The column of values.
        sign: Factor of values that makes larger ones better.
        variance: Variance of the noise of every value, if it is known.
    """

    column: str
    sign: float = 1.0
    variance: float | None = None

    # -- frames ----------------------------------------------------------------------------------

    @property
    def second(self) -> str | None:
        """The column of the second numbers of entries: noise variances or sizes; None for none."""
        return noise_column(self.column)

    @property
    def columns(self) -> list[str]:
        """The columns to be filled in."""
        return [self.column]

    @property
    def known_columns(self) -> list[str]:
        """The columns to be filled in, then those that may be."""
        return list(dict.fromkeys(name for name in (*self.columns, self.second) if name))

    def read(self, frame: pd.DataFrame, earlier: Entry | None) -> list[Entry | None]:
        """Entries of the rows of a frame; None where there is none.

        Args:
            frame: A frame.
            earlier: The entry of an earlier trial, if there is one.

        Raises:
            InputError: for a missing column and invalid values.
            NoiseError: for invalid noise variances, or some in part of a campaign only.
        """
        present = column(frame, self.column).notna().to_numpy()
        part = frame if present.all() else frame[present]
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

    def text(self, entry: Entry) -> str:
        """An entry in words."""
        return repr(entry[0]) if entry[1] is None else f"{entry[0]!r} with variance {entry[1]!r}"

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
        import torch  # not at the top: most commands of a campaign need no tensors

        values, second = (torch.from_numpy(one).unsqueeze(-1).to(like) for one in _arrays(entries))
        Y = self.sign * values
        if not second.isnan().any():
            return Y, second
        return Y, None if self.variance is None else torch.full_like(Y, self.variance)


@dataclass(frozen=True)
class Completed(Outcome):
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


@dataclass(frozen=True)
class Observations:
    """Outcomes in the order they were told, in the surrogate's coordinates. Immutable.

    Attributes:
        X: ``n x d``.
        Y: ``n x 1``, to be maximised; of several outcomes ``n x m``, NaN where one is missing.
        Yvar: ``n x 1``, or None where noise is learned. Of counts: their trials or exposures.
        batches: Number of batches.
        counts: Whether the outcomes are counts.
        revision: That of the log of which they are; see `bo_stream.campaign.history.Log`.
    """

    X: Tensor
    Y: Tensor
    Yvar: Tensor | None = None
    batches: int = 0
    counts: bool = False
    revision: int = 0

    @classmethod
    def none(cls, bounds: Tensor, counts: bool, revision: int = 0) -> Self:
        """No observations yet, in a box ``2 x d``."""
        X = bounds[:0]
        return cls(X, X[:, :1], counts=counts, revision=revision)

    def extended(self, X: Tensor, Y: Tensor, Yvar: Tensor | None, batches: int = 1) -> Observations:
        """The observations with the outcomes of further batches."""
        import torch

        noise = Yvar
        if self.Yvar is not None and Yvar is not None:
            noise = torch.cat([self.Yvar, Yvar])
        X, Y = torch.cat([self.X, X]), torch.cat([self.Y, Y])
        return replace(self, X=X, Y=Y, Yvar=noise, batches=self.batches + batches)

    def bounded(self, least: float) -> Observations:
        """The observations with outcomes below a limit in its place."""
        return replace(self, Y=self.Y.clamp_min(least))

    def part(self, rows: slice) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y and Yvar of some of them."""
        return self.X[rows], self.Y[rows], None if self.Yvar is None else self.Yvar[rows]

    @property
    def _values(self) -> Tensor:
        """What orders the points, ``n x m``: outcomes, or the rates of counts."""
        return self.Y / self.Yvar if self.counts and self.Yvar is not None else self.Y

    @property
    def complete(self) -> tuple[Tensor, Tensor]:
        """Points ``k x d`` with all outcomes, and the first outcome there, ``k``."""
        rows = ~self.Y.isnan().any(-1)
        return self.X[rows], self.Y[rows, 0]

    @property
    def range(self) -> Tensor:
        """The highest minus the lowest outcome, or rate of counts, 0-dim."""
        return self._values.amax() - self._values.amin()

    @property
    def typical_size(self) -> float | None:
        """The median of the trials or exposures of counts; None for other outcomes."""
        return float(self.Yvar.median()) if self.counts and self.Yvar is not None else None

    def candidates(self) -> Tensor:
        """Points that may matter for the next trials: of the highest outcomes, and the latest.

        Their number is bounded whatever n is.
        """
        import torch

        n, m = self.Y.shape
        if n <= TOP + LATEST:
            return self.X
        old = self._values[: n - LATEST].nan_to_num(-torch.inf)
        best = [values.topk(TOP // m).indices for values in old.unbind(-1)]
        return self.X[torch.cat([*best, torch.arange(n - LATEST, n)]).unique()]

    def best(self) -> Tensor:
        """The points of the highest outcomes, best first, ``k x d``; of several the latest ones."""
        if self.Y.shape[-1] > 1:
            return self.X[-LATEST:]
        return self.X[self._values[:, 0].topk(min(BEST, len(self.Y))).indices]


def least_learned(Y: Tensor) -> float:
    """The least outcome to learn, of those to be maximised, ``n x 1``: O(n log n).

    Penalties then do not hide what is worth knowing.
    The spread is twice the distance from the median to the upper quartile, so that less than half
    of the outcomes, the bad ones, do not move it: of the first 20 outcomes or of all, whichever is
    larger. The median is the lower of the two. Without a spread there is no limit.
    """
    if len(Y) < FEWEST:
        return -math.inf
    parts = [_centre_and_spread(part[:, 0]) for part in (Y[:EARLY], Y)]
    centre, spread = min(c for c, _ in parts), max(s for _, s in parts)
    limit = centre - SPREADS * spread
    return limit if spread > 0.0 and math.isfinite(limit) else -math.inf


def _centre_and_spread(values: Tensor) -> tuple[float, float]:
    ordered, last = values.sort().values, len(values) - 1
    centre = float(ordered[last // 2])
    return centre, 2.0 * (float(ordered[-(-3 * last // 4)]) - centre)
