"""Ingestion of CSV partitions by Dask workers: rows a second, and what bounds them.

Run `python -m experiments.benchmarks.ingest_cost` (add `--smoke` for a run of seconds). Writes
partitions of made-up rows to a temporary folder, then has one worker and several ingest them into a
WISKI of 900 nodes. The last columns are one process's seconds by part, measured without Dask:
reading, absorbing, merging. Workers have one thread each and are started and warm before the clock.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from dask.delayed import delayed
from distributed import Client, LocalCluster

from bo_stream import WISKI
from bo_stream.ingest import ingest
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.common.command import start
from experiments.common.progress import say

COLUMNS = ["a", "b"]
WORKERS = 2
"""Beside one."""


def measure(smoke: bool, device: torch.device) -> Tables:
    """A row for one worker, and one for several."""
    n, size = (4_000, 1_000) if smoke else (1_000_000, 50_000)
    lines, evidence = list[dict[str, float]](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        paths = written(Path(folder), n, size)
        for count in (1, WORKERS):
            seconds, used, value = ingested(paths, count)
            evidence.append(value)
            line = {"workers": count, "rows": n, "seconds": seconds, "CPU s": used}
            line["rows/s"] = n / seconds
            lines.append(line | {"rate": lines[0]["seconds"] / seconds if lines else 1.0})
        lines[0] |= by_part(paths)
    say(f"Relative difference of the evidence: {abs(evidence[0] / evidence[1] - 1.0):.1e}")
    yield "ingest_cost", pd.DataFrame(lines)


def written(folder: Path, n: int, size: int) -> list[Path]:
    """CSV files of ``size`` made-up rows each."""
    generator, paths = np.random.default_rng(0), []
    for done in range(0, n, size):
        table = pd.DataFrame(generator.random((min(size, n - done), 2)), columns=COLUMNS)
        noise = 0.3 * generator.standard_normal(len(table))
        table["y"] = np.sin(9.0 * table["a"]) * np.cos(7.0 * table["b"]) + noise
        paths.append(folder / f"{done:010d}.csv")
        table.to_csv(paths[-1], index=False)
    return paths


def empty() -> WISKI:
    """A surrogate on the unit square that takes outcomes as they are."""
    X = torch.empty(0, 2, dtype=torch.float64)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    return WISKI(X, X[:, :1], bounds=bounds, grid_size=30, outcome_transform=None)


def ingested(paths: Sequence[Path], workers: int) -> tuple[float, float, float]:
    """Seconds, processor seconds of all workers, and the evidence of what was ingested."""
    cluster = LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
    )
    model = empty()
    with cluster, Client(cluster) as client:
        client.run(warm)
        parts = [delayed(pd.read_csv)(path) for path in paths]
        used, start = sum(client.run(time.process_time).values()), time.perf_counter()
        ingest(model, parts, X=COLUMNS, Y="y")
        seconds = time.perf_counter() - start
        used = sum(client.run(time.process_time).values()) - used
    return seconds, used, float(model.log_evidence())


def by_part(paths: Sequence[Path]) -> dict[str, float]:
    """Seconds of one process by part, scaled from one partition to all."""
    start = time.perf_counter()
    table = pd.read_csv(paths[0])
    read = time.perf_counter() - start
    X, Y = (torch.tensor(table[names].to_numpy().copy()) for names in (COLUMNS, ["y"]))
    model, other = empty(), empty()
    start = time.perf_counter()
    for x, y in zip(X.split(4096), Y.split(4096), strict=True):
        model.observe(x, y)
    absorb = time.perf_counter() - start
    start = time.perf_counter()
    model.merge(other)
    merge = time.perf_counter() - start
    return {k: len(paths) * v for k, v in (("read", read), ("absorb", absorb), ("merge", merge))}


def warm() -> int:
    """Imports, and one thread, in a worker."""
    torch.set_num_threads(1)
    X = torch.rand(10, 2, dtype=torch.float64)
    return empty().observe(X, X[:, :1]).num_observed


app = benchmark(
    measure, "about a minute", __doc__, only_cpu="Dask's workers absorb tables on the processor."
)

if __name__ == "__main__":
    start(app)
