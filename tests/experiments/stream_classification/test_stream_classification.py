"""Labels as streams: what the rows of a run say, in every order, and what is refused."""

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import typer
from typer.testing import CliRunner

from bo_stream import DirichletClassifier
from experiments.common.command import CONFIGS, parsed
from experiments.stream_classification import __main__ as study
from experiments.stream_classification.labels import MADE_UP, ORDERS, labelled, late
from experiments.stream_classification.study import COLUMNS, plan, scores

CONFIG = parsed(CONFIGS / "classes.toml")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("stream_classification")
    result = CliRunner().invoke(study.app, ["--smoke", "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out, result.output


def test_accuracies_are_those_of_the_exact_gp_in_every_order(smoke: tuple[Path, str]) -> None:
    out, said = smoke
    assert "exact GP" in said
    table = pd.read_csv(out / "accuracies.csv").set_index("order")
    exact = table["accuracy"]["all at once"]
    assert exact > 0.85 and list(table.index) == [*ORDERS, "all at once"]
    for order in ORDERS:
        assert table["accuracy"][order] == pytest.approx(exact, abs=0.04)
        assert table["log_loss"][order] == pytest.approx(table["log_loss"]["all at once"], abs=0.1)


def test_a_smoke_run_writes_flat_numbers(smoke: tuple[Path, str]) -> None:
    out, _ = smoke
    stems = [f"made-up_wiski_{order.replace(' ', '-')}_0" for order in ORDERS]
    for stem in stems:
        table = pd.read_csv(out / f"{stem}.csv")
        assert tuple(table) == COLUMNS and all(kind.kind in "if" for kind in table.dtypes)
        assert table["n"].tolist() == [50, 90]
        assert np.isfinite(table.drop(columns=["stream_accuracy", "log_loss"])).all(axis=None)
        assert np.isfinite(table.iloc[-1]).all()
        assert (table["fit_evaluations"] > 0).tolist() == [False, True]
        parts = table["update_seconds"] + table["fit_seconds"]
        assert np.allclose(table["wallclock_seconds"], parts.cumsum(), rtol=1e-12)
        about = json.loads((out / f"{stem}.json").read_text())
        assert about["problem"] == MADE_UP and "versions" in about["environment"]
    by_class = pd.read_csv(out / f"{stems[1]}.csv")
    assert np.isnan(by_class["log_loss"][0])  # one class was all it had seen
    (row,) = pd.read_csv(out / "made-up_exact-GP_0.csv").to_dict("records")
    assert row["n"] == 90 and row["step"] == 0 and row["fit_seconds"] > 0.0


def test_a_batch_is_judged_before_it_is_absorbed(smoke: tuple[Path, str]) -> None:
    data = labelled(MADE_UP)
    order = ORDERS["random"](data.y, 0)
    first, second = order[:50], order[50:]
    model = DirichletClassifier(data.X[first], data.y[first], bounds=data.bounds)
    right = torch.as_tensor(model.predict(data.X[second])) == data.y[second]
    table = pd.read_csv(smoke[0] / "made-up_wiski_random_0.csv")
    assert table["stream_accuracy"][1] == pytest.approx(float(right.double().mean()))


def test_orders_hold_every_row_once() -> None:
    y = labelled(MADE_UP).y
    for order in ORDERS.values():
        assert order(y, 0).sort().values.tolist() == list(range(len(y)))
        assert not torch.equal(order(y, 0), order(y, 1))
    rows = late(y, 0)
    assert not bool(y[rows[: len(y) // 4]].any())


def test_scores_by_hand() -> None:
    y, p = torch.tensor([0, 1, 1]), torch.tensor([[0.8, 0.2], [0.5, 0.5], [0.9, 0.1]]).double()
    said = scores(p.argmax(1), p, y)
    assert said["accuracy"] == pytest.approx(1 / 3)
    assert said["log_loss"] == pytest.approx(-np.log([0.8, 0.5, 0.1]).mean())
    assert np.isnan(scores(y, p[:, :1], y)["log_loss"])


def test_the_plan_has_stems_of_its_own() -> None:
    runs = plan(CONFIG | {"seeds": [0, 1], "table": [MADE_UP]})
    assert pickle.loads(pickle.dumps(runs)) == runs
    assert len({run.stem for run in runs}) == len(runs) == 2 * (3 + 1)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"order": "backwards"}, "order has backwards"),
        ({"exact": {"first": 5, "stops": 3}}, "exact has stops"),
        ({"surrogate": [{"name": "wiski", "nodes": 3}]}, "surrogate wiski has nodes"),
        ({"fits": [0.5, 0.25]}, "fits are in order"),
    ],
)
def test_what_means_nothing_is_refused(changed: dict, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        plan(CONFIG | {"table": [MADE_UP]} | changed)
