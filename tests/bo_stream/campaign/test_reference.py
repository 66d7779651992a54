"""A reference point of several objectives: what is beyond it is not sought, and not counted."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from bo_stream import Box, Campaign
from bo_stream.campaign.effort import Optimiser
from bo_stream.errors import InputError

TWO = {"gain": "maximise", "cost": "minimise"}
FAR = {"gain": 0.8, "cost": 1.0}


def begun(**options: Any) -> Campaign:
    """All settings are on the front."""
    space = Box({"a": (0.0, 1.0)})
    run = Campaign(
        space, "exact", goal=TWO, seed=0, initial=4, optimiser=Optimiser(2, 64), **options
    )
    X = pd.DataFrame({"a": np.linspace(0.0, 1.0, 7)})
    run.tell(X.assign(gain=X["a"], cost=X["a"] ** 2))
    return run


def test_trials_are_beyond_it_and_hypervolumes_are_measured_from_it() -> None:
    run = begun(reference=FAR)
    assert (run.ask(2)["a"] > 0.8).all()
    volume, point = run.hypervolume() or (0.0, {})
    assert point == FAR
    assert volume == pytest.approx((5 / 6 - 0.8) * (1.0 - 25 / 36))
    other = begun()
    assert (other.ask(2)["a"] < 0.8).any()
    inferred = other.hypervolume() or (0.0, {})
    assert inferred[1]["gain"] < 0.0 and inferred[1]["cost"] > 1.0


def test_it_is_kept_in_the_store(tmp_path: Any) -> None:
    pytest.importorskip("sqlalchemy")
    url = f"sqlite:///{tmp_path}/c.db"
    begun(reference=FAR, store=url)
    assert Campaign.resume(url).settings.reference == FAR
    with pytest.warns(UserWarning, match="the reference in its store"):
        Campaign(
            Box({"a": (0.0, 1.0)}),
            goal=TWO,
            store=url,
            reference={"gain": 0.0, "cost": 1.0},
        )


@pytest.mark.parametrize(
    ("goal", "reference", "says"),
    [
        ("maximise", {"y": 0.0}, "no reference for one objective"),
        (TWO, {"gain": 0.0}, "each of gain, cost"),
        (TWO, {"gain": 0.0, "cost": float("nan")}, "finite"),
        (TWO, {"gain": 0.0, "cost": 1.0, "a": 1.0}, "each of gain, cost"),
        (TWO, [0.0, 1.0], "reference, a valid dictionary"),
    ],
)
def test_what_is_refused(goal: Any, reference: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Campaign(Box({"a": (0.0, 1.0)}), goal=goal, reference=reference)
