"""A line now and then that says how far a long command has come."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Progress", "say"]

EVERY = 20.0
"""Seconds between two lines, at least."""


def say(line: str) -> None:
    """Print a line now, not when a pipe's buffer is full."""
    print(line, flush=True)


class Progress:
    """Counts parts that are done and says so now and then, whether output is piped or not.

    Args:
        total: Parts in all.
        parts: What they are called, in the plural.
        every: Seconds between two lines, at least; `EVERY` if None.
        tell: Where a line goes; printed if None.
        clock: What tells the time.
    """

    def __init__(
        self,
        total: int,
        parts: str,
        every: float | None = None,
        tell: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total = total
        self.parts = parts
        self.done = 0
        self._every = EVERY if every is None else every
        self._tell, self._clock = tell or say, clock
        self._began = self._told = clock()

    def __call__(self, note: str = "", done: int = 1) -> None:
        """So many parts more are done (0: only time has passed); ``note`` says which."""
        self.done += done
        now = self._clock()
        if now - self._told < self._every:
            return
        self._told = now
        spent = now - self._began
        line = f"  {self.done} of {self.total} {self.parts} after {_duration(spent)}"
        if 0 < self.done < self.total:
            left = spent * (self.total - self.done) / self.done
            line += f", about {_duration(left)} to go at this rate"
        self._tell(f"{line}; {note}" if note else line)


def _duration(seconds: float) -> str:
    """Seconds in words of the largest unit that fits."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
