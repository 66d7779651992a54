"""Two processes work on one campaign at once: no outcome is lost, and no trial asked for twice."""

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sqlalchemy")

from bo_stream import Box, Campaign
from bo_stream.campaign.effort import FitPolicy, Optimiser

TELLS, ASKS = 30, 5


def work(url: str, process: int, together: Any) -> None:
    """What each process does, at the same time."""
    together.wait()
    campaign = Campaign(
        Box({"x": (0.0, 1.0)}),
        {"name": "wiski", "grid_size": 12},
        store=url,
        name="shared",
        initial=20,
        fit=FitPolicy(then_every=0),
        optimiser=Optimiser(2, 16),
    )
    for i in range(TELLS):
        x = (2 * i + process) / (2 * TELLS)
        campaign.tell(pd.DataFrame({"x": [x], "y": [np.sin(5.0 * x)]}))
        if i % (TELLS // ASKS) == 0:
            campaign.ask()


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork"
)
def test_two_processes_lose_nothing(url: str, tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    together = fork.Barrier(2)
    processes = [fork.Process(target=work, args=(url, i, together)) for i in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    campaign = Campaign.resume(url, "shared")
    trials = campaign.trials()
    told, running = (trials[trials["status"] == s] for s in ("told", "running"))
    assert sorted(told["x"].round(6)) == [round(i / (2 * TELLS), 6) for i in range(2 * TELLS)]
    assert np.allclose(told["y"], np.sin(5.0 * told["x"]))
    assert trials["ask"].max() + 1 == len(running) >= 2 * ASKS
    assert running["ask"].is_unique  # each was asked for with the others pending
    assert campaign.model is not None and campaign.model.num_observed == 2 * TELLS


BUDGET = 12


def run_to_the_budget(url: str, together: Any) -> None:
    """What each of several processes does: it finishes the same job."""
    campaign = Campaign(
        Box({"x": (0.0, 1.0)}), "exact", "random", store=url, name="shared", initial=100
    )
    together.wait()
    campaign.run(lambda row: float(row["x"]), budget=BUDGET)


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork"
)
def test_several_runs_keep_to_the_budget_together(url: str) -> None:
    fork = multiprocessing.get_context("fork")
    together = fork.Barrier(3)
    processes = [fork.Process(target=run_to_the_budget, args=(url, together)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    trials = Campaign.resume(url, "shared").trials()
    assert trials["status"].tolist() == ["told"] * BUDGET
