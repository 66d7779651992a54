"""Records of a run: rows with timings, tables, and what is needed to read them later."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd
import torch

__all__ = ["Row", "environment", "write_table"]

_PACKAGES = ("bo_stream", "torch", "botorch", "gpytorch", "linear_operator", "numpy", "pandas")


class Row(dict[str, Any]):
    """One row under construction, its columns in a fixed order.

    Args:
        columns: Names of the columns; a column never set is NaN, seconds and counts start at 0.

    Attributes:
        processor: Seconds of processor time, those of all threads of this process, by the column
            that has the seconds of the clock.
    """

    def __init__(self, columns: Iterable[str]) -> None:
        counted = ("_seconds", "_evaluations")
        super().__init__({name: 0 if name.endswith(counted) else float("nan") for name in columns})
        self._seconds = [name for name in self if name.endswith("_seconds")]
        self.processor: dict[str, float] = {}

    def copy(self) -> Row:
        """A row of its own with the same entries."""
        other = Row(())
        other.update(self)
        other._seconds, other.processor = self._seconds, dict(self.processor)
        return other

    @contextmanager
    def timed(self, column: str) -> Iterator[None]:
        """Add the seconds spent inside to a column, unless what is inside fails."""
        start, cpu = time.perf_counter(), time.process_time()
        yield
        self[column] = self.get(column, 0) + time.perf_counter() - start
        self._add(column, time.process_time() - cpu)

    @contextmanager
    def rest(self, column: str) -> Iterator[None]:
        """Add those seconds spent inside that no column got there, unless what is inside fails.

        Seconds under a name that is no column of the row (``store_seconds``, in a study) are among
        those added, so that no time is lost.
        """
        start, before = time.perf_counter(), self._spent
        cpu, known = time.process_time(), sum(self.processor.values())
        yield
        self[column] += time.perf_counter() - start - (self._spent - before)
        new = sum(self.processor.values()) - known
        self._add(column, time.process_time() - cpu - new)

    def spent_on(self, columns: Iterable[str]) -> float:
        """Seconds of processor time that are in these columns."""
        return sum(self.processor.get(column, 0.0) for column in columns)

    def _add(self, column: str, seconds: float) -> None:
        self.processor[column] = self.processor.get(column, 0.0) + seconds

    @property
    def _spent(self) -> float:
        return float(sum(self[name] for name in self._seconds))


def environment() -> dict[str, Any]:
    """Versions, threads and processor: what a timing means nothing without."""
    return {
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in _PACKAGES}},
        "torch_threads": torch.get_num_threads(),
        "cpu": _cpu(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "platform": f"{platform.system()} {platform.machine()}",
    }


def write_table(table: pd.DataFrame, path: str | PathLike[str], about: dict[str, Any]) -> None:
    """Write a table as CSV and, beside it under the suffix ``.json``, how it came about.

    Folders are made where they are missing.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(target, index=False)
    target.with_suffix(".json").write_text(json.dumps(about, indent=2, default=str) + "\n")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    """The processor's name, as well as it can be known."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
