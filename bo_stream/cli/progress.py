"""Progress of a run: live facts on a terminal, otherwise a line from time to time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TextIO

import pandas as pd
from rich.console import Console
from rich.live import Live
from rich.text import Text

from bo_stream.campaign.campaign import Callback, Campaign
from bo_stream.cli.formatting import lines, recommendation, seconds_by_part, so_far

__all__ = ["RunProgress"]

EVERY = 20.0
"""Minimum seconds between two lines."""


class RunProgress(Callback):
    """Shows the progress of a run.

    Args:
        out: Where to write: facts that are kept up to date if it is a terminal, otherwise lines.
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
        self._live = Live(console=Console(file=out), auto_refresh=False) if out.isatty() else None
        self._started, self._written = clock(), -math.inf

    def after_ask(self, campaign: Campaign, frame: pd.DataFrame) -> None:
        """Update what a terminal shows."""
        if self._live is not None:
            self._show(campaign)

    def after_tell(self, campaign: Campaign, frame: pd.DataFrame) -> None:
        """Update a terminal, or write a line if the last one is old enough."""
        if self._live is not None or self._clock() - self._written >= self._every:
            self._show(campaign)

    def at_end(self, campaign: Campaign) -> None:
        """Show the final state, and what is recommended."""
        self._show(campaign, recommendation(campaign))
        if self._live is not None:
            self._live.stop()

    def _show(self, campaign: Campaign, recommended: str | None = None) -> None:
        facts = so_far(campaign, self.optimum)
        facts["trials"] += f" (budget {self.budget})"
        facts["time"] = f"{self._clock() - self._started:.0f} s"
        facts["of which"] = seconds_by_part(campaign.ledger.row)
        if recommended:
            facts["recommended"] = recommended
        if self._live is not None:
            self._live.start()
            self._live.update(Text(lines(facts)), refresh=True)
            return
        self._written = self._clock()
        print(
            "; ".join(f"{name} {fact}" for name, fact in facts.items()), file=self.out, flush=True
        )
