"""What a campaign recommends: what is surely better than measured settings, or one of these."""

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch

from bo_stream import Box, Campaign, Pool
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.mathematics.linalg import chol_psd, with_jitter
from bo_stream.scores import marginals, outcome_distribution, probability_higher

BOX = Box({"x": (0.0, 4.0), "rate": (1e-3, 1.0)}, log=["rate"])


def noisy(frame: pd.DataFrame, rng: np.random.Generator, sd: float = 1.0) -> pd.Series:
    away = (frame["x"] - 3.0) ** 2 + (np.log10(frame["rate"]) + 1.0) ** 2
    return 5.0 + away + sd * rng.standard_normal(len(frame))


@pytest.mark.parametrize("surrogate", ["warped", "hsgp", "exact", "trust_region"])
def test_it_is_near_the_optimum_and_its_interval_holds_the_truth(surrogate: str) -> None:
    rng = np.random.default_rng(0)
    run = Campaign(BOX, surrogate, goal="minimise", seed=0)
    X = pd.DataFrame({"x": rng.uniform(0, 4, 80), "rate": 10 ** rng.uniform(-3, 0, 80)})
    run.tell(X.assign(y=noisy(X, rng)))
    (row,) = run.recommend().to_dict("records")
    assert abs(row["x"] - 3.0) < 0.7 and abs(np.log10(row["rate"]) + 1.0) < 0.7
    assert row["lower"] < row["mean"] < row["upper"]
    assert row["lower"] - 0.5 < 5.0 < row["upper"] + 0.5
    assert run.best()["y"] < 4.5  # the luckiest outcome promises too much


def test_several_are_apart_and_the_best_first() -> None:
    rng = np.random.default_rng(1)
    run = Campaign(BOX, "hsgp", goal="minimise", seed=0)
    X = pd.DataFrame({"x": rng.uniform(0, 4, 60), "rate": 10 ** rng.uniform(-3, 0, 60)})
    run.tell(X.assign(y=noisy(X, rng)))
    three = run.recommend(3)
    assert three["mean"].is_monotonic_increasing
    gaps = (three["x"].diff().abs() / 4.0).dropna(), (np.log10(three["rate"]).diff().abs() / 3.0)
    assert all(max(pair) > 0.05 for pair in zip(*(gap.dropna() for gap in gaps), strict=True))


def test_a_pool_recommends_its_places() -> None:
    table = pd.DataFrame({"x": np.linspace(0, 4, 41)}, index=[f"site {i}" for i in range(41)])
    run = Campaign(Pool(table), goal="maximise", seed=0, initial=4)
    batch = run.ask(12)
    run.tell(batch.assign(y=-((batch["x"] - 3.0) ** 2)))
    two = run.recommend(2)
    assert {"site 29", "site 30", "site 31"} >= set(two["place"]) and len(set(two["place"])) == 2


def test_the_gain_is_the_expected_regret_of_the_recommendation() -> None:
    """By samples of the joint posterior on a grid, of which the best is taken."""
    rng, generator = np.random.default_rng(2), torch.Generator().manual_seed(2)
    run = Campaign(BOX, "exact", goal="minimise", seed=0)
    X = pd.DataFrame({"x": rng.uniform(0, 4, 40), "rate": 10 ** rng.uniform(-3, 0, 40)})
    run.tell(X.assign(y=noisy(X, rng)))
    (row,) = run.recommend().to_dict("records")
    grid = np.stack(np.meshgrid(np.linspace(0, 4, 21), np.logspace(-3, 0, 21)), -1).reshape(-1, 2)
    points = run.space.encode(np.concatenate([[[row["x"], row["rate"]]], grid]))
    best, model = [], run.model
    ensemble = run.state.engine.used[0].kernels()
    assert model is not None and ensemble is not None
    for weight, process in zip(ensemble.weights, ensemble.processes(model), strict=True):
        joint = process.at(model.transformed(points))
        root = chol_psd(with_jitter(joint.covariance(joint)[0], 1e-8), repair=1e-6)
        normals = torch.randn(100, len(points), dtype=root.dtype, generator=generator)
        drawn = joint.mean[0] + normals @ root.mT
        best.append(float(weight * (drawn.amax(1) - drawn[:, 0]).mean()))
    scale = cast(Any, model.outcome_map()).stdvs.item()
    assert row["gain"] == pytest.approx(scale * sum(best), rel=0.25)
    more = pd.DataFrame({"x": rng.uniform(0, 4, 400), "rate": 10 ** rng.uniform(-3, 0, 400)})
    run.tell(more.assign(y=noisy(more, rng)))
    assert run.recommend()["gain"].item() < 0.6 * row["gain"]


def needle(frame: pd.DataFrame) -> pd.Series:
    """Ackley's function, which is flat far from its optimum."""
    a = 32.0 * (frame.to_numpy() - 0.6)
    shape = 20.0 * np.exp(-0.2 * np.sqrt((a**2).mean(1))) + np.exp(np.cos(2.0 * np.pi * a).mean(1))
    return pd.Series(shape - 20.0 - np.e, frame.index)


def test_gains_are_between_the_best_single_point_and_the_range_of_outcomes() -> None:
    """Twenty outcomes in five inputs: the maximum of a function is above that of its mean."""
    names = ["a", "b", "c", "d", "e"]
    box, rng = Box(dict.fromkeys(names, (0.0, 1.0))), np.random.default_rng(0)
    run = Campaign(box, goal="maximise", budget=60, seed=0)
    X = pd.DataFrame(rng.random((20, 5)), columns=names)
    run.tell(X.assign(y=needle(X)))
    advised = run.recommend(2)
    assert run.model is not None
    kernels = run.state.engine.used[0].kernels()
    there = outcome_distribution(run.model, run.space.encode(rng.random((2000, 5))), kernels)
    single = there.expected_improvement(torch.tensor(advised["mean"].to_numpy())).amax(1).numpy()
    gains, seen = advised["gain"].to_numpy(), np.ptp(needle(X))
    assert (2.0 * single < gains).all() and (gains <= seen).all()
    state = torch.random.get_rng_state()
    assert (run.recommend(2)["gain"].to_numpy() == gains).all()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_gain_is_no_larger_than_the_range_of_few_outcomes() -> None:
    """From a steep slope at one end the prior expects much more than was seen."""
    run = Campaign(Box({"x": (0.0, 1.0)}), "exact", goal="maximise", seed=0, initial=2)
    run.tell(pd.DataFrame({"x": [0.0, 0.01, 0.02, 0.03], "y": [1.0, 1.02, 1.03, 1.1]}))
    assert 0.05 < run.recommend()["gain"].item() <= 0.1


@pytest.mark.parametrize("kind", ["constrained", "pool"])
def test_gains_are_of_what_is_feasible(kind: str) -> None:
    """An unmeasured row of a pool may be the best one."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.random(24), "z": np.linspace(0.0, 1.0, 24)})
    if kind == "constrained":
        frame = frame[frame["x"] + frame["z"] <= 1.0].reset_index(drop=True)
    space = Pool(frame) if kind == "pool" else Box({"x": (0.0, 1.0), "z": (0.0, 1.0)})
    limits = ["x + z <= 1"] if kind == "constrained" else []
    run = Campaign(space, "exact", goal="maximise", seed=0, constraints=limits)
    told = frame.assign(y=3.0 * frame["x"] + frame["z"])
    if kind == "pool":
        told = told.assign(place=frame.index).drop(index=int(told["y"].argmax()))
    run.tell(told.reset_index(drop=True))
    row = run.recommend().iloc[0]
    most = 3.0 if kind == "constrained" else (3.0 * frame["x"] + frame["z"]).max()
    assert row["mean"] + row["gain"] == pytest.approx(most, abs=0.1)


def test_gains_under_a_warp_are_no_larger_than_outcomes_allow() -> None:
    """The warped distribution has a long tail towards bad outcomes, none towards good ones."""
    square = Box({"a": (-5.0, 10.0), "b": (0.0, 15.0)})
    run = Campaign(square, goal="minimise", budget=60, seed=0)
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform([-5.0, 0.0], [10.0, 15.0], (40, 2)), columns=["a", "b"])
    X.iloc[30:] = [np.pi, 2.275] + rng.normal(0.0, 0.03, (10, 2))  # an optimum of Branin's function
    curve = X["b"] - 5.1 * X["a"] ** 2 / (4.0 * np.pi**2) + 5.0 * X["a"] / np.pi - 6.0
    y = curve**2 + 10.0 * (1.0 - 0.125 / np.pi) * np.cos(X["a"]) + 10.0
    run.tell(X.assign(y=y))
    row = run.recommend().iloc[0]
    assert 0.0 <= row["gain"] < 0.05 * np.ptp(y) and abs(row["mean"] - 0.397887) < 0.1
    assert row["lower"] <= row["mean"] <= row["upper"]


def test_what_was_not_measured_must_be_surely_better() -> None:
    """Outcomes of noise alone, and a slope that surely goes on."""
    line = Box({"x": (0.0, 1.0)})
    rising = Campaign(line, "exact", goal="maximise", seed=0)
    x = np.linspace(0.0, 0.9, 10)
    rising.tell(pd.DataFrame({"x": x, "y": 3.0 * x - x**2}))
    row = rising.recommend().iloc[0]
    assert row["x"] > 0.93 and row["mean"] > rising.best()["y"]
    vague = Campaign(line, "exact", goal="maximise", seed=0)
    x = np.linspace(0.0, 1.0, 20)
    vague.tell(pd.DataFrame({"x": x, "y": x + 0.5 * np.random.default_rng(0).standard_normal(20)}))
    row = vague.recommend().iloc[0]
    told, model = vague.space.encode(x[:, None]), vague.model
    assert model is not None
    here = vague.space.encode(np.array([[row["x"]]]))
    higher = probability_higher(model, here, told, vague.state.engine.used[0].kernels())
    assert row["x"] in x or float(higher.min()) >= 0.9


def test_the_best_of_exact_outcomes_is_recommended_as_it_was_told() -> None:
    box = Box(
        {"rate": (1e-3, 1.0), "trees": (10, 500), "loss": ["squared", "huber"]},
        log=["rate"],
        integer=["trees"],
    )
    run = Campaign(box, goal="minimise", budget=40, noise="none", seed=0)
    batch = run.ask(14)
    batch.loc[len(batch) - 1, ["rate", "trees", "loss"]] = [0.03, 203, "huber"]
    batch = batch.drop(columns=["trial"], errors="ignore").reset_index(drop=True)
    steep = 50.0 * np.log10(batch["rate"].astype(float) / 0.03).abs()
    run.tell(batch.assign(y=steep + (batch["trees"].astype(float) - 203.0).abs()))
    row, best = run.recommend().iloc[0], run.best()
    assert all(row[name] == best[name] for name in box.names) and row["trees"] == 203


def test_it_refuses_what_has_no_answer() -> None:
    run: Any = Campaign(BOX, goal="minimise", seed=0)
    with pytest.raises(StateError, match="outcomes"):
        run.recommend()
    with pytest.raises(InputError, match="at least 1"):
        run.recommend(0)
    with pytest.raises(UnsupportedError, match="learn"):
        Campaign(BOX, goal="learn", seed=0).recommend()


def test_intervals_of_few_outcomes_allow_for_other_kernels() -> None:
    campaign = Campaign(Box({"a": (0.0, 1.0), "b": (0.0, 1.0)}), goal="minimise", budget=30, seed=0)
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.random((12, 2)), columns=["a", "b"])
    campaign.tell(frame.assign(y=np.sin(6.0 * frame["a"]) + frame["b"] ** 2))
    campaign.state.update()
    assert campaign.model is not None
    at = pd.DataFrame(generator.random((200, 2)), columns=["a", "b"])
    _, alone = marginals(campaign.model, campaign.space.encode(at.to_numpy()))
    assert (campaign.predict(at)["sd"] / alone.sqrt().numpy()).median() > 1.02


def test_predicted_measurements_have_their_noise() -> None:
    rng = np.random.default_rng(4)
    run = Campaign(BOX, "warped", goal="minimise", seed=0)
    X = pd.DataFrame({"x": rng.uniform(0, 4, 260), "rate": 10 ** rng.uniform(-3, 0, 260)})
    y = noisy(X, rng, 2.0)
    run.tell(X.iloc[:60].assign(y=y.iloc[:60]))
    rest, told = X.iloc[60:], y.iloc[60:]
    smooth, measured = run.predict(rest), run.predict(rest, noise=True)
    assert (measured["sd"] > smooth["sd"]).all() and measured.index.equals(rest.index)
    inside = (measured["lower"] <= told) & (told <= measured["upper"])
    assert 0.82 < inside.mean() < 0.96
    assert np.allclose(measured["sd"] ** 2 - smooth["sd"] ** 2, 4.0, atol=2.0)
