"""Costs against n: what the rows of a run say, what is drawn, and what is refused."""

import copy
import json
import pickle
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import typer
from typer.testing import CliRunner

from bo_stream import ExactGP
from experiments.cost import __main__ as study
from experiments.cost.measured import PARTS, Cost, Sizes, _evaluate, _observe
from experiments.cost.plan import plan
from experiments.cost.report import draw_costs

CONFIG = tomllib.loads(study.CONFIG.read_text())
FEW = """
[[surrogate]]
name = "wiski"
grid_size = 6

[[surrogate]]
name = "exact"
most = 30
"""


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("cost")
    text = study.CONFIG.read_text()
    (folder / "few.toml").write_text(text[: text.index("[[surrogate]]")] + FEW)
    out = folder / "out"
    result = CliRunner().invoke(study.app, [str(folder / "few.toml"), "--smoke", "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out, result.output


def test_a_smoke_run_writes_flat_numbers(smoke: tuple[Path, str]) -> None:
    out, said = smoke
    for name, n in (("wiski", [20, 40]), ("exact", [20])):
        table = pd.read_csv(out / f"levy_2_{name}_0.csv")
        timed = [f"{part}_{unit}" for part in PARTS for unit in ("seconds", "c")]
        assert {"step", "n", "bytes", "c_seconds", *timed} == set(table)
        assert table["n"].tolist() == n and np.isfinite(table).all(axis=None)
        assert (table[timed] > 0.0).all(axis=None)
        in_c = table["predict_seconds"] / table["c_seconds"]
        assert np.allclose(table["predict_c"], in_c, rtol=1e-12)
        about = json.loads((out / f"levy_2_{name}_0.json").read_text())
        assert about["label"] == name and about["problem"] == {"name": "levy", "inputs": 2}
    whole = pd.read_csv(out / "cost.csv")
    assert whole["surrogate"].tolist() == ["wiski", "wiski", "exact"]
    assert (out / "cost_2_inputs.png").stat().st_size > 10_000
    assert "one point observed" in said and "posterior at 10 points" in said


def test_a_surrogate_has_seen_n_points_when_the_timing_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setattr(
        "experiments.cost.measured.alternated",
        lambda tasks, *_: (
            seen.append(tasks["update"].args[0].num_observed),
            {name: [1.0, 9.0, 2.0] for name in tasks},
        )[1],
    )
    monkeypatch.setattr("experiments.cost.measured.CHUNK", 7)
    sizes = Sizes((5, 30), 3, 3, 4, 2, 1, 4)
    run = Cost("exact", "exact", {"name": "exact"}, "levy", 2, {"name": "qucb"}, sizes, 0)
    rows = list(run._measured())
    assert seen == [5, 30] and [row["update_seconds"] for row in rows] == [2.0, 2.0]


def test_an_evaluation_is_at_new_hyperparameters_and_an_update_at_the_old() -> None:
    X = torch.rand(12, 2, dtype=torch.float64)
    model = ExactGP(X, X.sum(-1, keepdim=True))
    twin = copy.deepcopy(model)
    _evaluate(twin)
    moved, kept = (m.covar_module.base_kernel.raw_lengthscale.clone() for m in (twin, model))
    assert bool((moved != kept).all()) and torch.allclose(moved, kept, atol=1e-5)
    assert twin.covar_module.base_kernel.raw_lengthscale.grad is not None
    _observe(model, lambda n: (X[:n] + 0.5, X[:n, :1]))
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
    own.write_text("colour = 1\n" + study.CONFIG.read_text())
    assert "own.toml has colour" in refused(study.app, own)
