"""What the tests of running campaigns share: a small campaign, and what is asked and told in it."""

from collections import Counter
from typing import Any

import pandas as pd

from bo_stream import Box, Callback, Campaign
from bo_stream.campaign.effort import Optimiser
from bo_stream.campaign.history import Event
from bo_stream.campaign.storage.store import MemoryStore

CHEAP = Optimiser(2, 16)


class Calls(Callback):
    """What was asked, told and ended."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.pending: list[int] = []  # when something was asked for
        self.told: list[int] = []
        self.ends = 0

    def after_ask(self, campaign: Any, frame: pd.DataFrame) -> None:
        self.asked.append(len(frame))
        self.pending.append(len(campaign.ledger.refresh().with_status("running")) - len(frame))

    def after_tell(self, campaign: Any, frame: pd.DataFrame) -> None:
        self.told += frame.index.tolist()

    def at_end(self, campaign: Any) -> None:
        self.ends += 1


def box(store: MemoryStore | None = None, **options: Any) -> Campaign:
    settings: dict[str, Any] = {"surrogate": "exact", "seed": 0, "optimiser": CHEAP}
    return Campaign(Box({"x": (0.0, 4.0)}), store=store, **{**settings, **options})


def bowl(row: "pd.Series[Any]") -> float:
    return -((row["x"] - 3.0) ** 2)


def told_once(store: MemoryStore) -> bool:
    events: list[Event] = store.events_since("campaign", 0)
    ids = Counter(row[0] for e in events if e["kind"] == "told" for row in e["outcomes"]["y"])
    return set(ids.values()) <= {1}


def alter(url: str, statement: str) -> None:
    """What another program does to a database."""
    from sqlalchemy import create_engine, text

    from bo_stream.campaign.storage.sql_store import parse

    engine = create_engine(parse(url))
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()
