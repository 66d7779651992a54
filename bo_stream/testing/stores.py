"""The contract of a store: events are kept in order, all or none, whoever writes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.storage.store import Store
from bo_stream.errors import StateError

__all__ = ["StoreContract"]

SETTINGS: dict[str, Any] = {"version": 1, "seed": 3, "box": [0.1, 1e-300], "words": "grün"}
EVENTS: list[dict[str, Any]] = [
    {"kind": "told", "outcomes": {"y": [[i, 0.1 * i, None]]}, "trials": []} for i in range(5)
]


class StoreContract:
    """What a campaign needs of a store; override the fixture `store`."""

    @pytest.fixture
    def store(self) -> Store:
        """A new store with nothing in it."""
        raise NotImplementedError("Override the fixture `store`.")

    @pytest.fixture
    def begun(self, store: Store) -> Store:
        """A store with the campaign ``oven`` and five events."""
        store.create("oven", SETTINGS)
        with store.transaction("oven") as transaction:
            for event in EVENTS:
                transaction.append(event)
        return store

    def test_what_was_written_is_there(self, begun: Store) -> None:
        assert begun.names() == ["oven"]
        assert begun.settings("oven") == SETTINGS and begun.settings("kiln") is None
        assert begun.events_since("oven", 0) == EVENTS
        assert begun.events_since("oven", 3) == EVENTS[3:]
        assert begun.events_since("oven", 9) == []

    def test_campaigns_are_apart(self, begun: Store) -> None:
        begun.create("kiln", {})
        with begun.transaction("kiln") as transaction:
            assert transaction.events_since(0) == []
            transaction.append({"kind": "failed"})
        begun.save_snapshot("kiln", {}, b"kiln")
        assert sorted(begun.names()) == ["kiln", "oven"]
        assert begun.events_since("kiln", 0) == [{"kind": "failed"}]
        assert begun.events_since("oven", 0) == EVENTS and begun.newest_snapshot("oven") == 0

    def test_a_transaction_sees_all_events(self, begun: Store) -> None:
        with begun.transaction("oven") as transaction:
            assert transaction.events_since(4) == EVENTS[4:]
            transaction.append({"kind": "asked"})
        assert begun.events_since("oven", 4) == [EVENTS[4], {"kind": "asked"}]

    def test_a_transaction_that_raises_leaves_nothing(self, begun: Store) -> None:
        with pytest.raises(KeyboardInterrupt), begun.transaction("oven") as transaction:
            transaction.append({"kind": "asked"})
            raise KeyboardInterrupt
        assert begun.events_since("oven", 0) == EVENTS

    def test_a_name_that_is_taken_is_refused(self, begun: Store) -> None:
        with pytest.raises(StateError, match="a new name.*'oven'"):
            begun.create("oven", {})
        assert begun.settings("oven") == SETTINGS

    def test_writers_wait_for_each_other(self, begun: Store) -> None:
        def write(_: int) -> None:
            for _ in range(20):
                with begun.transaction("oven") as transaction:
                    transaction.append({"count": len(transaction.events_since(0))})

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(write, range(4)))
        counts = [event["count"] for event in begun.events_since("oven", len(EVENTS))]
        assert counts == list(range(len(EVENTS), len(EVENTS) + 80))

    def test_snapshots_are_the_newest_first(self, begun: Store) -> None:
        for i in range(4):
            begun.save_snapshot("oven", {"told": i, "x": 0.1}, bytes([i]))
        found = list(begun.snapshots("oven"))
        if not begun.durable and not found:
            return  # it ends with the process, and nothing is resumed from it
        newest = begun.newest_snapshot("oven")
        assert found[0].number == newest and found[0].about == {"told": 3, "x": 0.1}
        assert found[0].model == b"\3"
        assert [s.number for s in found] == sorted((s.number for s in found), reverse=True)

    def test_a_campaign_resumes_from_it(self, store: Store) -> None:
        space = {"x": (0.0, 4.0)}
        campaign = Campaign(space, "exact", store=store, name="c", seed=0, initial=3)
        campaign.tell(campaign.ask(4).assign(y=[1.0, 2.0, 0.5, 1.5]))
        campaign.ask()
        again = Campaign.resume(store, "c")
        assert again.trials().equals(campaign.trials())
        assert again.ask().index.tolist() == [5]
        assert campaign.trials().equals(again.trials()) and len(campaign.running()) == 2
