"""How far a long command is: a bar on a terminal, a line now and then where output is piped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

EVERY = 20.0
"""Seconds between two lines, at least."""


def say(line: str) -> None:
    """Print a line now, not when a pipe's buffer is full."""
    print(line, flush=True)


class Progress:
    """Counts parts that are done, and shows how many, with an estimate of the time left."""

    def __init__(
        self,
        total: int,
        parts: str,
        tell: Callable[[str], object] = say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.parts, self.done = total, parts, 0
        self._tell, self._clock, self._began = tell, clock, clock()
        self._told = self._began
        columns = (parts, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, "{task.description}", disable=not sys.stdout.isatty())
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def __call__(self, note: str = "", done: int = 1, urgent: bool = False) -> None:
        """So many parts more are done (0: only time has passed); ``note`` says which.

        An urgent note is shown whenever it comes.
        """
        self.done += done
        self._bar.update(self._task, completed=self.done, description=note)
        now = self._clock()
        if urgent or (self._bar.disable and now - self._told >= EVERY):
            self._told, spent = now, now - self._began
            line = f"  {self.done} of {self.total} {self.parts} after {duration(spent)}"
            if 0 < self.done < self.total:
                line += f", about {duration(spent * (self.total / self.done - 1.0))} to go"
            self._tell(f"{line}; {note}" if note else line)


def duration(seconds: float) -> str:
    """Seconds in words of the largest unit that fits."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
