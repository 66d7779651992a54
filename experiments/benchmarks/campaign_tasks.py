"""Campaigns for the benchmarks: one that goes on from wherever its process died, and a store that
kills its own process at a named moment.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pandas as pd
import torch

from bo_stream import Box, Campaign
from bo_stream.campaign.proposals import Optimiser
from bo_stream.campaign.storage.sql_store import Database
from bo_stream.campaign.storage.store import Transaction

__all__ = ["MOMENTS", "Life", "Mortal", "begun", "live", "measured", "places"]

MOMENTS = (
    "tell, before its commit",
    "tell, after its commit",
    "snapshot, before",
    "snapshot, after",
    "ask, before its commit",
    "ask, after its commit",
)
"""At which a process kills itself."""


@dataclass(frozen=True)
class Life:
    """What one process is to do.

    Attributes:
        url: Of the database.
        name: Of the campaign in it.
        trials: How many to measure in all.
        inputs: Of the box.
        grid_size: Nodes per dimension of the surrogate's grid.
        told: From how many outcomes on it is to be killed; None to live on.
        moment: One of `MOMENTS` at which it kills itself; None to wait for another to do it.
    """

    url: str
    name: str
    trials: int
    inputs: int
    grid_size: int
    told: int | None = None
    moment: str | None = None


class Mortal(Database):
    """A store that dies with its process, by SIGKILL, when it passes a moment.

    Args:
        life: When.

    Attributes:
        told: Outcomes that the campaign knows.
        doing: ``ask`` or ``tell``.
    """

    def __init__(self, life: Life) -> None:
        super().__init__(life.url)
        self.life, self.told, self.doing = life, 0, ""

    def _pass(self, moment: str) -> None:
        if moment == self.life.moment and self.told >= (self.life.told or 0):
            os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def transaction(self, name: str) -> Iterator[Transaction]:
        """A transaction."""
        with super().transaction(name) as turn:
            yield turn
            self._pass(f"{self.doing}, before its commit")
        self._pass(f"{self.doing}, after its commit")

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Keep a snapshot."""
        self._pass("snapshot, before")
        number = super().save_snapshot(name, about, model)
        self._pass("snapshot, after")
        return number


def begun(store: Any, name: str, inputs: int, grid_size: int | None) -> Campaign:
    """A campaign, new or gone on with; None for the default grid."""
    return Campaign(
        Box({f"x{i}": (0.0, 1.0) for i in range(inputs)}),
        {"name": "wiski"} if grid_size is None else {"name": "wiski", "grid_size": grid_size},
        goal="minimise",
        store=store,
        name=name,
        seed=0,
        optimiser=Optimiser(2, 32, {"maxiter": 20}),
    )


def measured(frame: pd.DataFrame) -> pd.DataFrame:
    """Inputs with what is measured there: a function of the inputs."""
    X = frame.filter(like="x").to_numpy()
    return frame.assign(y=np.sin(5.0 * X + np.arange(X.shape[1])).sum(-1) + (X[:, 0] - 0.4) ** 2)


def places(inputs: int) -> pd.DataFrame:
    """Where the posterior is compared."""
    X = np.random.default_rng(0).random((50, inputs))
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(inputs)])


def live(life: Life, says: Connection) -> None:
    """Go on with a campaign until it has all its trials.

    Args:
        life: What to do.
        says: Gets how many outcomes are known, each time one is told; with the first also the
            evaluations of fits that resuming took, and its seconds. Then trials and predictions.
    """
    torch.set_num_threads(1)
    start, store = time.perf_counter(), Mortal(life)
    campaign = begun(store, life.name, life.inputs, life.grid_size)
    seconds = time.perf_counter() - start
    trials = campaign.trials()
    waiting = trials[trials["status"] == "running"].filter(like="x")
    store.told = len(trials) - len(waiting)
    says.send((store.told, campaign.row["fit_evaluations"], seconds))
    while True:
        if len(waiting):
            store.doing = "tell"
            campaign.tell(measured(waiting))
            store.told += len(waiting)
            says.send((store.told, 0, 0.0))
        if store.told >= life.trials:
            break
        store.doing = "ask"
        waiting = campaign.ask()
    if life.told is not None and life.moment is None:
        signal.pause()  # all is done, but it is to be killed
    says.send((campaign.trials(), campaign.predict(places(life.inputs))))
