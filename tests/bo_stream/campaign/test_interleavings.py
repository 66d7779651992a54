"""Whatever is asked, told, corrected, failed or taken up again, in any order: trials and surrogate
are those of a simple model in memory.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

pytest.importorskip("sqlalchemy")

from bo_stream import Box, Campaign
from bo_stream.campaign.effort import FitPolicy
from bo_stream.errors import BoStreamError, StateError

INITIAL = 5
VALUES = st.floats(-10.0, 10.0, allow_nan=False)
ANY = st.randoms(use_true_random=False)


class Interleavings(RuleBasedStateMachine):
    """A campaign in a file beside a dictionary of what its trials must be."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.url, self.upper = f"sqlite:///{self.folder}/c.db", 5.0
        self.campaign = Campaign(
            Box({"x": (0.0, 1.0), "z": (-5.0, 5.0)}),
            "exact",
            "random",
            store=self.url,
            name="c",
            seed=0,
            initial=INITIAL,
            fit=FitPolicy(then_every=6, max_evals=2),
        )
        self.expected: dict[int, tuple[str, Any]] = {}
        self.inputs: dict[int, tuple[float, float]] = {}
        for i in range(INITIAL + 3):  # a surrogate from the start, of several batches
            self.tell_what_nobody_asked_for(x=i / (INITIAL + 2), y=(-1.0) ** i, key=False)
            if i == INITIAL:
                self.campaign.state.update()

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def chosen(self, random: Any, *statuses: str) -> list[int]:
        """Some of the trials of these statuses."""
        ids = [id for id, (status, _) in self.expected.items() if status in statuses]
        return random.sample(ids, random.randint(1, len(ids))) if ids else []

    @rule(q=st.integers(1, 4))
    def ask(self, q: int) -> None:
        frame = self.campaign.ask(q)
        assert frame.index.tolist() == [len(self.expected) + i for i in range(q)]
        for id, x, z in frame.itertuples():
            self.expected[id], self.inputs[id] = ("running", None), (x, z)

    @rule(random=ANY, y=VALUES, moved=st.booleans())
    def tell(self, random: Any, y: float, moved: bool) -> None:
        ids = self.chosen(random, "running", "failed")
        if ids:
            frame = self.campaign.trials().loc[ids, ["x", "z"]]
            if moved:  # something near was done
                frame["x"] = 0.95 * frame["x"]
            self.campaign.tell(frame.assign(y=[y + id for id in ids]))
            for id, x, z in frame.itertuples():
                self.expected[id], self.inputs[id] = ("told", y + id), (x, z)

    @rule(random=ANY)
    def tell_again(self, random: Any) -> None:
        ids = self.chosen(random, "told")
        if ids:
            frame = self.campaign.trials().loc[ids, ["x", "z", "y"]]
            self.campaign.tell(frame)
            with pytest.raises(StateError):
                self.campaign.tell(frame.assign(y=frame["y"] + 1.0))

    @rule(x=st.floats(0.0, 1.0), y=VALUES, key=st.booleans())
    def tell_what_nobody_asked_for(self, x: float, y: float, key: bool) -> None:
        frame = pd.DataFrame({"x": [x], "z": [2.0 * x], "y": [y]})
        id = len(self.expected)
        for _ in range(2 if key else 1):  # with a key it may be told twice
            self.campaign.tell(frame.assign(key=f"own {id}") if key else frame)
        self.expected[id], self.inputs[id] = ("told", y), (x, 2.0 * x)

    @rule(random=ANY, y=VALUES)
    def amend(self, random: Any, y: float) -> None:
        ids = self.chosen(random, "told", "withdrawn")
        ids = [id for id in ids if self.expected[id][1] is not None]
        if ids:
            frame = pd.DataFrame({"trial": ids, "y": [y - id for id in ids]})
            self.campaign.amend(frame)
            self.expected |= {id: ("told", y - id) for id in ids}

    @rule(random=ANY)
    def withdraw(self, random: Any) -> None:
        ids = self.chosen(random, "told", "running", "failed", "withdrawn")
        if ids:
            self.campaign.withdraw(ids, "a leak")
            self.expected |= {id: ("withdrawn", self.expected[id][1]) for id in ids}

    @rule(by=st.floats(0.0, 2.0))
    def widen(self, by: float) -> None:
        self.upper += by
        self.campaign.widen({"z": (-5.0, self.upper)})

    @rule(random=ANY)
    def fail(self, random: Any) -> None:
        ids = self.chosen(random, "running", "failed")
        if ids:
            self.campaign.fail(ids, "broken")
            self.expected |= dict.fromkeys(ids, ("failed", None))

    @rule(random=ANY)
    def refuse(self, random: Any) -> None:
        frame = pd.DataFrame({"x": [0.5], "z": [random.choice([99.0, float("nan")])], "y": [0.0]})
        with pytest.raises(BoStreamError):
            self.campaign.tell(frame)
        for unknown in (self.campaign.fail, self.campaign.withdraw):
            with pytest.raises(BoStreamError):
                unknown([len(self.expected)], "nobody knows it")

    @rule()
    def kill(self) -> None:
        """The process is gone: nothing is closed."""
        self.campaign = Campaign.resume(self.url, "c")

    @invariant()
    def trials_are_as_expected(self) -> None:
        trials = self.campaign.trials()
        assert trials.index.tolist() == sorted(self.expected)
        for id, (status, y) in self.expected.items():
            assert trials.loc[id, "status"] == status
            assert trials.loc[id, "y"] == y or (y is None and pd.isna(trials.loc[id, "y"]))
            assert tuple(trials.loc[id, ["x", "z"]]) == self.inputs[id]
        assert self.campaign.space.bounds["z"] == (-5.0, self.upper)  # type: ignore[union-attr]
        told = sorted(y for status, y in self.expected.values() if status == "told")
        assert sorted(self.campaign.state.observations.Y[:, 0].tolist()) == told

    @invariant()
    def surrogate_is_that_of_the_outcomes(self) -> None:
        """Compared with dense inference from the outcomes under the same hyperparameters."""
        model, told = self.campaign.model, [i for i, t in self.expected.items() if t[0] == "told"]
        if model is None:
            return
        assert model.num_observed == len(told)
        X = torch.tensor([self.inputs[id] for id in told], dtype=torch.float64)
        Y = torch.tensor([[self.expected[id][1]] for id in told], dtype=torch.float64)
        new = torch.tensor([[0.3, 0.2], [0.9, -4.0]], dtype=torch.float64)
        with torch.no_grad():
            transform = model.outcome_transform
            learned = Y.clamp_min(self.campaign.state.engine.used[0].least)
            y = (learned - transform.means) / transform.stdvs - model.mean_module.constant
            A, b = (model.input_transform(points) for points in (X, new))
            kernel = model.covar_module
            K = kernel(A).to_dense() + model.likelihood.noise * torch.eye(len(A))
            mean = kernel(b, A).to_dense() @ torch.linalg.solve(K, y) + model.mean_module.constant
            mean = mean * transform.stdvs + transform.means
            found = model.posterior(new).mean
            assert torch.allclose(found, mean, rtol=1e-6, atol=1e-6 * float(Y.std())), found - mean


class Longer(Interleavings):
    """The same, for longer."""


FEW = settings(
    max_examples=10,
    stateful_step_count=16,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
)
Interleavings.TestCase.settings = FEW
Longer.TestCase.settings = settings(FEW, max_examples=120, stateful_step_count=40)
TestInterleavings = Interleavings.TestCase
TestLongerInterleavings = pytest.mark.slow(Longer.TestCase)
