"""Tables as streams: what the rows of a run say, and what is refused."""

import json
import math
import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import typer

from bo_stream import ExactGP
from bo_stream.scores import marginals, noise_variance, score
from experiments.common.command import CONFIGS, parsed
from experiments.common.data import DRIFTING, MADE_UP, rows_of, scores
from experiments.stream_regression.rows import bounds_of, split_of
from experiments.stream_regression.runs import COLUMNS, RegressionRun, RegressionSizes
from experiments.stream_regression.study import differences, ends, last_rows, plan, report

SIZES = RegressionSizes(100, 40, 30, 20, 2.0, 1.5, 6)
CONFIG = parsed(CONFIGS / "stream_tables.toml")


def run_of(name: str = "exact", seed: int = 0, order: str = "shuffled", **options) -> RegressionRun:
    entry = {"name": name, **options}
    return RegressionRun(name, name, entry, {"name": MADE_UP}, order, SIZES, seed, "made-up")


def test_the_rows_of_a_run(tmp_path: Path) -> None:
    run = run_of(rows=60)
    run.execute(tmp_path)
    table = pd.read_csv(tmp_path / f"{run.stem}.csv")
    assert tuple(table) == COLUMNS and all(kind.kind in "if" for kind in table.dtypes)
    assert table["n"].tolist() == [30, 50, 70, 90, 100]
    scored = table[table["rmse"].notna()]
    assert scored["n"].tolist() == [30, 50, 90, 100]  # by factors of 1.5, and at the end
    assert np.isfinite(scored[["nlpd", "coverage", "predict_seconds"]]).all(axis=None)
    assert table["taken"].tolist() == [30, 50, 60, 60, 60] and table["update_seconds"].iloc[-1] == 0
    assert (table["fit_seconds"] > 0).tolist() == [True, False, True, False, False]  # at 30 and 60
    parts = table["update_seconds"] + table["fit_seconds"]
    assert np.allclose(table["wallclock_seconds"], parts.cumsum(), rtol=1e-12)
    about = json.loads((tmp_path / f"{run.stem}.json").read_text())
    assert about["problem"]["name"] == "made-up"


def test_every_batch_is_scored_before_it_is_absorbed() -> None:
    split = split_of(*rows_of({"name": MADE_UP}), "shuffled", 100, 40, 0)
    table = pd.DataFrame(run_of().followed(split, SIZES))
    model = ExactGP(split.X[:30], split.Y[:30], bounds=bounds_of(split))
    model.fit(SIZES.evaluations)
    X, Y = split.X[30:50], split.Y[30:50]
    density, error = float(model.log_predictive(X, Y)), model.posterior(X).mean - Y
    assert table["log_predictive"][1] == pytest.approx(density, rel=1e-9)
    assert table["stream_nlpd"][1] == pytest.approx(-density / 20, rel=1e-9)
    assert table["stream_rmse"][1] == pytest.approx(float(error.square().mean().sqrt()), rel=1e-9)
    said = score(model, split.X_test, split.Y_test, split.Y_test)
    assert table["rmse"][0] == pytest.approx(said.rmse, rel=1e-9)


def test_a_baseline_is_scored_point_by_point() -> None:
    split = split_of(*rows_of({"name": MADE_UP}), "shuffled", 100, 40, 0)
    rival = run_of("local", cap=40)
    table = pd.DataFrame(rival.followed(split, SIZES))
    assert table["stream_rmse"].iloc[-1] < 0.6 and table["bytes"].isna().all()
    total = -table["log_predictive"].iloc[1:].sum() / 70
    assert table["stream_nlpd"].iloc[-1] == pytest.approx(total, rel=1e-9)


def test_scores_are_those_of_the_library() -> None:
    split = split_of(*rows_of({"name": MADE_UP}), "shuffled", 100, 40, 0)
    model = ExactGP(split.X, split.Y)
    mean, variance = marginals(model, split.X_test)
    predicted = mean, variance + noise_variance(model).detach()
    said = score(model, split.X_test, split.Y_test, split.Y_test)
    assert scores(*predicted, split.Y_test[:, 0]) == pytest.approx(
        {"rmse": said.rmse, "nlpd": said.nlpd, "coverage": said.coverage}, rel=1e-9
    )


def test_orders_hold_the_same_rows() -> None:
    X, Y = rows_of({"name": MADE_UP})
    a, b = (split_of(X, Y, order, 100, 40, 3) for order in ("shuffled", "sorted"))
    assert bool((b.X[:, 0].diff() >= 0.0).all()) and not bool((a.X[:, 0].diff() >= 0.0).all())
    rows = a.X[:, 0].argsort()
    assert torch.equal(a.X[rows], b.X) and torch.equal(a.Y[rows], b.Y)
    assert torch.equal(a.X_test, b.X_test)


@pytest.mark.skipif("BO_STREAM_DATA" not in os.environ, reason="needs the tables")
def test_the_whole_plan_has_stems_of_its_own() -> None:
    runs = plan(CONFIG | {"order": ["shuffled", "sorted"], "seeds": [0]})
    assert pickle.loads(pickle.dumps(runs)) == runs
    assert len({run.stem for run in runs}) == len(runs) == 2 * (8 * 6 + 1)
    assert {run.title for run in runs if run.label == "wiski"} == {"road3d_first5000"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"order": ["backwards"]}, "order has backwards"),
        ({"surrogate": [{"name": "kriging"}]}, "no surrogate kriging"),
        ({"surrogate": [{"name": "wiski", "nodes": 3}]}, "surrogate wiski has nodes"),
        ({"surrogate": [{"name": "svi", "cap": 3}]}, "baseline svi has cap"),
        ({"table": [{"name": "concrete", "colums": []}]}, "table concrete has colums"),
        ({"batch": 0}, "batch is 0"),
        ({"fit_every": 0.5}, "factors above 1"),
    ],
)
def test_what_means_nothing_is_refused(changed: dict, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        plan(CONFIG | changed)


def test_differences_are_from_the_best_and_by_seed() -> None:
    done = []
    for seed, shift in enumerate((1.0, 2.0, 4.0, 3.0)):
        for k, name in enumerate(("hsgp", "exact", "cagp")):
            if name != "cagp" or seed:
                row = dict.fromkeys(COLUMNS, 1.0) | {"rmse": shift * 2.0**-k, "nlpd": shift + k}
                done.append((run_of(name, seed), pd.DataFrame([row, row])))
    found = differences(last_rows(done)).set_index(["of", "pair"])
    assert list(found.index) == [
        ("log RMSE", "hsgp - cagp"),
        ("log RMSE", "exact - cagp"),
        ("NLPD", "exact - hsgp"),
        ("NLPD", "cagp - hsgp"),
    ]
    assert found["median"].tolist() == pytest.approx([2 * math.log(2), math.log(2), 1.0, 2.0])
    assert found["seeds"].tolist() == [3, 3, 4, 3]
    assert np.allclose(found["low"], found["median"]) and np.allclose(
        found["high"], found["median"]
    )
    last = ends(last_rows(done)).set_index("surrogate")
    assert last["seeds"].to_dict() == {"hsgp": 4, "exact": 4, "cagp": 3}
    assert last.loc["hsgp", "RMSE"] == 2.5


def test_seeds_that_are_stored_count_as_done(tmp_path: Path) -> None:
    runs = [run_of(name, seed) for name in ("hsgp", "exact") for seed in (0, 1)]
    table = pd.DataFrame([dict.fromkeys(COLUMNS, 1.0)])
    done = [(run, table.assign(rmse=1.0 + k)) for k, run in enumerate(runs)]
    report(CONFIG, done, tmp_path)
    whole = pd.read_csv(tmp_path / "summary.csv")
    (tmp_path / "ends.csv").rename(tmp_path / "stored.csv")
    report(CONFIG | {"stored": str(tmp_path / "stored.csv")}, done[2:3], tmp_path)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "summary.csv"), whole)
    assert whole["RMSE"].tolist() == [1.5, 3.5] and whole["seeds"].tolist() == [2, 2]


@pytest.mark.slow
def test_what_drifts_is_followed_by_forgetting() -> None:
    sizes = RegressionSizes(1500, 100, 200, 25, 2.0, 2.0, 20)
    X, Y = rows_of({"name": DRIFTING})
    split = split_of(X, Y, "original", sizes.rows, sizes.test, 0)
    assert torch.equal(split.X[:, 0].argsort(), X[:1500, 0].argsort())  # in their order,
    assert len(split.X_test) == 100  # those held out after them
    last = {}
    for factor in (None, 0.9):
        options = {} if factor is None else {"forget": factor}
        run = RegressionRun(
            "wiski", "wiski", {"name": "wiski", "grid_size": 8, **options}, {}, "", sizes, 0, ""
        )
        *_, last[factor] = run.followed(split, sizes)
    assert last[0.9]["rmse"] < 0.6 * last[None]["rmse"]
