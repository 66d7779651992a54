"""Whatever is asked, told, failed or taken up again, in any order: the trials are as expected."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bo_stream import Box, Campaign
from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.errors import BoStreamError, StateError

SPACE = Box({"x": (0.0, 1.0), "z": (-5.0, 5.0)})
VALUES = st.floats(-10.0, 10.0, allow_nan=False)
ANY = st.randoms(use_true_random=False)


class Interleavings(RuleBasedStateMachine):
    """A campaign beside a dictionary of what its trials must be."""

    @initialize()
    def begin(self) -> None:
        self.store = MemoryStore()
        self.campaign = Campaign(
            SPACE, "exact", "random", store=self.store, name="c", seed=0, initial=10_000
        )
        self.expected: dict[int, tuple[str, Any]] = {}

    def chosen(self, random: Any, *statuses: str) -> list[int]:
        """Some of the trials of these statuses."""
        ids = [id for id, (status, _) in self.expected.items() if status in statuses]
        return random.sample(ids, random.randint(1, len(ids))) if ids else []

    @rule(q=st.integers(1, 4))
    def ask(self, q: int) -> None:
        frame = self.campaign.ask(q)
        assert frame.index.tolist() == [len(self.expected) + i for i in range(q)]
        self.expected |= dict.fromkeys(frame.index.tolist(), ("running", None))

    @rule(random=ANY, y=VALUES)
    def tell(self, random: Any, y: float) -> None:
        ids = self.chosen(random, "running", "failed")
        if ids:
            frame = self.campaign.trials().loc[ids, ["x", "z"]]
            self.campaign.tell(frame.assign(y=[y + id for id in ids]))
            self.expected |= {id: ("told", y + id) for id in ids}

    @rule(random=ANY)
    def tell_again(self, random: Any) -> None:
        ids = self.chosen(random, "told")
        if ids:
            frame = self.campaign.trials().loc[ids, ["x", "z", "y"]]
            self.campaign.tell(frame)
            with pytest.raises(StateError):
                self.campaign.tell(frame.assign(y=frame["y"] + 1.0))

    @rule(x=st.floats(0.0, 1.0), y=VALUES)
    def tell_what_nobody_asked_for(self, x: float, y: float) -> None:
        self.campaign.tell(pd.DataFrame({"x": [x], "z": [2.0 * x], "y": [y]}))
        self.expected[len(self.expected)] = ("told", y)

    @rule(random=ANY)
    def fail(self, random: Any) -> None:
        ids = self.chosen(random, "running", "failed")
        if ids:
            self.campaign.fail(ids, "broken")
            self.expected |= dict.fromkeys(ids, ("failed", None))

    @rule(random=ANY)
    def refuse(self, random: Any) -> None:
        frame = pd.DataFrame({"x": [0.5], "z": [random.choice([9.0, float("nan")])], "y": [0.0]})
        with pytest.raises(BoStreamError):
            self.campaign.tell(frame)
        with pytest.raises(BoStreamError):
            self.campaign.fail([len(self.expected)], "nobody knows it")

    @rule()
    def resume(self) -> None:
        self.campaign = Campaign.resume(self.store, "c")

    @invariant()
    def trials_are_as_expected(self) -> None:
        trials = self.campaign.trials()
        assert trials.index.tolist() == sorted(self.expected)
        for id, (status, y) in self.expected.items():
            assert trials.loc[id, "status"] == status
            assert trials.loc[id, "y"] == y or (y is None and pd.isna(trials.loc[id, "y"]))
        told = sorted(
            y for status, y in self.expected.values() if status == "told" and y is not None
        )
        assert sorted(self.campaign.observations()[1][:, 0].tolist()) == told


Interleavings.TestCase.settings = settings(
    max_examples=12, stateful_step_count=20, deadline=None, derandomize=True
)
TestInterleavings = Interleavings.TestCase
