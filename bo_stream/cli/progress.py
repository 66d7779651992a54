"""Progress of a run: a live table on a terminal, otherwise a line from time to time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from bo_stream.campaign.campaign import Callback
from bo_stream.cli.formatting import (
    best_trial,
    count_by_status,
    front,
    recommendation,
    regret,
    seconds_by_part,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from bo_stream.campaign.campaign import Campaign

__all__ = ["RunProgress"]

EVERY = 20.0
"""Minimum seconds between two lines."""


class RunProgress(Callback):
    """Shows the progress of a run while it is entered as a context.

    Args:
        out: Where to write: a live table if it is a terminal, otherwise plain lines.
        budget: Number of trials in all.
        optimum: The best possible outcome, if known.
        every: Seconds between two lines; the first comes with the first outcome.
        clock: Returns seconds.
    """

    def __init__(
        self,
        out: TextIO,
        budget: int,
        optimum: float | None = None,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.out, self.budget, self.optimum = out, budget, optimum
        self._every, self._clock = every, clock
        self._live = _live(out) if out.isatty() else None
        self._started, self._written = clock(), -math.inf

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def after_ask(self, campaign: Campaign, frame: pd.DataFrame) -> None:
        """Update the table."""
        if self._live is not None:
            self._show(campaign)

    def after_tell(self, campaign: Campaign, frame: pd.DataFrame) -> None:
        """Update the table, or write a line if the last one is old enough."""
        if self._live is not None or self._clock() - self._written >= self._every:
            self._show(campaign)

    def at_end(self, campaign: Campaign) -> None:
        """Show the final state, and what is recommended."""
        self._show(campaign, ended=True)

    def _show(self, campaign: Campaign, ended: bool = False) -> None:
        facts = self._facts(campaign)
        if ended and (found := recommendation(campaign, campaign.trials())):
            facts["recommended"] = found
        if self._live is not None:
            self._live.update(_table(facts), refresh=True)
            return
        self._written = self._clock()
        self.out.write("; ".join(f"{name} {fact}" for name, fact in facts.items()) + "\n")
        self.out.flush()

    def _facts(self, campaign: Campaign) -> dict[str, str]:
        """Facts to show, by name."""
        trials = campaign.trials()
        facts = {"trials": f"{count_by_status(trials)} (budget {self.budget})"}
        best, left = best_trial(campaign, trials), regret(campaign, trials, self.optimum)
        if best is not None:
            facts["best"] = best
        if found := front(campaign):
            facts["front"] = found
        if left is not None:
            facts["regret"] = f"{left:.3g}"
        facts["time"] = f"{self._clock() - self._started:.0f} s"
        if spent := seconds_by_part(campaign.ledger.row):
            facts["of which"] = spent
        return facts


def _live(out: TextIO) -> Any:
    from rich.console import Console
    from rich.live import Live

    return Live(console=Console(file=out), auto_refresh=False)


def _table(facts: dict[str, str]) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, fact in facts.items():
        table.add_row(name, fact)
    return table
