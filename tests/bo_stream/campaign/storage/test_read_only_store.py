"""A campaign opened in a copy of its store proposes the same trials and changes nothing."""

from pathlib import Path

import pytest

from bo_stream import Box, Campaign
from bo_stream.campaign.effort import Optimiser
from bo_stream.campaign.storage.open_store import open_store
from bo_stream.campaign.storage.store import MemoryStore, Store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    pytest.importorskip("sqlalchemy")
    return open_store(f"sqlite:///{tmp_path / 'c.db'}")


def test_it_proposes_the_same_and_changes_nothing(store: Store) -> None:
    quick = Optimiser(num_restarts=2, raw_samples=16)
    box = Box({"x": (0.0, 4.0), "y2": (1.0, 2.0)})
    campaign = Campaign(box, "wiski", store=store, name="c", seed=3, initial=4, optimiser=quick)
    for q in (4, 1, 1):
        batch = campaign.ask(q)
        campaign.tell(batch.assign(y=batch["x"] - batch["y2"] ** 2))
    campaign.ask()
    events, snapshot = store.events_since("c", 0), store.newest_snapshot("c")

    view = Campaign.resume(MemoryStore.copy_of(store, "c"), "c")
    assert view.trials().equals(campaign.trials())
    proposed = view.ask(2)
    view.tell(proposed.assign(y=1.0))
    view.fail(campaign.running().index, "no reason")
    assert view.trials()["status"].tolist() == ["told"] * 6 + ["failed", "told", "told"]

    assert store.events_since("c", 0) == events and store.newest_snapshot("c") == snapshot
    assert len(campaign.trials()) == 7
    again = Campaign.resume(store, "c").ask(2)
    assert again.equals(proposed)  # to the last bit


def test_what_comes_later_is_not_seen(store: Store) -> None:
    campaign = Campaign(Box({"x": (0.0, 4.0)}), store=store, name="c", seed=0)
    campaign.tell(campaign.ask(2).assign(y=1.0))
    view = Campaign.resume(MemoryStore.copy_of(store, "c"), "c")
    campaign.tell(campaign.ask().assign(y=2.0))
    assert len(view.trials()) == 2
