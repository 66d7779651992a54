"""Studies of a CSV of one's own, and of growth policies by name."""

from pathlib import Path

import pandas as pd
import pytest
import torch
import typer

from experiments.common.command import CONFIGS, parsed
from experiments.common.data import TableSplit, rows_of, waves
from experiments.common.study import tables
from experiments.growth.__main__ import ratios, tuned
from experiments.growth.scenarios import stream
from experiments.model_size import study as model_size
from experiments.stream_classification import study as classes
from experiments.stream_classification.labels import labelled
from experiments.stream_regression import study as regression


@pytest.fixture
def own(tmp_path: Path) -> str:
    X, Y = waves(80, 2)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y[:, 0], "z": -Y[:, 0]})
    frame.assign(kind=3 + (Y[:, 0] > 0.5).numpy()).to_csv(tmp_path / "own.csv", index=False)
    return str(tmp_path / "own.csv")


def test_streams_of_a_table_of_ones_own(own: str) -> None:
    entry = {"name": own, "target": ["y", "z"], "inputs": ["a", "b"]}
    c = parsed(CONFIGS / "stream_tables.toml") | {"table": [entry], "seeds": [0]}
    growth = {"name": "OIPS", "rho": [0.5, 0.9]}
    runs = regression.plan(c | {"surrogate": [{"name": "online_sgpr", "growth": growth}]})
    assert len({run.stem for run in runs}) == 4 and all("/" not in run.stem for run in runs)
    assert torch.equal(rows_of(runs[0].table)[1], -rows_of(runs[-1].table)[1])
    with pytest.raises(typer.BadParameter, match="own has several targets; give one of y, z"):
        rows_of({"name": own, "target": ["y", "z"]})


def test_labels_of_a_table_of_ones_own(own: str) -> None:
    table = {"name": own, "target": "kind", "inputs": ["a", "b"]}
    c = parsed(CONFIGS / "classes.toml") | {"table": [table], "order": ["random"]}
    assert [run.stem for run in classes.plan(c)] == ["own_wiski_random_0", "own_exact-GP_0"]
    data = labelled(table)
    assert (len(data.X), len(data.X_test)) == (60, 20) and set(data.y.tolist()) == {0, 1}
    with pytest.raises(typer.BadParameter, match="has to be one column of two numbers"):
        labelled({"name": own, "target": "y"})


def test_the_size_of_a_model_by_policy(own: str, tmp_path: Path) -> None:
    c = parsed(CONFIGS / "model_size.toml") | {"splits": [0]}
    c |= {"table": [{"name": own, "target": "y", "inputs": ["a", "b"], "batches": 2}]}
    c |= {"growth": [{"name": "OIPS", "rho": [0.5, 0.9]}, {"name": "VIPS", "label": "ours"}]}
    runs = model_size.plan(c)
    full = model_size.FULL
    assert [run.policy for run in runs] == [full, "OIPS, rho 0.5", "OIPS, rho 0.9", "ours"]
    done = []
    for run in runs[:3]:
        run.execute(tmp_path)
        done.append((run, pd.read_csv(tmp_path / f"{run.stem}.csv")))
    model_size.report(c, done, tmp_path)
    means = pd.read_csv(tmp_path / "means.csv").set_index("policy")
    few, many, whole = (means.loc[run.policy] for run in (*runs[1:3], runs[0]))
    assert few["points"] < many["points"] < whole["points"] == 72
    share = (few["rmse"] - whole["rmse"]) / (whole["rmse_mean"] - whole["rmse"])
    assert few["excess_percent"] == pytest.approx(100.0 * share) and whole["excess_nats"] == 0.0
    text = pd.read_csv(tmp_path / "error.csv", dtype=str).set_index("policy")["own"]
    assert text["OIPS, rho 0.5"] == f"{few['points']:.0f}: {few['excess_percent']:.1f}"
    assert text["splits"] == "1" and text[full] == f"{whole['rmse']:.3f}"
    assert all((tmp_path / f"{name}.png").is_file() for name in (*model_size.EXCESS, "rmse"))
    splits = pd.read_csv(tmp_path / "splits.csv")
    (tmp_path / "splits.csv").rename(tmp_path / "stored.csv")
    model_size.report(c | {"stored": str(tmp_path / "stored.csv")}, done[2:], tmp_path)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "splits.csv"), splits)  # two are stored
    model_size.report(c, done[1:], tmp_path)  # nothing to be compared with so far
    assert pd.read_csv(tmp_path / "means.csv")["excess_nats"].isna().all()
    with pytest.raises(typer.BadParameter, match="table own needs batches"):
        model_size.plan(c | {"table": [{"name": own, "target": "y", "inputs": ["a", "b"]}]})


def test_the_gp_on_all_rows_of_a_larger_table(own: str) -> None:
    c = parsed(CONFIGS / "model_size.toml")
    split = TableSplit.sorted(*rows_of({"name": own, "target": "y", "inputs": ["a", "b"]}), 0.9, 0)

    def error(**reference: int) -> tuple[float, float]:
        row = model_size.at_once(split, c | {"reference": c["reference"] | reference})
        return row["points"], row["rmse"]

    exact, sparse = error(rows=40), error(rows=40, exact=60, points=72)
    assert exact[0] == 72 >= sparse[0] > 40 and exact[1] == pytest.approx(sparse[1], rel=1e-3)
    assert error(rows=40, exact=60, points=5)[1] > error(rows=72)[1]


def test_policies_are_tuned_to_the_first() -> None:
    c = parsed(CONFIGS / "growth.toml")
    kept = tuned(stream("stationary", 1, 40, 3, c["noise"], 0), c)
    rows = [row | {"dim": 1, "scenario": "s", "seed": 0} for row, _ in kept]
    assert [row["policy"] for row in rows][0] == "VIPS" and rows[0]["setting"].startswith("VIPS")
    most = (1.0 + c["slack"]) * max(row["rmse"] for row in rows)
    assert len(rows) > 1 and all(row["rmse"] <= most for row in rows)
    assert ratios(pd.DataFrame(rows)).columns[-1].endswith("/ VIPS")


def test_a_key_that_no_table_has_is_named(own: str) -> None:
    with pytest.raises(typer.BadParameter, match="has targets"):
        tables([{"name": own, "targets": ["y"]}])
