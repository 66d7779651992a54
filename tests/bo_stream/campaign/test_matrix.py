"""Every space with every kind of outcome, goal and budget: it works, or is refused at creation."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bo_stream import Box, Campaign, Pool
from bo_stream.errors import BoStreamError
from bo_stream.likelihoods import Bernoulli, Binomial, NegativeBinomial, Poisson
from tests.bo_stream.campaign.runs import CHEAP

TABLE = pd.DataFrame(np.random.default_rng(0).uniform(0.0, 4.0, (40, 2)), columns=["x", "z"])
SPACES: dict[str, Callable[[], Any]] = {
    "box": lambda: Box({"x": (0.0, 4.0), "z": (0.0, 4.0)}),
    "mixed": lambda: Box({"x": (0.0, 4.0), "z": (0, 4), "c": ["a", "b"]}, integer=["z"]),
    "pool": lambda: Pool(TABLE),
}
WITHIN, LIMIT = {"constraints": ["x + z <= 6"]}, {"constraints": ["w >= 1"]}
LOST, TWO = {"failures": "infeasible"}, {"goal": {"y": "maximise", "w": "minimise"}}
CASES = {"outcome": {"k": Poisson(exposure="n")}}
# settings, and the columns that are measured
OUTCOMES: dict[str, tuple[dict[str, Any], str]] = {
    "one": ({}, "y"),
    "known noise": ({"noise": 0.1}, "y"),
    "exact": ({"noise": "none"}, "y"),
    "inputs constrained": (WITHIN, "y"),
    "constrained": (LIMIT, "yw"),
    "failures": (LOST, "y"),
    "two goals": (TWO, "yw"),
    "binomial": ({"outcome": {"k": Binomial(trials="n")}}, "nk"),
    "bernoulli": ({"outcome": {"k": Bernoulli()}}, "k"),
    "poisson": (CASES, "nk"),
    "negative binomial": ({"outcome": {"k": NegativeBinomial(exposure="n")}}, "nk"),
    "counts, inputs constrained": (CASES | WITHIN, "nk"),
    "counts, constrained": (CASES | LIMIT, "nkw"),
    "counts, failures": (CASES | LOST, "nk"),
    "counts, two goals": (CASES | {"goal": {"k": "maximise", "w": "minimise"}}, "nkw"),
}
GOALS, BUDGETS = ("maximise", "minimise", "learn"), (None, 16)


def is_refused(outcome: str, goal: str) -> bool:
    """Counts are one outcome to learn or maximise; what is learned everywhere has no constraint."""
    limited = outcome.endswith((", constrained", "failures", "two goals"))
    counts = "k" in OUTCOMES[outcome][1]
    if goal == "learn" and outcome in ("constrained", "failures"):
        return True
    return counts and (goal == "minimise" or limited)


def is_usual(space: str, outcome: str, goal: str, budget: int | None) -> bool:
    """What the quick part of the suite runs: about a quarter; mixed spaces take longest."""
    if space == "mixed":
        return goal == "maximise" and budget is None and outcome in ("one", "bernoulli")
    if budget is not None:
        return goal == "maximise" and outcome in ("one", "binomial")
    return goal == "maximise" or outcome == "one"


def combinations() -> list[Any]:
    made = []
    for case in product(SPACES, OUTCOMES, GOALS, BUDGETS):
        _, outcome, goal, _ = case
        if "goal" in OUTCOMES[outcome][0] and goal != "maximise":
            continue
        quick = is_refused(outcome, goal) or is_usual(*case)
        made.append(pytest.param(*case, marks=[] if quick else [pytest.mark.slow]))
    return made


def measured(batch: pd.DataFrame, columns: str, binary: bool) -> pd.DataFrame:
    x, w = (batch[name].to_numpy(float) for name in ("x", "z"))
    k = np.where(x > 2.0, 1.0, 0.0) if binary else (2.0 * x).round()
    values = {"y": x - 0.1 * w, "w": w, "n": 10.0, "k": k}
    return batch.assign(**{name: values[name] for name in columns})


@pytest.mark.parametrize(("space", "outcome", "goal", "budget"), combinations())
def test_it_works_or_is_refused(space: str, outcome: str, goal: str, budget: int | None) -> None:
    given, columns = OUTCOMES[outcome]
    options: dict[str, Any] = {"goal": goal, "optimiser": CHEAP, "initial": 4, **given}
    if is_refused(outcome, goal):
        with pytest.raises(BoStreamError):
            Campaign(SPACES[space](), seed=0, budget=budget, **options)
        return
    campaign = Campaign(SPACES[space](), seed=0, budget=budget, **options)
    for turn, q in enumerate((2, 3, 1, 2)):
        batch = campaign.ask(q)
        if outcome == "failures" and turn == 1:
            campaign.fail(batch.index[:1], "broken")
            batch = batch.iloc[1:]
        campaign.tell(measured(batch, columns, outcome == "bernoulli"))
    said = campaign.predict(batch[list(campaign.space.names)])
    assert len(said) == 2 and np.isfinite(said.to_numpy(float)).all()
    if campaign.settings.goal != "learn":
        best = campaign.recommend(2)
        assert set(campaign.space.names) <= set(best)
        assert np.isfinite(best.select_dtypes("number").to_numpy(float)).all()
