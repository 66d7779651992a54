"""Spaces of a few settings: every default is one that models them, and asking never ends."""

from typing import Any

import pytest

from bo_stream import Box, Campaign
from bo_stream.campaign.settings import Choices, Settings
from bo_stream.surrogates.registry import WITH_CATEGORIES

SIX = Box({"a": [1, 2, 3], "b": ["x", "y"]})
TWO = {"p": "maximise", "q": "minimise"}


@pytest.mark.parametrize("budget", [None, 30, 300, 3000])
@pytest.mark.parametrize(
    ("goal", "failures", "constraints"),
    [
        (TWO, "ignored", ()),
        (TWO, "infeasible", ["r <= 2"]),
        ("maximise", "infeasible", ()),
        ("maximise", "ignored", ["r <= 2"]),
        ("maximise", "ignored", ["a <= 2"]),
        ("learn", "ignored", ()),
    ],
)
def test_defaults_model_categories(goal: Any, failures: Any, constraints: Any, budget: Any) -> None:
    given: dict[str, Any] = {"failures": failures, "constraints": constraints, "budget": budget}
    settings: Settings = Settings.of(SIX, Choices.read({"goal": goal, **given}))
    for one in settings.stages:
        assert one.surrogate is not None and one.surrogate["name"] in WITH_CATEGORIES


@pytest.mark.parametrize("failures", ["ignored", "infeasible"])
@pytest.mark.parametrize("goal", [TWO, {"p": "maximise"}], ids=["2", "1"])
def test_settings_repeat_once_none_is_left(goal: Any, failures: Any) -> None:
    campaign = Campaign(
        SIX, goal=goal, constraints=["r <= 1"], failures=failures, seed=0, initial=4
    )
    frame = campaign.ask(5)
    frame = frame.assign(p=frame["a"] * 1.0, q=frame["a"] + (frame["b"] == "x"), r=1.0)
    campaign.fail(frame.index[4:], "it broke")
    campaign.tell(frame.iloc[:4][campaign.settings.outcomes.columns])
    campaign.state.update()
    counts = campaign.ask(100).value_counts()
    assert len(counts) == 5 and counts.sum() == 100  # not where a trial failed
    assert len(campaign.ask()) == 1  # with all of them running


def test_settings_repeat_where_the_variance_is_reduced() -> None:
    campaign = Campaign(SIX, goal="learn", seed=0, initial=4)
    campaign.tell(campaign.ask(4).assign(y=[0.0, 1.0, 3.0, 2.0]))
    campaign.state.update()
    counts = campaign.ask(20).value_counts()
    assert len(counts) == 6 and counts.sum() == 20
