"""A campaign looked at from aside proposes what it would propose, and changes nothing."""

from pathlib import Path

import pytest

from bo_stream import Box, Campaign
from bo_stream.campaign.proposals import Optimiser
from bo_stream.campaign.storage.open_store import opened
from bo_stream.campaign.storage.read_only_store import Aside
from bo_stream.campaign.storage.store import MemoryStore, Store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    pytest.importorskip("sqlalchemy")
    return opened(f"sqlite:///{tmp_path / 'c.db'}")


def test_it_proposes_the_same_and_changes_nothing(store: Store) -> None:
    quick = Optimiser(num_restarts=2, raw_samples=16)
    box = Box({"x": (0.0, 4.0), "y2": (1.0, 2.0)})
    campaign = Campaign(box, "wiski", store=store, name="c", seed=3, initial=4, optimiser=quick)
    for _ in range(7):
        batch = campaign.ask()
        campaign.tell(batch.assign(y=batch["x"] - batch["y2"] ** 2))
    campaign.ask()
    events, snapshot = store.since("c", 0), store.newest_snapshot("c")

    aside = Campaign.resume(Aside(store, "c"), "c")
    assert aside.trials().equals(campaign.trials())
    proposed = aside.ask(2)
    aside.tell(proposed.assign(y=1.0))
    aside.fail(campaign.running().index, "no reason")
    assert aside.trials()["status"].tolist() == ["told"] * 7 + ["failed", "told", "told"]

    assert store.since("c", 0) == events and store.newest_snapshot("c") == snapshot
    assert len(campaign.trials()) == 8
    again = Campaign.resume(store, "c").ask(2)
    assert again.equals(proposed)  # to the last bit


def test_what_comes_later_is_not_seen(store: Store) -> None:
    campaign = Campaign(Box({"x": (0.0, 4.0)}), store=store, name="c", seed=0)
    campaign.tell(campaign.ask(2).assign(y=1.0))
    aside = Campaign.resume(Aside(store, "c"), "c")
    campaign.tell(campaign.ask().assign(y=2.0))
    assert len(aside.trials()) == 2
