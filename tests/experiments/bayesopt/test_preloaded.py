"""Seconds of a step after n points: where curves cross, and what is said of it."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from experiments.bayesopt.preloaded import crossing, draw, plan, sentences, summary
from experiments.common.command import CONFIGS, parsed

CONFIG = parsed(CONFIGS / "crossover.toml")
SIZES = [100, 200, 400, 800]


def table(stream: list[float], exact: list[float]) -> pd.DataFrame:
    """What runs of two surrogates would have given."""
    columns = {"n": SIZES * 2, "surrogate": ["S"] * 4 + ["E"] * 4, "s/step": stream + exact}
    return pd.DataFrame(columns)


def cross(stream: list[float], exact: list[float]) -> float:
    return crossing(pd.Series(stream, SIZES), pd.Series(exact, SIZES))


def test_curves_cross_where_they_do() -> None:
    assert cross([1.0] * 4, [0.5, 0.5, 0.5, 2.0]) == pytest.approx(400 * 2**0.5)
    assert cross([1.0] * 4, [0.25, 2.0, 0.5, 8.0]) == pytest.approx(400 * 2**0.25)  # for good
    assert cross([1.0] * 4, [2.0] * 4) == 100
    assert math.isinf(cross([1.0] * 4, [0.5, 2.0, 2.0, 0.5]))


def test_what_is_said_follows_from_the_numbers() -> None:
    said = sentences(table([1.0, 1.0, 1.0, 1.5], [0.5, 0.5, 0.5, 4.5]), "E")
    assert said[0] == "From about 523 points on, a step takes less time on S than on E."
    assert "S's step took 1.5 times as long, E's 9.0 times; at 800, S's took 1.5 s" in said[1]
    assert said[2].startswith("With fewer points, take E") and "README" in said[-1]
    said = sentences(table([1.0] * 4, [2.0] * 4), "E")
    assert said[0].startswith("From 100 points on") and "fewer" not in " ".join(said)
    said = sentences(table([2.0] * 4, [1.0] * 4), "E")
    assert said[0] == "Up to 800 points, a step takes less time on E than on S." and len(said) == 2


def test_the_crossing_is_in_the_picture(tmp_path: Path, kept: list[Figure]) -> None:
    draw(table([1.0] * 4, [0.5, 0.5, 0.5, 2.0]), "E", tmp_path / "a.png", "Title")
    draw(table([1.0] * 4, [2.0] * 4), "E", tmp_path / "b.png", "Title")
    with_line, without = (figure.axes[0] for figure in kept)
    names = [text.get_text() for text in with_line.get_legend().get_texts()]
    assert names == ["S", "S takes less time from about 566 points on", "E"]
    assert with_line.get_xscale() == with_line.get_yscale() == "log"
    assert len(without.get_lines()) == 2


def test_the_demonstration_compares_like_with_like() -> None:
    runs = plan(CONFIG)
    assert [run.n for run in runs] == [n for n in (3000, 1500, 800, 400, 200, 100) for _ in "ab"]
    assert [run.surrogate["name"] for run in runs] == ["wiski", "exact"] * 6
    assert len({run.stem for run in runs}) == 12
    assert all(run.config == runs[0].config for run in runs) and runs[0].config.q == 3


def test_a_run_measures_steps_after_n_points(tmp_path: Path) -> None:
    run = next(r for r in plan(CONFIG, smoke=True) if r.n == 20)
    run.execute(tmp_path)
    measured = pd.read_csv(tmp_path / f"{run.stem}.csv")
    assert measured["n"].tolist()[0] == 20 + 3 + 3  # after the step that is thrown away
    assert measured["given"].unique().tolist() == [20] and (measured["fit_evaluations"] > 0).all()
    about = json.loads((tmp_path / f"{run.stem}.json").read_text())
    assert about["n"] == 20 and about["surrogate"] == run.surrogate
    ends = [measured.assign(step_seconds=seconds) for seconds in (1.0, 3.0)]
    assert summary(ends).iloc[0]["s/step"] == 2.0
