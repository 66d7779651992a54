"""Two processes work on one campaign at once: nothing is lost, nothing is asked for twice."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sqlalchemy")

TELLS, ASKS = 20, 4


def work(url: str, process: int, folder: Path) -> None:
    """What each process does, both at the same time."""
    from bo_stream import Box, Campaign
    from bo_stream.campaign.fit_policy import FitPolicy
    from bo_stream.campaign.proposals import Optimiser

    (folder / f"ready{process}").touch()
    while not (folder / "go").exists():
        time.sleep(0.001)
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


def test_two_processes_lose_nothing(url: str, tmp_path: Path) -> None:
    from bo_stream import Campaign

    processes = [
        subprocess.Popen(
            [sys.executable, __file__, url, str(i), str(tmp_path)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    while not all((tmp_path / f"ready{i}").exists() for i in range(2)):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    (tmp_path / "go").touch()
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert "locked" not in "".join(said)
    campaign = Campaign.resume(url, "shared")
    trials = campaign.trials()
    told, running = (trials[trials["status"] == s] for s in ("told", "running"))
    assert sorted(told["x"].round(6)) == [round(i / (2 * TELLS), 6) for i in range(2 * TELLS)]
    assert np.allclose(told["y"], np.sin(5.0 * told["x"]))
    assert trials["ask"].max() + 1 == len(running) >= 2 * ASKS
    assert running["ask"].is_unique  # each was asked with the others under way
    assert campaign.model is not None and campaign.model.num_observed == 2 * TELLS


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
