"""How much longer a sweep takes, told from the runs that have ended."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from statistics import fmean

from experiments.common.sweep_claims import Outcome

__all__ = ["Left"]


class Left:
    """The time left of a sweep.

    A step of one run may take a thousand times as long as one of another. So a run is expected to
    take as long a step as those that differ from it in the number at the end of their names alone,
    its seed; or as long as the mean of all, if none of these has ended.

    Args:
        steps: Of each run that is to be done, by stem.
        clock: What tells the time.
    """

    def __init__(
        self, steps: Mapping[str, int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._steps, self._clock = steps, clock
        self._began = clock()
        self._reached: dict[str, int] = {}
        self._over: dict[str, Outcome] = {}

    def row(self, stem: str, step: int) -> None:
        """A run has reached a step."""
        self._reached[stem] = step

    def ended(self, outcome: Outcome) -> None:
        """A run has ended."""
        self._over[outcome.stem] = outcome

    def seconds(self) -> float | None:
        """Estimate of the time left; None if nothing has been done yet."""
        paces: dict[str, list[float]] = {}
        for stem, outcome in self._over.items():
            if not outcome.failed and stem in self._steps:
                pace = outcome.seconds / max(self._steps[stem], 1)
                paces.setdefault(_kind(stem), []).append(pace)
        ended = [o.seconds for o in self._over.values() if not o.failed]
        typical = fmean(ended) if ended else 1.0
        done = left = 0.0
        for stem, steps in self._steps.items():
            if stem in self._over:
                done += self._over[stem].seconds
                continue
            known = paces.get(_kind(stem))
            whole = fmean(known) * steps if known else typical
            part = min(self._reached.get(stem, 0) / max(steps, 1), 1.0)
            done, left = done + part * whole, left + (1.0 - part) * whole
        return (self._clock() - self._began) * left / done if done else None


def _kind(stem: str) -> str:
    return re.sub(r"_\d+$", "", stem)
