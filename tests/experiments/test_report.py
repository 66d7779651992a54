"""The page of a study's results."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bo_stream.scores import paired_bootstrap
from experiments.common.command import BadParameter
from experiments.report import differences, read_results, study_page

pytest.importorskip("jinja2")


def made(
    folder: Path, labels: dict[str, str], seeds: int, steps: int, task: str | None = "levy"
) -> Path:
    """The folder of a study that was never run."""
    folder.mkdir()
    for k, (stem, label) in enumerate(labels.items()):
        for seed in range(seeds):
            draws = np.random.default_rng([k, seed])
            seconds = draws.lognormal(-3.0, 0.3, (3, steps + 1))
            run = {"step": np.arange(steps + 1), "n": 10 + 3 * np.arange(steps + 1), "bytes": 800}
            parts = ("fit_seconds", "acquisition_seconds", "update_seconds")
            run |= dict(zip(parts, seconds, strict=True))
            run |= {"step_seconds": seconds.sum(0), "wallclock_seconds": seconds.sum(0).cumsum()}
            fall = (k + 1.0) * np.exp(-run["step"] / 30.0)
            for regret in ("simple_regret", "inference_regret"):
                run[regret] = fall * draws.lognormal(0.0, 0.5, steps + 1)
            frame = pd.DataFrame(run)
            frame.loc[1, "inference_regret"] = np.nan
            frame.to_csv(folder / f"{stem}_{seed}.csv", index=False)
            about = {"label": label, "config": {"q": 3, "seed": seed}}
            about |= {"environment": {"cpu": "Abacus 3", "versions": {"torch": "2.13"}}}
            about |= {"problem": {"name": task, "dim": 2}} if task else {}
            (folder / f"{stem}_{seed}.json").write_text(json.dumps(about))
    return folder


def test_a_study(tmp_path: Path) -> None:
    folder = made(tmp_path / "study", {"wiski": "WISKI", "exact": "<b>Exact</b> GP"}, 5, 40)
    pd.DataFrame({"surrogate": ["WISKI"], "s/step": [0.125]}).to_csv(folder / "summary.csv")
    page = study_page(folder)
    assert "10 runs; methods: 2, seeds: 5, tasks: 1" in page
    assert "summary.csv" in page and "Abacus 3" in page and "problem.dim" in page
    assert "<b>" not in page and "&lt;b&gt;Exact&lt;/b&gt; GP" in page
    assert page.count("<img") == 2 + 4 + 1

    runs, _ = read_results(folder)
    ends = {
        stem: [
            np.log(pd.read_csv(folder / f"{stem}_{s}.csv")["inference_regret"].tail(4)).mean()
            for s in range(5)
        ]
        for stem in ("exact", "wiski")
    }
    d = paired_bootstrap(ends["exact"], ends["wiski"])
    (row,) = differences(runs, "inference_regret").frame.to_numpy().tolist()
    assert row == ["<b>Exact</b> GP - WISKI", d.pairs, d.median, d.low, d.high]


def test_tasks_stand_apart(tmp_path: Path) -> None:
    folder = made(tmp_path / "study", {"wiski": "WISKI"}, 2, 5)
    for path in made(tmp_path / "other", {"wiski_b": "WISKI"}, 1, 5, "ackley").iterdir():
        path.rename(folder / path.name)
    page = study_page(folder)
    assert "3 runs; methods: 1, seeds: 2, tasks: 2" in page
    assert re.findall(r"<h2 [^>]*>([^<]*)</h2>", page)[1:3] == ["ackley, dim 2", "levy, dim 2"]


def test_many_methods_are_compared_with_the_best(tmp_path: Path) -> None:
    labels = {f"m{k}": f"method {k:02d}" for k in range(8)}
    runs, _ = read_results(made(tmp_path / "study", labels, 4, 30, None))
    pairs = differences(runs, "inference_regret").frame["pair"]
    assert len(pairs) == 7 and pairs.str.endswith("- method 00").all()


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "demo", {"wiski": "WISKI"}, 1, 2)
    with pytest.raises(BadParameter, match="Name one of its folders: demo"):
        study_page(tmp_path)
