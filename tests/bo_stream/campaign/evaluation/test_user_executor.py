"""Campaigns whose objective runs on a Dask cluster whose workers die."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bo_stream.campaign.storage.store import MemoryStore
from tests.bo_stream.campaign.runs import Calls, box, told_once


@contextmanager
def dask(workers: int, folder: Path) -> Iterator[Any]:
    """The client of a cluster of processes."""
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        local_directory=str(folder),
        silence_logs=logging.CRITICAL,
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with dask(2, tmp_path_factory.mktemp("dask")) as client:
        yield client


class Killer:
    """Kills workers at random, each time after the one before was replaced."""

    def __init__(self, client: Any, workers: int, most: int) -> None:
        self.client, self.workers, self.most = client, workers, most
        self.killed: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._kill)

    def _kill(self) -> None:
        random = np.random.default_rng(0)
        while len(self.killed) < self.most and not self._over.wait(0.5 * random.random()):
            pids = list(self.client.run(os.getpid, on_error="ignore").values())
            if len(pids) == self.workers:
                self.killed.append(int(random.choice(pids)))
                os.kill(self.killed[-1], signal.SIGKILL)

    def __enter__(self) -> "Killer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_a_dask_worker_killed_at_random_loses_nothing(client: Any) -> None:
    def objective(row: Any) -> float:

        time.sleep(0.1)
        return -((row["x"] - 3.0) ** 2)

    store, calls = MemoryStore(), Calls()
    campaign = box(store, surrogate={"name": "wiski", "grid_size": 12}, callbacks=[calls])
    with Killer(client, workers=2, most=1) as killer:
        trials = campaign.run(objective, 12, client.get_executor(), q=2)
    assert killer.killed
    assert trials["status"].tolist() == ["told"] * 12
    assert np.allclose(trials["y"], -((trials["x"] - 3.0) ** 2))
    assert told_once(store) and sorted(calls.told) == list(range(12))


def test_a_dask_trial_that_hangs_fails(client: Any, tmp_path: Path) -> None:
    over = str(tmp_path / "over")

    def objective(row: Any) -> float:
        import os

        while row.name == 1 and not os.path.exists(over):
            time.sleep(0.05)
        return 1.0

    client.wait_for_workers(2)
    trials = box().run(objective, 4, client.get_executor(), q=2, timeout=3.0)
    Path(over).touch()
    assert trials["status"].tolist() == ["told", "failed", "told", "told"]
    assert trials["reason"][1] == "no result within 3 s"


@pytest.mark.slow
def test_a_dask_trial_that_kills_its_workers_fails(tmp_path: Path) -> None:
    settings = pytest.importorskip("dask").config

    def objective(row: Any) -> float:
        import os
        from pathlib import Path

        with Path(tmp_path, str(row.name)).open("a") as file:
            file.write("x")
        if row.name == 0:
            os._exit(1)
        return 1.0

    with settings.set({"distributed.scheduler.allowed-failures": 1}), dask(1, tmp_path) as client:
        trials = box().run(objective, 2, client.get_executor(), q=1)
    assert trials["status"].tolist() == ["failed", "told"]
    assert trials["reason"][0].startswith("KilledWorker")
    assert (tmp_path / "0").read_text() == "xx"  # as often as Dask allows, and once more


@pytest.mark.parametrize("workers", [None, 1], ids=["threads", "processes"])
def test_an_interruption_that_the_objective_raises_fails_its_trial(workers: int | None) -> None:
    if workers:
        pytest.importorskip("loky")

    def objective(row: Any) -> float:
        if row.name == 1:
            raise KeyboardInterrupt("of its own")
        return 1.0

    with ThreadPoolExecutor(1) as executor:
        how: dict[str, Any] = {"workers": 1} if workers else {"executor": executor, "q": 1}
        trials = box().run(objective, 3, **how)
    assert trials["status"].tolist() == ["told", "failed", "told"]
    assert trials["reason"][1] == "KeyboardInterrupt: of its own"
