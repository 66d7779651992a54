"""Rows with timings of loops, and the environment that they were made in."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from bo_stream.campaign.effort import Row

__all__ = ["Clock", "TimedRow", "clock", "environment"]

_PACKAGES = ("bo_stream", "torch", "botorch", "gpytorch", "linear_operator", "numpy", "pandas")


Clock = Callable[[], tuple[float, float]]
"""Returns wall-clock seconds and processor seconds."""


def clock() -> tuple[float, float]:
    """Seconds of the wall clock, and of processor time of all threads of this process."""
    return time.perf_counter(), time.process_time()


class TimedRow(Row):
    """One row of the table of a loop, with processor seconds beside those of the wall clock.

    Args:
        columns: Names of the columns. Seconds and counts start at 0, all others at NaN.
        clock: Returns wall-clock seconds and processor seconds.

    Attributes:
        processor: Processor seconds of every column of seconds.
    """

    def __init__(self, columns: Iterable[str], clock: Clock = clock) -> None:
        super().__init__(columns)
        self._seconds = [name for name in self if name.endswith("_seconds")]
        self.processor: dict[str, float] = {}
        self._clock = clock

    @contextmanager
    def timed(self, column: str) -> Iterator[None]:
        """Add the seconds of the block to a column."""
        wall, processor = self._clock()
        yield
        self._add(column, wall, processor)

    @contextmanager
    def rest(self, column: str) -> Iterator[None]:
        """Add those seconds of the block to a column that no other column received.

        Seconds under a name that is not a column of the row (``store_seconds``, in a study) count
        as not received, so that no time is lost.
        """
        wall, processor = self._clock()
        before, processor_before = self._sum(), sum(self.processor.values())
        yield
        received = self._sum() - before
        self._add(
            column, wall + received, processor + sum(self.processor.values()) - processor_before
        )

    def spent_on(self, columns: Iterable[str]) -> float:
        """Processor seconds of some columns together."""
        return sum(self.processor.get(column, 0.0) for column in columns)

    def _add(self, column: str, wall: float, processor: float) -> None:
        """Add what has passed since two readings of the clock."""
        now, processor_now = self._clock()
        self[column] = self.get(column, 0) + now - wall
        self.processor[column] = self.processor.get(column, 0.0) + processor_now - processor

    def _sum(self) -> float:
        return float(sum(self[name] for name in self._seconds))


def environment() -> dict[str, Any]:
    """Versions, threads and processor, which a timing depends on."""
    return {
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in _PACKAGES}},
        "torch_threads": torch.get_num_threads(),
        "cpu": _cpu(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    """Name of the processor, if it can be read."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
