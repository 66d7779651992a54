"""Eight small campaigns ask for the points that are recorded, bit for bit.

The record guards moves of code that change no decision. Where a rule changes on purpose, write it
again: ``python -m tests.bo_stream.campaign.test_asked_points``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from bo_stream import Box, Campaign, Pool
from bo_stream.likelihoods import Binomial
from tests.bo_stream.campaign.runs import CHEAP

RECORD = Path(__file__).parent / "asked_points.csv"
MACHINE = f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
PLACES = pd.DataFrame(np.random.default_rng(0).uniform(0.0, 4.0, (60, 2)), columns=["x", "z"])
BOX: dict[str, Any] = {"x": (0.0, 4.0), "z": (0.0, 4.0)}


def _height(batch: pd.DataFrame) -> "pd.Series[float]":
    return -((batch["x"] - 3.0) ** 2) - (batch["z"] - 1.0) ** 2


def _one(batch: pd.DataFrame) -> pd.DataFrame:
    return batch.assign(y=_height(batch))


def _two(batch: pd.DataFrame) -> pd.DataFrame:
    return batch.assign(y=_height(batch), w=batch["x"])


def _counts(batch: pd.DataFrame) -> pd.DataFrame:
    return batch.assign(n=10.0, k=(2.0 * batch["x"]).round())


Case = tuple[Callable[[], Any], dict[str, Any], Callable[[pd.DataFrame], pd.DataFrame]]
CASES: dict[str, Case] = {
    "box": (lambda: Box(BOX), {}, _one),
    "wiski": (lambda: Box(BOX), {"surrogate": "wiski", "goal": "minimise"}, _one),
    "mixed": (lambda: Box({**BOX, "c": ["a", "b"]}), {}, _one),
    "learn": (lambda: Pool(PLACES), {"goal": "learn"}, _one),
    "exact outcomes": (lambda: Box(BOX), {"noise": "none"}, _one),
    "two goals": (lambda: Box(BOX), {"goal": {"y": "maximise", "w": "minimise"}}, _two),
    "constraints": (lambda: Box(BOX), {"constraints": ["w >= 1", "x + z <= 6"]}, _two),
    "counts": (
        lambda: Pool(PLACES),
        {"outcome": {"k": Binomial(trials="n")}, "acquisition": "qlogei"},
        _counts,
    ),
}


def asked(case: str) -> pd.DataFrame:
    """The inputs of all points that a campaign asks for in six rounds, and the last decision."""
    space, settings, measured = CASES[case]
    campaign = Campaign(space(), seed=0, initial=6, optimiser=CHEAP, **settings)
    rounds = []
    for q in (2, 2, 2, 1, 2, 1):
        batch = campaign.ask(q)
        rounds.append(batch[list(campaign.space.names)])
        campaign.tell(measured(batch))
    points = pd.concat(rounds).melt(var_name="input", ignore_index=False).reset_index()
    points.insert(0, "case", case)
    points["value"] = [v.hex() if isinstance(v, float) else str(v) for v in points["value"]]
    return points.assign(decision=campaign.decision.acquisition)


def record() -> None:
    points = pd.concat([asked(case) for case in CASES])
    points.assign(machine=MACHINE).to_csv(RECORD, index=False)


@pytest.mark.parametrize("case", CASES)
def test_the_asked_points_are_those_on_record(case: str) -> None:
    recorded = pd.read_csv(RECORD, dtype={"value": str})
    if recorded["machine"].iloc[0] != MACHINE:
        pytest.skip(f"recorded with {recorded['machine'].iloc[0]}, this is {MACHINE}")
    expected = recorded[recorded["case"] == case].drop(columns="machine").reset_index(drop=True)
    pd.testing.assert_frame_equal(asked(case).reset_index(drop=True), expected, check_dtype=False)


if __name__ == "__main__":
    record()
