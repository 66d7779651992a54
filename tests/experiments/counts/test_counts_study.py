"""Surveys of counts: every policy on the synthetic field, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.common.command import CONFIGS, read
from experiments.counts import study
from experiments.counts.__main__ import app
from experiments.counts.survey import POLICIES


def test_every_policy_surveys_different_sites(tmp_path: Path) -> None:
    default = CONFIGS / "counts.toml"
    c = read(default, default) | {"source": None, "num_initial": 10, "q": 5}
    runs = study.plan(c | {"sites": 20, "seeds": [0]}, smoke=True)
    done = []
    assert [run.policy for run in runs] == list(POLICIES)
    for run in runs:
        run.execute(tmp_path)
        done.append((run, pd.read_csv(tmp_path / f"{run.stem}.csv")))
        assert (tmp_path / f"{run.stem}.png").stat().st_size > 0
    study.report(c, done, tmp_path)
    for _, rows in done:
        assert rows["n"].tolist() == [10, 15, 20, 25, 30]
        assert rows["rmse"].between(0.0, 0.5).all() and rows["coverage"].between(0.0, 1.0).all()
    assert len({rows["rmse"].iloc[-1] for _, rows in done}) == len(done)
    assert len(pd.read_csv(tmp_path / "errors.csv")) == len(done)


def test_an_unknown_policy_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    text = (CONFIGS / "counts.toml").read_text("utf-8").replace('"latent"', '"luck"')
    (tmp_path / "other.toml").write_text(text)
    said: Any = refused(app, tmp_path / "other.toml", "--smoke")
    assert "luck" in said
