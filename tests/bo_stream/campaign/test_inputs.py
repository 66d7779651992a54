"""Campaigns over integers, lists of numbers and categories, and with constraints on inputs."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bo_stream import Box, Campaign, Pool
from bo_stream.campaign.effort import Optimiser
from bo_stream.errors import InputError, UnsupportedError

MIXED = Box(
    {
        "rate": (1e-4, 0.1),
        "trees": (50, 500),
        "depth": [2, 4, 8, 16],
        "loss": ["squared", "huber", "absolute"],
    },
    log=["rate", "trees"],
    integer=["trees"],
)
PLAIN = Box({"a": (0.0, 2.0), "b": (0, 4), "c": (1e-3, 1.0)}, log=["c"], integer=["b"])
CHEAP = Optimiser(2, 16)


def tuned(row: "pd.Series[Any]") -> float:
    """Smallest, at 0, for .01, 200, 8 and huber."""
    assert [type(v) for v in row] == [float, int, int, str]
    steps = (np.log10(row["rate"]) + 2.0) ** 2 + np.log(row["trees"] / 200) ** 2
    return float(steps + abs(row["depth"] - 8) / 8 + 0.5 * (row["loss"] != "huber"))


def allowed(frame: pd.DataFrame) -> bool:
    MIXED.values(frame)  # refuses what is not
    kinds = [str(dtype) for dtype in frame[list(MIXED.names)].dtypes]
    return kinds == ["float64", "int64", "int64", "str"]


@pytest.mark.parametrize(
    ("options", "budget", "most"),
    [
        ({}, 20, 0.3),
        ({"surrogate": "exact", "initial": 4, "optimiser": CHEAP}, 6, 9.0),
        pytest.param({"surrogate": "node_wiski"}, 30, 0.3, marks=pytest.mark.slow),
    ],
)
def test_proposals_are_allowed_values_and_approach_the_optimum(
    options: dict[str, Any], budget: int, most: float
) -> None:
    run = Campaign(MIXED, goal="minimise", seed=0, budget=budget, **options)
    trials = run.run(tuned)
    assert allowed(trials) and trials["y"].min() < most
    assert allowed(run.recommend(3))
    best = run.best()
    assert [type(best[name]) for name in MIXED.names] == [float, int, int, str]
    assert len(run.predict(trials)) == len(trials)


def test_a_batch_has_different_allowed_points() -> None:
    run = Campaign(MIXED, goal="minimise", seed=0, budget=40)
    first = run.ask(8)
    rows = first.astype(object).apply(tuned, axis=1)
    run.tell(first.assign(y=rows))
    batch = run.ask(6)
    assert allowed(batch) and not batch.duplicated().any()
    run.enqueue(pd.DataFrame({"rate": [0.01], "trees": [60], "depth": [2], "loss": ["huber"]}))
    assert run.trials().iloc[-1][["trees", "loss"]].tolist() == [60, "huber"]


def test_exact_outcomes_of_a_small_grid_are_not_measured_twice() -> None:
    grid = Box({"n": (1, 5), "kind": ["a", "b", "c"]}, integer=["n"])
    run = Campaign(grid, goal="maximise", seed=1, budget=15, noise="none")
    trials = run.run(lambda r: -abs(r["n"] - 3) - {"a": 0, "b": 1, "c": 2}[r["kind"]])
    again = trials.duplicated(["n", "kind"])
    assert not again.iloc[run.settings.initial : 12].any() and again.sum() < 5
    assert run.best()[["n", "kind"]].tolist() == [3, "a"]


def test_resumed_campaigns_go_on_as_undisturbed_ones(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    inside = {"constraints": ["trees + 10*depth <= 300", lambda frame: frame["rate"] < 0.05]}
    asked = []
    for cut in (False, True):
        url = f"sqlite:///{tmp_path}/{cut}.db"
        run = Campaign(MIXED, goal="minimise", store=url, seed=3, budget=20, initial=4, **inside)  # type: ignore[arg-type]
        for step in range(6):
            if cut and step == 4:
                with pytest.raises(InputError, match="1 callables"):
                    Campaign.resume(url)
                run = Campaign.resume(url, constraints=inside["constraints"])  # type: ignore[arg-type]
            frame = run.ask()
            run.tell(frame.assign(y=[tuned(frame.astype(object).iloc[0])]))
        asked.append(run.trials())
    pd.testing.assert_frame_equal(*asked)


@pytest.mark.parametrize(
    ("options", "least"),
    [({}, 3.2), ({"surrogate": "hsgp"}, 2.0), ({"surrogate": "exact"}, 3.2)],
)
def test_constraints_hold_for_every_proposal_and_recommendation(
    options: dict[str, Any], least: float
) -> None:
    texts = ["a + b <= 3", "10*c + a <= 4", "a - b >= -2.5"]
    given = [*texts, lambda frame: (frame["a"] - 1.0) ** 2 + frame["c"] ** 2 > 0.04]
    run = Campaign(
        PLAIN, goal="maximise", seed=0, budget=12, initial=6, constraints=given,
        optimiser=CHEAP, **options,
    )  # fmt: skip
    run.tell(pd.DataFrame({"a": [2.0], "b": [4], "c": [1.0], "y": [9.0]}))  # measured all the same
    while run.remaining > 0:
        batch = run.ask(2)
        run.tell(batch.assign(y=batch["a"] + batch["b"] + batch["c"]))
    proposed = pd.concat([run.trials().iloc[1:], run.recommend(2)])
    a, b, c = (proposed[name] for name in "abc")
    assert (a + b <= 3).all() and (10 * c + a <= 4).all() and (a - b >= -2.5).all()
    assert ((a - 1.0) ** 2 + c**2 > 0.04).all()
    best = run.trials().iloc[1:]["y"].max()
    assert best > least  # 3.4 at the constraints, where a + b = 3 and 10 c = 4 - a


def test_constraints_on_a_pool_leave_places_out() -> None:
    table = pd.DataFrame({"x": np.arange(20.0), "kind": ["a", "b"] * 10})
    run = Campaign(Pool(table, ["x", "kind"]), seed=0, initial=4, constraints=["x <= 10"])
    assert len(run.state.free_places) == 11
    batch = run.ask(6)
    assert set(batch["kind"]) <= {"a", "b"} and (batch["x"] <= 10).all()
    run.tell(batch.assign(y=batch["x"] + (batch["kind"] == "b")))
    assert (run.ask(4)["x"] <= 10).all() and run.recommend()["x"].item() <= 10


@pytest.mark.parametrize(
    ("constraint", "match"),
    [
        ("trees + leaves <= 3", "'leaves'"),
        ("loss <= 3", "category 'loss'"),
        ("trees + depth == 60", "leave out an input"),
        ("trees * depth <= 60", "linear"),
    ],
)
def test_constraints_that_cannot_be_are_refused(constraint: str, match: str) -> None:
    with pytest.raises(InputError, match=match):
        Campaign(MIXED, constraints=[constraint])


def test_what_nothing_fulfils_is_refused_when_asked() -> None:
    for given in ("trees <= 40", lambda frame: frame["trees"] < 0):
        run = Campaign(MIXED, seed=0, constraints=[given])  # type: ignore[list-item]
        with pytest.raises(InputError, match="some point of the box fulfils"):
            run.ask()
    wrong = Campaign(MIXED, seed=0, constraints=[lambda frame: 1.0])
    with pytest.raises(InputError, match="boolean for each of"):
        wrong.ask()


@pytest.mark.parametrize("family", ["wiski", "hsgp", "projected_wiski", "trust_region"])
def test_families_that_cannot_model_categories_are_refused(family: str) -> None:
    with pytest.raises((UnsupportedError, InputError), match="exact|continuous inputs"):
        Campaign(MIXED, family)
    small = Box({"a": (0, 5), "b": (0.0, 1.0)}, integer=["a"])
    if family == "trust_region":
        with pytest.raises(InputError, match="continuous inputs"):
            Campaign(small, family)


@pytest.mark.parametrize("name", ["thompson", "qlogei"])
@pytest.mark.parametrize("family", ["warped", "node_wiski"])
def test_large_batches_over_categories_are_maximisers_of_samples(family: str, name: str) -> None:
    run = Campaign(MIXED, family, name, goal="minimise", seed=0, optimiser=CHEAP)
    first = run.ask(40)
    run.tell(first.assign(y=first.astype(object).apply(tuned, axis=1)))
    batch = run.ask(100)
    assert allowed(batch) and not batch.duplicated().any()
    better = batch.astype(object).apply(tuned, axis=1).median()
    assert better < 0.5 * first.astype(object).apply(tuned, axis=1).median()


@pytest.mark.parametrize("name", ["thompson", "qlogei"])
def test_a_space_of_categories_alone_is_searched(name: str) -> None:
    space = Box({"a": ["u", "v", "w"], "b": [True, False]})
    run = Campaign(space, "exact", name, goal="minimise", seed=0, initial=4)
    while len(run.trials()) < 6:
        batch = run.ask(2)
        run.tell(batch.assign(y=(batch["a"] == "u") + 2.0 * batch["b"]))
    best = run.recommend().iloc[0]
    assert best["a"] in ("v", "w") and not best["b"]


def test_defaults_suit_the_inputs() -> None:
    def names(space: Box, budget: int | None, **options: Any) -> list[str]:
        settings = Campaign(space, budget=budget, **options).settings
        late = settings.stages[-1]
        return [s.surrogate["name"] for s in (settings, late) if s.surrogate]

    loss = {"loss": ["a", "b"]}
    assert names(Box({"x": (0.0, 1.0), **loss}), None) == ["warped", "node_wiski"]
    assert names(Box({"x": (0.0, 1.0)}), None) == ["warped", "hsgp"]
    many = {f"x{i}": (0, 9) for i in range(12)}
    assert names(Box(many), 2000) == ["trust_region"] * 2
    assert names(Box(many, integer=list(many)), 2000) == ["node_wiski"] * 2
    assert names(Box(many), 2000, constraints=["x0 <= x1"]) == ["node_wiski"] * 2


def test_a_batch_of_more_places_than_a_pool_has_is_refused() -> None:
    table = pd.DataFrame({"x": np.arange(5.0)})
    with pytest.raises(InputError, match="got 5. Ask for fewer, or"):
        Campaign(Pool(table), seed=0).ask(6)
    with pytest.raises(InputError, match="got 5. Ask for fewer.$"):
        Campaign(Pool(table, repeats=True), seed=0).ask(6)


def test_rounding_beyond_a_bound_is_on_it() -> None:
    box = Box(
        {"a": (0.0, 0.3), "n": (1, 5), "l": (1e-6, 1.0), "v": [0.1, 0.3], "w": (1e9, 1e9 + 1.0)},
        log=["l"],
        integer=["n"],
    )
    a = 0.1 * 3
    assert a > 0.3
    assert Box({"v": [0.0, 1.0]}).values(pd.DataFrame({"v": [a - 0.3]})).tolist() == [[0.0]]
    top = {"a": a, "n": a * 10, "l": 1e-6 * (1 - 1e-12), "v": a, "w": np.nextafter(1e9, 0)}
    assert box.values(pd.DataFrame([top])).tolist() == [[0.3, 3.0, 1e-6, 0.3, 1e9]]
    for name, value, shown in [
        ("a", 0.30000001, "0.3; got 0.30000001"),
        ("a", -1e-7, "got -1e-07"),
        ("l", 0.9999999e-6, "got 9.999999e-07"),
        ("n", 3.0001, "an integer; got 3.0001"),
        ("v", 0.30000001, "got 0.30000001"),
    ]:
        with pytest.raises(InputError, match=shown):
            box.values(pd.DataFrame([{**top, name: value}]))
    pool = Pool(pd.DataFrame({"a": [0.1, 0.3], "b": [1.0, 2.0]}))
    assert pool.places(pd.DataFrame({"a": [a], "b": [2.0]})) == [1]


@pytest.mark.parametrize(
    "given",
    [
        {"integer": True},
        {"log": 5},
        {"integer": None},
        {"log": [["a"]]},
        {"units": ["m"]},
        {"bounds": [(0.0, 1.0)]},
        {"bounds": None},
        {"bounds": {"a": None}},
        {"bounds": {"a": (False, True)}},
        {"bounds": {"a": ("0", "1")}},
        {"bounds": {"a": (0, 10**400)}},
        {"bounds": {1: (0.0, 1.0)}},
    ],
)
def test_arguments_of_a_box_of_other_types_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Expected .*; got "):
        Box(**{"bounds": {"a": (0.0, 1.0)}, **given})


def test_one_name_is_a_list_of_one() -> None:
    box = Box({"rate": (1.0, 10.0), "trees": (1, 9)}, log="rate", integer="trees")
    assert (box.log, box.integer) == (("rate",), ("trees",))
    assert Pool(pd.DataFrame({"ab": [1.0, 2.0], "a": [1.0, 3.0]}), "ab").names == ("ab",)


def test_labels_that_pandas_read_as_numbers() -> None:
    space = Box({"lot": ["1.1", "1.10", "1.2", "007", "nan"], "stir": [True, False]})

    def place(lot: Any, stir: Any = True) -> list[float]:
        return space.values(pd.DataFrame({"lot": [lot], "stir": [stir]}))[0].tolist()

    assert [place(lot)[0] for lot in (1.2, 7, "1.10")] == [2.0, 3.0, 1.0]
    assert [place("1.2", stir)[1] for stir in ("TRUE", 1, "yes", "no", 0.0)] == [0, 0, 0, 1, 1]
    for lot in (1.1, np.nan, None, pd.NA):
        with pytest.raises(InputError, match="as text: .*dtype=str"):
            place(lot)
