"""How far a run has come: a live table on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from bo_stream.campaign.callbacks import Callback
from bo_stream.cli.formatting import counted, incumbent, regret, seconds

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from bo_stream.campaign.campaign import Campaign

__all__ = ["Progress"]

EVERY = 20.0
"""Seconds between two plain lines, at least."""


class Progress(Callback):
    """Shows a run while it is open as a context.

    Args:
        out: Where to: a live table if that is a terminal, else lines without control characters.
        budget: Measurements in all.
        optimum: The best outcome there can be, where known.
        every: Seconds between two plain lines; the first comes with the first outcome.
        clock: What tells the time.
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
        self._began, self._said = clock(), -math.inf

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
        """Show the trials that were begun."""
        if self._live is not None:
            self._show(campaign)

    def after_tell(self, campaign: Campaign, frame: pd.DataFrame) -> None:
        """Show what came out of them."""
        if self._live is not None or self._clock() - self._said >= self._every:
            self._show(campaign)

    def at_end(self, campaign: Campaign) -> None:
        """Show how it ended."""
        self._show(campaign)

    def _show(self, campaign: Campaign) -> None:
        facts = self._facts(campaign)
        if self._live is not None:
            self._live.update(_table(facts), refresh=True)
            return
        self._said = self._clock()
        self.out.write("; ".join(f"{name} {said}" for name, said in facts.items()) + "\n")
        self.out.flush()

    def _facts(self, campaign: Campaign) -> dict[str, str]:
        """What there is to say, by name."""
        trials = campaign.trials()
        facts = {"trials": f"{counted(trials)} (budget {self.budget})"}
        best, left = incumbent(campaign, trials), regret(campaign, trials, self.optimum)
        if best is not None:
            facts["best"] = best
        if left is not None:
            facts["regret"] = f"{left:.3g}"
        facts["time"] = f"{self._clock() - self._began:.0f} s"
        if spent := seconds(campaign.row):
            facts["of which"] = spent
        return facts


def _live(out: TextIO) -> Any:
    from rich.console import Console
    from rich.live import Live

    return Live(console=Console(file=out), auto_refresh=False)


def _table(facts: dict[str, str]) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, said in facts.items():
        table.add_row(name, said)
    return table
