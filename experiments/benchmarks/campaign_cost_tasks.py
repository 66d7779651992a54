"""What `campaign_cost` measures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bo_stream import Campaign
from bo_stream.campaign.storage.sql_store import Database
from bo_stream.campaign.storage.store import SNAPSHOT_EVERY
from experiments.benchmarks.campaign_tasks import begun, measured

__all__ = ["filled", "resumes", "sizes", "tells"]

NAME = "measured"
SPENT = ("update_seconds", "score_seconds")
NONE = float("nan")


def filled(file: Path, trials: int, grid_size: int | None) -> str:
    """URL of a new database with a campaign of so many trials, asked and told one by one; of these
    as many as there can be came after the last snapshot.
    """
    campaign, url = _new(file, grid_size)
    late = min(SNAPSHOT_EVERY - 1, trials // 2)
    _fill(campaign, 0, trials - late)
    campaign.update()
    _fill(campaign, trials - late, trials)
    return url


def resumes(url: str, trials: int, repetitions: int) -> list[tuple[Any, ...]]:
    """Median of resuming, which must find all outcomes."""
    walls, cpus, fits = [], [], 0
    for _ in range(repetitions):
        wall, cpu = time.perf_counter(), time.process_time()
        campaign = Campaign.resume(url, NAME)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        fits += campaign.row["fit_evaluations"]
        if campaign.model is None or campaign.model.num_observed != trials:
            raise RuntimeError("the surrogate has not seen all outcomes")
    return [("resume", trials, _ms(walls), _ms(cpus), fits)]


def tells(url: str, trials: int, repetitions: int) -> list[tuple[Any, ...]]:
    """Medians of telling one outcome of a trial that was asked: in all, and its parts."""
    campaign = Campaign.resume(url, NAME)
    _append(
        campaign,
        (
            {"kind": "asked", "trials": [t], "by": None}
            for t in _trials(trials, trials + repetitions)
        ),
    )
    frame = measured(campaign.trials().tail(repetitions)[["x0", "x1"]])
    walls, cpus, surrogate = [], [], []
    for i in range(repetitions):
        before = sum(campaign.row[name] for name in SPENT)
        wall, cpu = time.perf_counter(), time.process_time()
        campaign.tell(frame.iloc[[i]])
        cpus.append(time.process_time() - cpu)
        walls.append(time.perf_counter() - wall)
        surrogate.append(sum(campaign.row[name] for name in SPENT) - before)
    top = [wall - part for wall, part in zip(walls, surrogate, strict=True)]
    return [
        ("tell, on top of the surrogate", trials, _ms(top), NONE, 0),
        ("tell, the surrogate's part", trials, _ms(surrogate), NONE, 0),
        ("tell, all of it", trials, _ms(walls), _ms(cpus), 0),
    ]


def sizes(file: Path, counts: Sequence[int], grid_size: int | None) -> pd.DataFrame:
    """KiB of a growing campaign's file, and of the log beside it before it was closed."""
    campaign, url = _new(file, grid_size)
    rows, done = [], 0
    for count in counts:
        while done < count:
            part = min(done + SNAPSHOT_EVERY, count)
            _fill(campaign, done, part)
            campaign.update() if campaign.model is None else campaign.trials()
            done = part
        number = campaign.store.newest_snapshot(NAME)
        log = file.with_name(f"{file.name}-wal").stat().st_size
        campaign.store.close()  # type: ignore[attr-defined]
        rows.append((count, number, file.stat().st_size / 1024, log / 1024))
    table = pd.DataFrame(rows, columns=["trials", "snapshots saved", "file KiB", "log KiB"])
    grown = table["file KiB"].diff() * 1024 / table["trials"].diff()
    return table.assign(**{"bytes a trial more": grown})


def _new(file: Path, grid_size: int | None) -> tuple[Campaign, str]:
    for old in file.parent.glob(f"{file.name}*"):
        old.unlink()
    url = f"sqlite:///{file.absolute()}"
    return begun(Database(url), NAME, 2, grid_size), url


def _trials(first: int, end: int) -> list[list[Any]]:
    """Trials as events have them, from the first to before the end."""
    X = np.random.default_rng(first).random((end - first, 2)).tolist()
    return [[first + i, None, x] for i, x in enumerate(X)]


def _fill(campaign: Campaign, first: int, end: int) -> None:
    """Put trials into the store, asked and told one by one, without asking the surrogate."""
    events = []
    for trial in _trials(first, end):
        x = pd.DataFrame([trial[2]], columns=["x0", "x1"])
        events.append({"kind": "asked", "trials": [trial], "by": None})
        y = float(measured(x)["y"].iloc[0])
        events.append({"kind": "told", "trials": [], "values": [[trial[0], y, None]]})
    _append(campaign, events)


def _append(campaign: Campaign, events: Iterable[dict[str, Any]]) -> None:
    with campaign.store.transaction(NAME) as turn:
        for event in events:
            turn.append(event)


def _ms(seconds: list[float]) -> float:
    return 1e3 * statistics.median(seconds)
