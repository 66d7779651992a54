"""Medians of alternated repetitions, in units of one Cholesky factorisation on the same machine."""

import random
import statistics
import time
from collections.abc import Callable, Mapping

import torch

Clock = Callable[[], float]


def clock_on(device: torch.device, idle: Clock = time.process_time) -> Clock:
    """A clock for work on a device: ``idle`` for the processor, by default its own seconds.

    On a CUDA device it is the wall clock, read when all work that was queued is done.
    """

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised if device.type == "cuda" else idle


def loop_clock(device: torch.device) -> Callable[[], tuple[float, float]]:
    """A clock of wall-clock and processor seconds for simulated loops on a device."""
    now = clock_on(device, time.perf_counter)
    return lambda: (now(), time.process_time())


def seconds(f: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """Seconds of one call: wall-clock, or by `time.process_time` where others use the machine."""
    start = clock()
    f()
    return clock() - start


def alternated(
    tasks: Mapping[str, Callable[[], object]], repetitions: int, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each task, taken in turn so that all meet the same machine; one warm-up each.

    The order is drawn anew: a fixed one can fall into step with the scheduler of a busy machine.
    """
    for task in tasks.values():
        task()
    times: dict[str, list[float]] = {name: [] for name in tasks}
    order, shuffler = list(tasks.items()), random.Random(0)
    for _ in range(repetitions):
        shuffler.shuffle(order)
        for name, task in order:
            times[name].append(seconds(task, clock))
    return times


def ratio(times: Mapping[str, list[float]], name: str, unit: str) -> float:
    """Median of a task over the median of another."""
    return statistics.median(times[name]) / statistics.median(times[unit])


def cholesky(m: int, device: torch.device | str = "cpu") -> Callable[[], object]:
    """The unit ``c(m)``: one ``m x m`` float64 Cholesky factorisation."""
    root = torch.randn(m, m, dtype=torch.float64, device=device)
    K = root @ root.mT + m * torch.eye(m).to(root)
    return lambda: torch.linalg.cholesky(K)
