"""The progress of a sweep: bars on a terminal, a line now and then where output is piped."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from experiments.common.progress import Progress, duration, say
from experiments.common.sweep_claims import Outcome
from experiments.common.sweep_left import Left
from experiments.common.sweep_work import Run

__all__ = ["Display", "Note", "Show", "watching"]

Note = Callable[[Mapping[str, Any]], str]
"""Says in a few words what a row is about."""


class Display(Protocol):
    """Shows a sweep; its methods may be called from several threads."""

    def row(self, stem: str, step: int, row: Mapping[str, Any]) -> None:
        """A run has reached a step."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """A run has ended."""
        ...

    def close(self) -> None:
        """The sweep has ended or was interrupted."""
        ...


Show = Callable[[Sequence[Run]], Display]
"""Makes a display of the runs that are to be done."""


def watching(note: Note | None = None) -> Show:
    """A display on standard output.

    Args:
        note: What is shown of a row beside its step; nothing by default.
    """
    shown = note or (lambda row: "")
    return partial(_Bars if sys.stdout.isatty() else _Lines, shown)


class _Lines:
    """A line now and then, and one at once for each run that fails."""

    def __init__(self, note: Note, runs: Sequence[Run]) -> None:
        self.note, self.steps = note, {run.stem: run.steps for run in runs}
        self.left = Left(self.steps)
        self.progress = Progress(sum(self.steps.values()), "steps", left=self.left.seconds)
        self._last: dict[str, tuple[int, str]] = {}
        self._over = set[str]()
        self._lock = threading.Lock()

    def row(self, stem: str, step: int, row: Mapping[str, Any]) -> None:
        with self._lock:
            self._tell(stem, step, self.note(row))

    def ended(self, outcome: Outcome) -> None:
        if outcome.failed:
            say(f"  {outcome.stem} failed: {outcome.reason}")
        with self._lock:
            self.left.ended(outcome)
            self._tell(outcome.stem, self.steps.get(outcome.stem, 0), outcome.state)
            self._over.add(outcome.stem)

    def close(self) -> None:
        pass

    def _tell(self, stem: str, step: int, text: str) -> None:
        before = self._last.get(stem, (0, ""))
        if (step, text) == before or stem not in self.steps or stem in self._over:
            return
        self._last[stem] = (step, text)
        self.left.row(stem, step)
        self.progress(f"{stem}: {text}" if text else stem, done=step - before[0])


class _Bars:
    """A bar for the sweep with the time left, and one for each run under way."""

    def __init__(self, note: Note, runs: Sequence[Run]) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self.note, self.steps = note, {run.stem: run.steps for run in runs}
        self.left = Left(self.steps)
        self.bars = Bars(
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            "{task.fields[note]}",
        )
        self.whole = self.bars.add_task("all steps", total=sum(self.steps.values()), note="")
        self._tasks: dict[str, Any] = {}
        self._done: dict[str, int] = {}
        self._over = set[str]()
        self._lock = threading.Lock()
        self.bars.start()

    def row(self, stem: str, step: int, row: Mapping[str, Any]) -> None:
        with self._lock:
            if stem not in self.steps or stem in self._over:
                return
            if stem not in self._tasks:
                self._tasks[stem] = self.bars.add_task(stem, total=self.steps[stem], note="")
            self.bars.update(self._tasks[stem], completed=step, note=self.note(row))
            self._advance(stem, step)

    def ended(self, outcome: Outcome) -> None:
        with self._lock:
            self._over.add(outcome.stem)
            self.left.ended(outcome)
            if outcome.failed:
                text = f"{outcome.stem} failed: {outcome.reason}"
                self.bars.console.print(text, markup=False, highlight=False)
            task = self._tasks.pop(outcome.stem, None)
            if task is not None:
                self.bars.remove_task(task)
            self._advance(outcome.stem, self.steps.get(outcome.stem, 0))

    def close(self) -> None:
        self.bars.stop()

    def _advance(self, stem: str, step: int) -> None:
        self._done[stem] = step
        self.left.row(stem, step)
        left, done = self.left.seconds(), sum(self._done.values())
        note = f"about {duration(left)} to go" if left else ""
        self.bars.update(self.whole, completed=done, note=note)
