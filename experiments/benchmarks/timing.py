"""Medians of alternated repetitions, in units of one Cholesky factorisation on the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch

__all__ = ["alternated", "cholesky", "seconds"]


def seconds(f: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def alternated(
    tasks: Mapping[str, Callable[[], object]], repetitions: int
) -> dict[str, list[float]]:
    """Seconds of each task, taken in turn so that all meet the same machine; one warm-up each."""
    for task in tasks.values():
        task()
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repetitions):
        for name, task in tasks.items():
            times[name].append(seconds(task))
    return times


def ratio(times: Mapping[str, list[float]], name: str, unit: str) -> float:
    """Median of a task over the median of another."""
    return statistics.median(times[name]) / statistics.median(times[unit])


def cholesky(m: int) -> Callable[[], object]:
    """The unit ``c(m)``: one ``m x m`` float64 Cholesky factorisation."""
    root = torch.randn(m, m, dtype=torch.float64)
    K = root @ root.mT + m * torch.eye(m, dtype=torch.float64)
    return lambda: torch.linalg.cholesky(K)
