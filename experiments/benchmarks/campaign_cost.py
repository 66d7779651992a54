"""What a store costs a campaign: a durable `tell`, and a resume.

Run `python -m experiments.benchmarks.campaign_cost` (add `--smoke` for a run of seconds). WISKI on
its default grid in two inputs, a file of SQLite, outcomes told one by one. Limits: a `tell` costs
less than 10 ms (median) on top of the surrogate's update, also after 10,000 outcomes; a campaign of
10,000 outcomes comes back in less than 2 s once torch is imported, and fits nothing. Prints
wall-clock and, as the machine may be busy, processor time.
"""

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from bo_stream import Box, Campaign
from bo_stream.campaign.storage.sql_store import Database
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.common.command import start

NAME = "measured"
SPENT = ("update_seconds", "score_seconds")


def measure(smoke: bool, device: torch.device) -> Tables:
    """A row for a resume and for each part of a tell, after few outcomes and after many."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = ((40, 200), 10, 12) if smoke else ((100, 10_000), 100, None)
        yield "campaign_cost", pd.DataFrame(measured(Path(folder, "store.db"), *sizes))


def measured(
    file: Path, counts: Sequence[int], repetitions: int, grid_size: int | None
) -> list[dict[str, Any]]:
    """Rows of a campaign that is told outcomes until there are so many."""
    url, options = f"sqlite:///{file.absolute()}", {"name": "wiski", "grid_size": grid_size}
    box = Box({f"x{i}": (0.0, 1.0) for i in range(2)})
    campaign = Campaign(box, options, goal="minimise", store=Database(url), name=NAME, seed=0)
    told, rows = 0, list[dict[str, Any]]()
    for count in counts:
        while told < count:
            campaign.tell(outcome(told))
            told += 1
        campaign.state.update()
        size = sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))
        rows.append(resumes(url, count) | {"KiB": size / 1024})
        rows += tells(campaign, count, repetitions)
        told += repetitions
    return rows


def resumes(url: str, count: int) -> dict[str, Any]:
    """Medians of resuming, which must find all outcomes."""
    walls, cpus, fits = [], [], 0
    for _ in range(5):
        wall, cpu = time.perf_counter(), time.process_time()
        campaign = Campaign.resume(url, NAME)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        fits += campaign.ledger.row["fit_evaluations"]
        if campaign.model is None or campaign.model.num_observed != count:
            raise RuntimeError("the surrogate has not seen all outcomes")
    about = {"operation": "resume", "outcomes": count, "wall ms": ms(walls)}
    return about | {"processor ms": ms(cpus), "fits": fits}


def tells(campaign: Campaign, count: int, repetitions: int) -> list[dict[str, Any]]:
    """Medians of telling one outcome: in all, and its parts."""
    walls, surrogate, cpus = [], [], []
    for i in range(repetitions):
        frame = outcome(count + i)
        before = sum(campaign.ledger.row[name] for name in SPENT)
        wall, cpu = time.perf_counter(), time.process_time()
        campaign.tell(frame)
        cpus.append(time.process_time() - cpu)
        walls.append(time.perf_counter() - wall)
        surrogate.append(sum(campaign.ledger.row[name] for name in SPENT) - before)
    top = [wall - part for wall, part in zip(walls, surrogate, strict=True)]
    parts = {"on top of the surrogate": top, "the surrogate's part": surrogate, "all of it": walls}
    rows = [
        {"operation": f"tell, {k}", "outcomes": count, "wall ms": ms(v)} for k, v in parts.items()
    ]
    rows[-1]["processor ms"] = ms(cpus)
    return rows


def outcome(number: int) -> pd.DataFrame:
    """One point, drawn by its number, and a function of it."""
    X = np.random.default_rng(number).random((1, 2))
    y = np.sin(5.0 * X + np.arange(2)).sum(-1) + (X[:, 0] - 0.4) ** 2
    return pd.DataFrame(X, columns=["x0", "x1"]).assign(y=y)


def ms(seconds: list[float]) -> float:
    """The median, in milliseconds."""
    return 1e3 * statistics.median(seconds)


app = benchmark(
    measure,
    "about five minutes on one core",
    __doc__,
    only_cpu="Campaigns run on the processor.",
)

if __name__ == "__main__":
    start(app)
