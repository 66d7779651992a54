"""Costs against n: what the rows of a run say, what is drawn, and what is refused."""

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import typer

from bo_stream import ExactGP
from experiments.common.command import CONFIGS, parsed
from experiments.cost import __main__ as study
from experiments.cost.study import PARTS, CostRun, CostSizes, draw_costs, evaluate, observe, plan

CONFIG = parsed(CONFIGS / "cost.toml")


def test_a_run_measures_every_part_at_each_n(tmp_path: Path) -> None:
    sizes = CostSizes((5, 30), 3, 2, 4, 2, 1, 4)
    options = {"name": "exact", "most": 29}
    for entry, n in (({"name": "exact"}, [5, 30]), (options, [5])):
        run = CostRun("exact", "exact", entry, "levy", 2, {"name": "qucb"}, sizes, 0)
        run.execute(tmp_path)
        table = pd.read_csv(tmp_path / "levy_2_exact_0.csv")
        timed = [f"{part}_{unit}" for part in PARTS for unit in ("seconds", "c")]
        assert {"step", "n", "bytes", "c_seconds", *timed} == set(table)
        assert table["n"].tolist() == n == run.n and np.isfinite(table).all(axis=None)
        assert (table[timed] > 0.0).all(axis=None)
        in_c = table["predict_seconds"] / table["c_seconds"]
        assert np.allclose(table["predict_c"], in_c, rtol=1e-12)
    about = json.loads((tmp_path / "levy_2_exact_0.json").read_text())
    assert about["label"] == "exact" and about["problem"] == {"name": "levy", "inputs": 2}


def test_an_evaluation_is_at_new_hyperparameters_and_an_update_at_the_old() -> None:
    X = torch.rand(12, 2, dtype=torch.float64)
    model = ExactGP(X, X.sum(-1, keepdim=True))
    twin = copy.deepcopy(model)
    evaluate(twin)
    moved, kept = (m.covar_module.base_kernel.raw_lengthscale.clone() for m in (twin, model))
    assert bool((moved != kept).all()) and torch.allclose(moved, kept, atol=1e-5)
    assert twin.covar_module.base_kernel.raw_lengthscale.grad is not None
    observe(model, lambda n: (X[:n] + 0.5, X[:n, :1]))
    assert model.num_observed == 13
    assert torch.equal(model.covar_module.base_kernel.raw_lengthscale, kept)


def test_the_picture_has_a_panel_a_part_and_a_line_a_surrogate(kept, tmp_path: Path) -> None:
    columns = {f"{part}_seconds": [1e-3, 1e-2] for part in PARTS}
    one = pd.DataFrame({"n": [10, 1000], **columns})
    tables = [one.assign(surrogate=name) for name in ("wiski", "exact")]
    draw_costs(pd.concat(tables), tmp_path / "a.png", "Levy", 100)
    (figure,) = kept
    titles = [words.format(points=100) for words in PARTS.values()]
    assert [ax.get_title() for ax in figure.axes] == titles
    for ax in figure.axes:
        assert ax.get_xscale() == ax.get_yscale() == "log"
        assert [line.get_label() for line in ax.lines] == ["WISKI", "exact GP"]
        assert ax.lines[0].get_xdata().tolist() == [10, 1000]


def test_the_whole_plan_has_stems_of_its_own() -> None:
    runs = plan(CONFIG | {"seeds": [0, 1]})
    assert pickle.loads(pickle.dumps(runs)) == runs
    assert len({run.stem for run in runs}) == len(runs) == 2 * (7 + 6)
    most = {run.label: max(run.n) for run in runs}
    assert most["exact"] == most["cagp"] == 3000 and most["wiski"] == most["hsgp"] == 100_000


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"n": []}, "a list of numbers"),
        ({"n": [1, 10]}, "a list of numbers"),
        ({"acquisition": {"name": "luck"}}, "acquisition has luck"),
        ({"surrogate": [{"name": "wiski", "nodes": 3}]}, "surrogate wiski has nodes"),
        ({"surrogate": [{"name": "exact", "most": 50}]}, "below the least n"),
    ],
)
def test_what_means_nothing_is_refused(changed: dict, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        plan(CONFIG | changed)


def test_the_command_refuses_on_one_line(refused, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text("colour = 1\n" + (CONFIGS / "cost.toml").read_text())
    assert "own.toml has colour" in refused(study.app, own)
