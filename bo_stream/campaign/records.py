"""Seconds that a campaign has spent, by part."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Row"]


class Row(dict[str, Any]):
    """Numbers by column: seconds and counts start at 0, all others at NaN."""

    def __init__(self, columns: Iterable[str]) -> None:
        counts = ("_seconds", "_evaluations")
        super().__init__({name: 0 if name.endswith(counts) else float("nan") for name in columns})

    @contextmanager
    def timed(self, column: str) -> Iterator[None]:
        """Add the seconds of the block to a column, unless it raises an error."""
        begin = time.perf_counter()
        yield
        self[column] = self.get(column, 0) + time.perf_counter() - begin
