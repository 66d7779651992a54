"""A line now and then that says how far a long command has come."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Progress", "duration", "say"]

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
        left: Estimates the seconds left, None if it cannot; by the parts that are done if None.
    """

    def __init__(
        self,
        total: int,
        parts: str,
        every: float | None = None,
        tell: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        left: Callable[[], float | None] | None = None,
    ) -> None:
        self.total = total
        self.parts = parts
        self.done = 0
        self._every = EVERY if every is None else every
        self._tell, self._clock = tell or say, clock
        self._left = left or self._by_parts
        self._began = self._told = clock()

    def __call__(self, note: str = "", done: int = 1) -> None:
        """So many parts more are done (0: only time has passed); ``note`` says which."""
        self.done += done
        now = self._clock()
        if now - self._told < self._every:
            return
        self._told = now
        spent = duration(now - self._began)
        line = f"  {self.done} of {self.total} {self.parts} after {spent}"
        left = self._left() if self.done < self.total else None
        if left is not None:
            line += f", about {duration(left)} to go at this rate"
        self._tell(f"{line}; {note}" if note else line)

    def _by_parts(self) -> float | None:
        spent = self._clock() - self._began
        return spent * (self.total - self.done) / self.done if self.done else None


def duration(seconds: float) -> str:
    """Seconds in words of the largest unit that fits."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
