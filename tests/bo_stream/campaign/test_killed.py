"""A campaign whose process is killed by SIGKILL ends as if it had not been disturbed."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sqlalchemy")

from bo_stream import Box, Campaign
from bo_stream.campaign.effort import FitPolicy, Optimiser
from bo_stream.campaign.storage.sql_store import Database

BUDGET = 9
forks = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork"
)


class Killing(Database):
    """A store that kills its process before or after its n-th transaction or snapshot."""

    def __init__(self, url: str, moment: str, n: int) -> None:
        super().__init__(url)
        self.moment, self.left = moment, n

    def reach(self, moment: str) -> None:
        self.left -= moment == self.moment
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def transaction(self, name: str) -> Iterator[Any]:
        with super().transaction(name) as transaction:
            yield transaction
            self.reach("before a commit")
        self.reach("after a commit")

    def save_snapshot(self, *args: Any) -> int:
        self.reach("before a snapshot")
        number = super().save_snapshot(*args)
        self.reach("after a snapshot")
        return number


def measure(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(y=np.sin(3.0 * frame["x"]) + 0.1 * frame["x"])


def finish(store: Any) -> Campaign:
    """A program that is started again after every crash."""
    campaign = Campaign(
        Box({"x": (0.0, 4.0)}),
        {"name": "wiski", "grid_size": 12},
        "qlogei",
        store=store,
        seed=1,
        budget=BUDGET,
        fit=FitPolicy(max_evals=5),
        optimiser=Optimiser(2, 16),
    )
    while len(running := campaign.running()) or campaign.remaining > 0:
        campaign.tell(measure(running if len(running) else campaign.ask()))
    return campaign


@pytest.fixture(scope="module")
def undisturbed() -> pd.DataFrame:
    return finish(None).trials()


@forks
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "moment",
    ["before a commit", "after a snapshot"]
    + [pytest.param(m, marks=pytest.mark.slow) for m in ("after a commit", "before a snapshot")],
)
def test_a_killed_campaign_ends_like_an_undisturbed_one(
    url: str, moment: str, undisturbed: pd.DataFrame
) -> None:
    fork = multiprocessing.get_context("fork")
    for n in (3, 2):  # killed twice
        process = fork.Process(target=finish, args=(Killing(url, moment, n),))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    campaign = finish(url)
    trials = campaign.trials()
    pd.testing.assert_frame_equal(trials.drop(columns="ask"), undisturbed.drop(columns="ask"))
    told = [e for e in campaign.ledger.store.events_since("campaign", 0) if e["kind"] == "told"]
    assert sorted(row[0] for e in told for row in e["outcomes"]["y"]) == list(range(BUDGET))
    assert campaign.model is not None and campaign.model.num_observed == BUDGET
