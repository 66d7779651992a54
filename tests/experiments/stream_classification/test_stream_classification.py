"""Labels as streams: what the rows of a run say, in every order, and what is refused."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import typer

from bo_stream import DirichletClassifier
from experiments.common.command import CONFIGS, parsed
from experiments.stream_classification.labels import MADE_UP, ORDERS, labelled, late
from experiments.stream_classification.study import COLUMNS, plan, scores

CONFIG = parsed(CONFIGS / "classes.toml")


def test_a_batch_is_judged_before_it_is_absorbed(tmp_path: Path) -> None:
    runs = plan(CONFIG | {"table": [{"name": MADE_UP}], "order": ["random"]}, smoke=True)
    run = next(run for run in runs if "wiski" in run.stem)
    run.execute(tmp_path)
    table = pd.read_csv(tmp_path / f"{run.stem}.csv")
    assert tuple(table) == COLUMNS and table["n"].tolist() == [50, 90]
    data = labelled({"name": MADE_UP})
    order = ORDERS["random"](data.y, 0)
    first, second = order[:50], order[50:]
    model = DirichletClassifier(data.X[first], data.y[first], bounds=data.bounds)
    right = torch.as_tensor(model.predict(data.X[second])) == data.y[second]
    assert table["stream_accuracy"][1] == pytest.approx(float(right.double().mean()))
    parts = table["update_seconds"] + table["fit_seconds"]
    assert np.allclose(table["wallclock_seconds"], parts.cumsum(), rtol=1e-12)


def test_orders_hold_every_row_once() -> None:
    y = labelled({"name": MADE_UP}).y
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
    runs = plan(CONFIG | {"seeds": [0, 1], "table": [{"name": MADE_UP}]})
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
        plan(CONFIG | {"table": [{"name": MADE_UP}]} | changed)
