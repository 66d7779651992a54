"""Ask and tell: what a person with a problem of their own relies on."""

import math
import pickle
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.acquisition.analytic import UpperConfidenceBound

from bo_stream import Box, Callback, Campaign, Pool, surrogate
from bo_stream.campaign.effort import Optimiser
from bo_stream.errors import (
    BoundsError,
    BudgetError,
    InputError,
    NoiseError,
    StateError,
    UnsupportedError,
)

LITTLE = Optimiser(num_restarts=2, raw_samples=64, options={"maxiter": 20})
LINE = Box({"x": (0.0, 4.0)})


def campaign(space: Box | Pool = LINE, **options: Any) -> Campaign:
    settings: dict[str, Any] = {"surrogate": "exact", "seed": 0, "optimiser": LITTLE, "initial": 4}
    return Campaign(space, **{**settings, **options})


def bowl(frame: pd.DataFrame) -> pd.Series:
    return (frame["x"] - 3.0) ** 2


def told(run: Campaign, n: int, q: int = 1) -> Campaign:
    for _ in range(n):
        run.tell(run.ask(q).assign(y=bowl))
    return run


def test_it_minimises() -> None:
    run = told(campaign(goal="minimise"), 16)
    best = run.best()
    assert abs(best["x"] - 3.0) < 0.1  # outcomes count as noisy: .01 of 9 is not told from 0
    assert best["y"] == run.trials()["y"].min()
    assert best.name == run.trials()["y"].idxmin()


def test_it_maximises() -> None:
    run = told(campaign(), 8)
    assert run.best()["x"] == 0.0 and run.best()["y"] == 9.0


@pytest.mark.parametrize("dim", [2, 12])
def test_mixed_scales_without_choosing_anything(dim: int) -> None:
    bounds = {f"x{i}": [(0.0, 1.0), (20.0, 900.0), (1e-4, 0.1)][i % 3] for i in range(dim)}
    space = Box(bounds, log=[name for i, name in enumerate(bounds) if i % 3 == 2])
    run = Campaign(space, goal="minimise", seed=0, optimiser=LITTLE, budget=90)
    start = run.ask(2 * dim + 2)

    def far(frame: pd.DataFrame) -> pd.Series:
        U = pd.DataFrame(
            {n: (np.log(frame[n]) if n in space.log else frame[n]) for n in space.names}
        )
        low, high = space.tensor_bounds.numpy()
        return (((U - low) / (high - low) - 0.4) ** 2).sum(axis=1)

    run.tell(start.assign(y=far))
    for _ in range(2):
        run.tell(run.ask(2).assign(y=far))
    assert run.best()["y"] < far(start).min()


def test_a_batch_goes_through_a_file() -> None:
    run = campaign(goal="minimise")
    batch = run.ask(3)
    file = StringIO(batch.assign(y=bowl).to_csv())
    run.tell(pd.read_csv(file, index_col="trial"))
    file = StringIO(run.ask(3).assign(y=bowl).to_csv())
    run.tell(pd.read_csv(file))  # the id is a column
    file = StringIO(run.ask(2).assign(y=bowl).to_csv(index=False))
    run.tell(pd.read_csv(file))  # the id is lost: found again by the inputs
    assert run.trials()["status"].tolist() == ["told"] * 8
    assert run.running().empty


def test_parts_of_batches_in_any_order_and_data_nobody_asked_for() -> None:
    run = campaign()
    first, second = run.ask(3), run.ask(2)
    run.tell(second.assign(y=bowl).iloc[[1]])
    run.tell(pd.DataFrame({"x": [0.5, 1.5], "y": [6.0, 2.0]}))
    run.tell(first.assign(y=bowl).iloc[[2, 0]])
    trials = run.trials()
    assert trials.index.tolist() == list(range(7)) and trials.index.name == "trial"
    assert trials["status"].tolist() == [
        *["told", "running", "told"], *["running", "told"], *["told", "told"]
    ]  # fmt: skip
    assert trials["ask"].isna().tolist() == [False] * 5 + [True] * 2
    assert run.running().index.tolist() == [1, 3]
    seen = run.state.observations
    X, Y, Yvar = seen.X, seen.Y, seen.Yvar
    assert X[:, 0].tolist() == trials.loc[[4, 5, 6, 2, 0], "x"].tolist() and Yvar is None
    assert Y[:, 0].tolist() == trials.loc[[4, 5, 6, 2, 0], "y"].tolist()


def test_an_outcome_told_twice_is_taken_once() -> None:
    run = campaign()
    batch = run.ask(2).assign(y=bowl)
    run.tell(batch)
    run.tell(batch)
    assert run.state.observations.X.shape == (2, 1)
    with pytest.raises(StateError, match="told before"):
        run.tell(batch.assign(y=0.5))
    assert run.trials()["y"].tolist() == batch["y"].tolist()


def test_failed_trials_keep_their_reason_and_may_still_be_told() -> None:
    run = campaign()
    batch = run.ask(3)
    run.fail(batch.index[:2], "the oven was off")
    run.fail(int(batch.index[0]), "again")
    assert run.trials()["reason"].tolist()[:2] == ["the oven was off"] * 2
    run.tell(batch.assign(y=bowl).iloc[[0]])
    assert run.trials()["status"].tolist() == ["told", "failed", "running"]
    with pytest.raises(StateError, match="told before"):
        run.fail([0], "too late")


def test_trials_under_way_are_kept_in_mind() -> None:
    run = told(campaign(goal="minimise"), 5)
    apart = [float(run.ask()["x"].iloc[0]) for _ in range(4)]
    assert len({round(x, 3) for x in apart}) == 4


def test_callables_get_what_they_have_parameters_for() -> None:
    seen: dict[str, Any] = {}

    def make(X: Any, Y: Any, Yvar: Any, **options: Any) -> Any:
        return surrogate("wiski", X, Y, Yvar, grid_size=12, **options)

    def ucb(model: Any, best_f: float) -> UpperConfidenceBound:
        seen["best_f"] = best_f
        return UpperConfidenceBound(model, beta=2.0)

    run = told(campaign(surrogate=make, acquisition=ucb), 6)
    assert type(run.model).__name__ == "WISKI"
    assert seen["best_f"] <= run.best()["y"] + 1.0
    with pytest.raises(InputError, match="acquisition function of BoTorch"):
        told(campaign(acquisition=lambda model: model), 6)


def test_predictions_are_in_the_users_units() -> None:
    run = told(campaign(goal="minimise"), 8)
    said = run.predict(pd.DataFrame({"x": [0.5, 3.0]}, index=["a", "b"]))
    assert said.index.tolist() == ["a", "b"] and (said["sd"] >= 0).all()
    assert said["mean"].tolist() == pytest.approx([6.25, 0.0], abs=0.5)
    assert not run.state.engine.behind
    assert run.predict({"x": 3.0})["mean"].item() == pytest.approx(said["mean"]["b"])


def test_a_prediction_needs_outcomes() -> None:
    run = campaign()
    with pytest.raises(StateError, match="4 outcomes"):
        run.predict(pd.DataFrame({"x": [1.0]}))
    with pytest.raises(InputError, match="a DataFrame with a column for each input; got list"):
        run.predict([1.0])  # type: ignore[arg-type]
    with pytest.raises(StateError, match="outcome"):
        run.best()
    run.tell(pd.DataFrame({"x": [0.0, 1.0, 2.0, 4.0]}).assign(y=bowl))
    assert run.predict(pd.DataFrame({"x": [3.0]}))["mean"].iloc[0] < 3.0


def test_a_pool_is_learned_without_asking_a_place_twice() -> None:
    generator = np.random.default_rng(0)
    table = pd.DataFrame(generator.random((40, 2)), columns=["lon", "lat"])
    table.index = [f"site {i}" for i in table.index]
    run = campaign(Pool(table), goal="learn")
    for _ in range(5):
        batch = run.ask(4)
        np.testing.assert_array_equal(
            batch[["lon", "lat"]].to_numpy(), table.loc[batch["place"]].to_numpy()
        )
        run.tell(batch.assign(y=np.sin(4 * batch["lon"]) + batch["lat"], yvar=0.01))
    assert run.trials()["place"].is_unique
    with pytest.raises(InputError, match="20"):
        run.ask(21)
    first = run.trials()["place"].iloc[0]
    with pytest.raises(InputError, match="places without an outcome"):
        run.tell(pd.DataFrame({"place": [first], "y": [0.0], "yvar": [0.01]}))
    with pytest.raises(UnsupportedError, match="goal learn"):
        run.best()
    error = run.predict(table)["mean"] - (np.sin(4 * table["lon"]) + table["lat"])
    assert error.abs().max() < 0.2


def test_places_may_be_measured_again_where_that_is_wanted() -> None:
    table = pd.DataFrame({"x": [0.0, 1.0, 2.0]})
    run = campaign(Pool(table, repeats=True), goal="learn", initial=3)
    for _ in range(4):
        run.tell(run.ask(2).assign(y=1.0))
    assert run.trials()["place"].value_counts().max() > 1


def test_what_is_learned_is_learned_where_it_matters() -> None:
    targets = pd.DataFrame({"x": np.linspace(3.0, 4.0, 20)})
    run = told(campaign(goal="learn", targets=targets, initial=2), 8)
    assert (run.trials()["x"].iloc[2:] > 2.0).mean() > 0.6


def test_a_seed_repeats_a_campaign() -> None:
    tables = [told(campaign(seed=s), 5).trials() for s in (3, 3, 4)]
    pd.testing.assert_frame_equal(tables[0], tables[1])
    assert not tables[0]["x"].equals(tables[2]["x"])
    torch.manual_seed(0)
    before = torch.get_rng_state()
    told(campaign(), 5)
    assert torch.equal(before, torch.get_rng_state())


def test_hooks_are_called_once_it_is_in_the_books() -> None:
    seen: list[Any] = []

    class Watch(Callback):
        def after_ask(self, campaign: Any, frame: pd.DataFrame) -> None:
            seen.append(("ask", frame.index.tolist(), len(campaign.running())))

        def after_tell(self, campaign: Any, frame: pd.DataFrame) -> None:
            seen.append(("tell", frame["status"].tolist(), len(campaign.running())))

    run = campaign(callbacks=[Watch()])
    batch = run.ask(2)
    run.tell(batch.assign(y=bowl).iloc[[0]])
    run.fail([1], "broken")
    assert seen == [("ask", [0, 1], 2), ("tell", ["told"], 1), ("tell", ["failed"], 0)]


def test_trials_of_ones_own_may_be_put_under_way() -> None:
    run = campaign()
    mine = run.enqueue(pd.DataFrame({"x": [0.25, 3.75]}))
    assert run.running()["x"].tolist() == [0.25, 3.75]
    run.tell(mine.assign(y=bowl))
    assert run.trials()["ask"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"space": Box({"x": (0.0, 5.0)})}, r"\['x', 0.0, 5.0\].* in place of .*\['x', 0.0, 4.0\]"),
        ({"space": Box({"x": (0.0, 4.0)}, units={"x": "bar"})}, "'x': 'bar'.* in place of"),
        ({"goal": "minimise"}, "another goal .minimise in place of maximise"),
        ({"constraints": ["x <= 3"]}, "x <= 3"),
    ],
)
def test_what_differs_from_a_stored_campaign_is_named(
    options: dict[str, Any], message: str
) -> None:
    store = campaign().ledger.store
    with pytest.raises(StateError, match=message):
        campaign(**{"store": store, **options})


def test_enqueued_trials_are_the_next_ones() -> None:
    run = campaign(budget=5)
    run.enqueue(pd.DataFrame({"x": [0.25, 3.75, 1.5]}))
    other = Campaign.resume(run.ledger.store)
    assert run.ask(2)["x"].tolist() == [0.25, 3.75]
    batch = other.ask(2)  # the one that is left, and a new one
    assert batch.index.tolist() == [2, 3] and batch["x"][2] == 1.5 and other.remaining == 1
    assert len(run.ask(3)) == 1 and run.remaining == 0
    with pytest.raises(BudgetError):
        run.ask()


def test_a_run_evaluates_enqueued_trials_first() -> None:
    run = campaign()
    run.ask(by="the night shift")
    mine = run.enqueue(pd.DataFrame({"x": [0.25, 3.75, 1.5]}))
    run.tell(mine.assign(y=bowl).iloc[[1]])
    seen: list[Any] = []

    def objective(row: Any) -> float:
        seen.append((row.name, float(row["x"])))
        return float(row["x"])

    trials = run.run(objective, 5)
    assert seen[:2] == [(1, 0.25), (3, 1.5)] and [id for id, _ in seen] == [1, 3, 4]
    assert trials["status"].tolist() == ["running"] + ["told"] * 4


@pytest.mark.parametrize("outcomes", [0, 8])
@pytest.mark.parametrize("goal", ["minimise", "learn"])
@pytest.mark.parametrize(
    "space",
    [
        LINE,
        Box({"n": (1, 9), "k": list("abcd")}, integer=["n"]),
        Box({"k": list("abcdef"), "l": list("uvwxyz")}),
        Box({"n": (1, 3), "m": (1, 4)}, integer=["n", "m"]),
        Pool(pd.DataFrame({"x": [i / 15 for i in range(60)]}), repeats=True),
    ],
    ids=["line", "mixed", "categories", "few", "pool"],
)
def test_exact_outcomes_are_measured_at_different_settings(
    space: Any, goal: Any, outcomes: int
) -> None:
    run = Campaign(space, goal=goal, noise="none", seed=0, initial=4, optimiser=LITTLE)
    names = list(space.names)
    if outcomes:
        batch = run.ask(outcomes)
        values = batch[names].map(lambda v: ord(v) if isinstance(v, str) else v)
        run.tell(batch.assign(y=values.sum(axis=1) ** 2))
    run.ask(20)
    run.ask(1)
    many = 12 if names == ["n", "m"] else outcomes + 21
    assert len(run.trials()[names].drop_duplicates()) == min(many, outcomes + 21)
    if names == ["x"]:
        gaps = run.trials()["x"].sort_values().diff().dropna()
        assert gaps.min() > 3e-6


@pytest.fixture(scope="module")
def well() -> Campaign:
    """What nothing that is refused changes."""
    return told(campaign(), 5)


GOOD = pd.DataFrame({"x": [1.0, 2.0], "y": [4.0, 1.0]})


@pytest.mark.parametrize(
    ("frame", "error", "words"),
    [
        (GOOD.assign(y=[1.0, math.nan]), InputError, "outcome in every row"),
        (GOOD.assign(y=[1.0, math.inf]), InputError, "finite"),
        (GOOD.assign(y=["1", "2"]), InputError, "numbers"),
        (GOOD.assign(y=[None, 1.0]), InputError, "outcome in every row"),
        (GOOD.drop(columns="y"), InputError, "'y'"),
        (GOOD.drop(columns="x"), InputError, "'x'"),
        (GOOD.assign(z=1.0), InputError, "also z"),
        (GOOD.assign(x=[1.0, 9.0]), BoundsError, "between 0 and 4"),
        (GOOD.assign(yvar=[0.1, 0.1]), NoiseError, "yvar"),
        (GOOD.set_axis([7, 8]), InputError, "trial ids"),
        (GOOD.assign(trial=[0, 0]), InputError, "every trial once"),
        (GOOD.assign(trial=[0, 99]), InputError, "99"),
        (GOOD.assign(trial=["0", "1"]), InputError, "trial ids"),
        (GOOD.assign(trial=[0, 1]), InputError, "was asked for"),
        (GOOD.iloc[:0], InputError, "one row"),
        ([1.0, 2.0], InputError, "DataFrame"),
    ],
)
def test_frames_that_cannot_be_are_refused_and_nothing_changes(
    well: Campaign, frame: Any, error: type[Exception], words: str
) -> None:
    before, at = well.trials(), pd.DataFrame({"x": [0.3]})
    said = well.predict(at)
    with pytest.raises(error, match=words):
        well.tell(frame)
    pd.testing.assert_frame_equal(well.trials(), before)
    pd.testing.assert_frame_equal(well.predict(at), said)


def test_noise_is_known_for_all_or_for_none() -> None:
    run = campaign()
    batch = run.ask(4).assign(y=bowl, yvar=[0.1, 0.2, 0.3, 0.4])
    with pytest.raises(NoiseError, match="positive"):
        run.tell(batch.assign(yvar=[0.1, 0.0, 0.1, 0.1]))
    run.tell(batch)
    run.state.update()
    assert run.model is not None and run.model.noise_mode == "known"
    with pytest.raises(NoiseError, match="with"):
        run.tell(run.ask().assign(y=bowl))


@pytest.mark.parametrize("q", [0, -1, 1.5, "2", True])
def test_a_q_that_cannot_be_is_refused(q: Any) -> None:
    with pytest.raises(InputError, match="an integer"):
        campaign().ask(q)


@pytest.mark.parametrize(
    "options",
    [
        {"goal": "largest"},
        {"surrogate": "wisky"},
        {"surrogate": 3},
        {"acquisition": "ucb"},
        {"initial": 1},
        {"targets": [[1.0]]},
        {"callbacks": 5},
        {"space": 5},
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/c.db"
    with pytest.raises(InputError):
        Campaign(**{"space": Box({"x": (0.0, 4.0)}), "store": url, **options})
    with pytest.raises(StateError):
        Campaign.resume(url)


def test_reasons_are_words_and_ids_are_known() -> None:
    run = campaign()
    run.ask()
    for ids, reason in (([0], ""), ([0], None), (0.5, "why"), ([4], "why"), ([0, 0], "why")):
        with pytest.raises(InputError):
            run.fail(ids, reason)  # type: ignore[arg-type]
    assert run.trials()["status"].tolist() == ["running"]


def test_a_campaign_in_memory_is_pickled() -> None:
    campaign = Campaign(Box({"x": (0.0, 4.0)}), "exact", "random", seed=0, initial=3)
    campaign.tell(pd.DataFrame({"x": [0.0, 1.0, 2.0, 4.0], "y": [1.0, 2.0, 0.0, 3.0]}))
    campaign.state.update()
    again = pickle.loads(pickle.dumps(campaign))
    assert again.ask(2).equals(campaign.ask(2))
    campaign.tell(pd.DataFrame({"x": [3.0], "y": [1.0]}))
    assert len(again.trials()) == 6 and len(campaign.trials()) == 7


def test_a_campaign_shows_itself() -> None:
    campaign = Campaign({"x": (0.0, 4.0), "k": ["a", "b"]}, goal="minimise", budget=9, seed=0)
    assert repr(campaign) == "<Campaign 'campaign': minimise over x, k; 0 of 9 told>"
    campaign.tell(campaign.ask(2).assign(y=[1.0, 2.0]))
    assert "2 of 9 told" in repr(campaign) and "<table" in campaign._repr_html_()
