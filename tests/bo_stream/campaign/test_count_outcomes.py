"""Campaigns of counts: positives among the examined, cases in an exposure, yes and no."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("sqlalchemy")

from acquisitions import NIPV, build, response_nipv, select_from_pool
from bo_stream import Box, Campaign, CountGP, Pool
from bo_stream.campaign.storage.sql_store import Database
from bo_stream.errors import InputError, StateError
from bo_stream.likelihoods import Bernoulli, Binomial, Poisson, StudentT

SIDE = np.linspace(0.0, 1.0, 6)
PLACES = pd.DataFrame([(x, y) for x in SIDE for y in SIDE], columns=["lon", "lat"])
OUTCOME = {"positive": Binomial(trials="examined")}
SMALL = {"name": "wiski", "grid_size": 10}


def prevalence(frame: pd.DataFrame) -> "pd.Series[float]":
    return 1.0 / (1.0 + np.exp(3.0 - 4.0 * frame["lon"] + frame["lat"]))


def surveyed(frame: pd.DataFrame) -> pd.DataFrame:
    """Counts that depend on the place alone."""
    examined = 40 + (17 * frame["lon"]).round() * 3
    return frame.assign(examined=examined, positive=(examined * prevalence(frame)).round())


def begun(store: Any = None, **options: Any) -> Campaign:
    given: dict[str, Any] = {"goal": "learn", "seed": 1, "outcome": OUTCOME, "surrogate": SMALL}
    return Campaign(Pool(PLACES), store=store, **{**given, **options})


def test_a_survey_is_told_in_counts_and_predicted_as_prevalence() -> None:
    campaign = begun()
    for _ in range(4):
        campaign.tell(surveyed(campaign.ask(5)))
    trials = campaign.trials()
    assert list(trials)[3:6] == ["examined", "positive", "y"]
    told = surveyed(trials[["lon", "lat"]])
    for name in ("examined", "positive"):
        assert (trials[name] == told[name]).all()
    assert isinstance(campaign.model, CountGP) and campaign.model.num_observed == 20
    said = campaign.predict(PLACES)
    assert list(said) == ["mean", "sd", "lower", "upper"]
    assert ((said > 0.0) & (said < 1.0)).all(axis=None)
    assert (said["lower"] < said["mean"]).all() and (said["mean"] < said["upper"]).all()
    assert (said["mean"] - prevalence(PLACES)).abs().mean() < 0.03
    assert campaign.decision.acquisition == "nipv"


def test_resumed_before_every_ask_and_tell_it_goes_on_bit_for_bit(tmp_path: Path) -> None:
    url, often = f"sqlite:///{tmp_path}/a.db", {"snapshot_every": 4}
    whole = begun(Database(f"sqlite:///{tmp_path}/whole.db", **often))
    begun(Database(url, **often))
    for _ in range(6):
        whole.tell(surveyed(whole.ask(3)))
        batch = Campaign.resume(Database(url, **often)).ask(3)
        Campaign.resume(Database(url, **often)).tell(surveyed(batch))
    resumed = Campaign.resume(url)
    pd.testing.assert_frame_equal(resumed.trials(), whole.trials(), check_exact=True)
    assert resumed.model is not None and whole.model is not None
    ours, theirs = (c.model.state_dict() for c in (resumed, whole))
    assert all(torch.equal(v, theirs[k]) for k, v in ours.items() if isinstance(v, torch.Tensor))
    apart = (resumed.predict(PLACES) - whole.predict(PLACES)).abs()
    assert apart.max(axis=None) <= 1e-10
    with pytest.raises(StateError, match="another outcome"):
        begun(url, outcome=None)


LEFT_OUT = [("without positive yet", 2), ("with 0 of 0", 1)]


@pytest.mark.parametrize(
    ("examined", "positive", "said"),
    [
        (10, 11, "at most 'examined' in 'positive'; got 11 in row 1"),
        (0, 1, "above 0 in 'examined'; got 0 in row 1"),
        (10, 2.5, "whole counts in 'positive', 0 or more; got 2.5 in row 1"),
        (9.5, 2, "whole numbers in 'examined'; got 9.5 in row 1"),
        (10, -1, "whole counts"),
        (np.nan, 1, "finite numbers in column 'examined'"),
    ],
)
def test_impossible_counts_are_refused_and_nothing_is_stored(
    examined: float, positive: float, said: str
) -> None:
    campaign = begun()
    batch = campaign.ask(3).assign(examined=20.0, positive=3.0)
    batch.loc[1, ["examined", "positive"]] = examined, positive
    with pytest.raises(InputError, match=said):
        campaign.tell(batch)
    assert (campaign.trials()["status"] == "running").all()


def test_other_columns_and_other_answers_are_refused() -> None:
    campaign = begun()
    batch = campaign.ask(2)
    with pytest.raises(InputError, match="columns among lon, lat, examined, positive; got also y"):
        campaign.tell(batch.assign(y=0.2))
    with pytest.raises(InputError, match="a column 'examined'"):
        campaign.tell(batch.assign(positive=2))
    campaign.tell(surveyed(batch))
    campaign.tell(surveyed(batch))  # once more: taken once
    with pytest.raises(StateError, match="was told before"):
        campaign.tell(surveyed(batch).assign(examined=1000))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"goal": "minimise"}, "learn or maximise"),
        ({"noise": 0.1}, "no noise"),
        ({"surrogate": "warped"}, "takes known noise"),
        ({"outcome": {"positive": Binomial()}}, "columns of counts and of trials"),
        ({"outcome": {"lon": Bernoulli()}}, "an input, beside .* an outcome"),
        ({"outcome": {"y": Bernoulli()}}, "an outcome, beside .* a column of"),
        ({"outcome": {"value": StudentT()}}, "a likelihood of counts"),
        ({"outcome": {"column": "k", "likelihood": "binomal"}}, "one of bernoulli, binomial"),
        (
            {"outcome": {"column": "k", "likelihood": "poisson", "trials": "n"}},
            "of 'poisson'; got an unexpected",
        ),
    ],
)
def test_settings_that_counts_cannot_have(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        begun(**changes)


@pytest.mark.parametrize("kind", [Poisson(exposure="years"), Bernoulli(nugget=0.0)])
def test_rates_and_yes_or_no_in_a_box(kind: Any) -> None:
    campaign = Campaign(
        Box({"x": (0.0, 1.0)}), SMALL, "qucb", seed=0, outcome={"cases": kind}, budget=12
    )

    def measure(trial: "pd.Series[Any]") -> tuple[float, float] | float:
        near = np.exp(2.0 - 20.0 * (trial["x"] - 0.7) ** 2)
        years = 10.5 + trial.name % 2
        return (round(years * near), years) if isinstance(kind, Poisson) else float(near > 2.0)

    trials = campaign.run(measure)
    assert len(trials) == 12 and abs(campaign.best()["x"] - 0.7) < 0.3
    advised = campaign.recommend(2)
    assert (
        list(advised) == ["x", "mean", "sd", "lower", "upper", "gain"]
        and (advised["lower"] > 0.0).all()
    )
    assert abs(advised["x"][0] - 0.7) < 0.2
    said = campaign.predict(pd.DataFrame({"x": [0.05, 0.7]}))["mean"]
    assert 0.0 < said[0] < said[1]


def test_the_next_site_is_where_the_variance_of_the_prevalence_falls_most() -> None:
    X = torch.tensor(PLACES.to_numpy())
    unit = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    k = torch.tensor((40 * prevalence(PLACES)).round().to_numpy())
    model = CountGP(X[::3], k[::3], 40, bounds=unit, grid_size=10)
    acqf = response_nipv(model, X, 25, X_pending=X[:2])
    noise, weights = model.future_noise(X, 25)[:, 0], model.response_weights(X)
    joint = model.posterior(X).distribution.covariance_matrix.detach()
    weights = weights / weights.sum()

    def left(*sites: int) -> float:  # dense: variances after counts at the pending sites and these
        S = [0, 1, *sites]
        K = joint[S][:, S] + torch.diag(noise.detach()[S])
        after = joint - joint[:, S] @ torch.linalg.solve(K, joint[S])
        return float(-(weights * after.diagonal()).sum())

    values = torch.tensor([left(i) for i in range(len(X))], dtype=torch.float64)
    torch.testing.assert_close(acqf(X.unsqueeze(-2)), values, rtol=1e-6, atol=1e-9)
    chosen, value = select_from_pool(acqf, X[2:], 2)
    first, second = (chosen + 2).tolist()
    assert first == 2 + int(values[2:].argmax())
    assert float(value[1]) == pytest.approx(left(first, second), rel=1e-6)
    named = build("nipv", model, mc_points=X, trials=25, X_pending=X[:2])
    assert isinstance(named, NIPV)
    torch.testing.assert_close(named(X[5:6]), acqf(X[5:6]), rtol=1e-12, atol=0.0)
    point = X[5:6].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: acqf(x), point, atol=1e-6)


def test_rows_without_a_count_are_left_out_with_a_warning() -> None:
    campaign = begun()
    batch = campaign.ask(3).assign(examined=[20.0, 0.0, 20.0], positive=[3.0, 0.0, None])
    with pytest.warns(UserWarning) as warned:
        campaign.tell(batch.iloc[::-1])
    said = [str(one.message) for one in warned]
    assert said == [f"Rows {what}, which are left out: {id}." for what, id in LEFT_OUT]
    assert campaign.trials()["status"].tolist() == ["told", "running", "running"]
    with pytest.warns(UserWarning, match="without positive yet"):
        campaign.tell(batch.loc[[2]])
    campaign.tell(batch.loc[[2]].assign(positive=1.0))
    assert campaign.trials()["positive"].tolist()[::2] == [3.0, 1.0]


@pytest.mark.parametrize("truth", [bool, np.bool_, torch.tensor, lambda one: {"ill": one}])
def test_objectives_may_return_yes_and_no(truth: Any) -> None:
    space = Box({"a": (0.0, 1.0)})
    campaign = Campaign(space, goal="learn", outcome={"ill": Bernoulli()}, initial=4, seed=0)
    trials = campaign.run(lambda row: truth(row["a"] > 0.5), 3)
    assert trials["ill"].tolist() == (trials["a"] > 0.5).tolist()
    assert "returned bool True" in Campaign(space, seed=0).run(lambda row: True, 1)["reason"][0]


def test_a_count_of_nothing_fails_its_trial_in_a_run() -> None:
    campaign = begun()
    outcomes: list[Any] = [{"examined": 0, "positive": 0}, (0, 0), {"examined": 9, "positive": 2}]
    with pytest.warns(UserWarning, match="0 of 0"):
        trials = campaign.run(lambda row: outcomes[row.name], 3)
    assert trials["status"].tolist() == ["failed", "failed", "told"]


def test_yes_and_no_are_ones_and_zeros() -> None:
    campaign = Campaign(Box({"a": (0.0, 1.0)}), goal="learn", outcome={"ill": Bernoulli()}, seed=0)
    batch = campaign.ask(6)
    campaign.tell(batch.assign(ill=[True, "yes", "TRUE", "no", 0, "False"]))
    assert campaign.trials()["ill"].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    with pytest.raises(InputError, match="'ill', one of False, True; got 'maybe' in row 6"):
        campaign.tell(campaign.ask().assign(ill="maybe"))
