"""Campaigns with several outcomes: objectives, and constraints on outcomes."""

import pytest

from bo_stream import Box, Campaign
from bo_stream.campaign.storage.store import MemoryStore

UNIT = Box({"x": (0.0, 1.0)})


@pytest.mark.parametrize(
    ("spelled", "british"), [("maximize", "maximise"), ("minimize", "minimise")]
)
def test_goals_may_be_spelled_with_z(spelled: str, british: str) -> None:
    store = MemoryStore()
    assert Campaign(UNIT, goal=spelled, store=store).goal == british
    assert Campaign(UNIT, goal=british, store=store).goal == british  # the same campaign
