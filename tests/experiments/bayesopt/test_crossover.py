"""Seconds of a step when n points are given first: where curves cross, and what is said of it."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from experiments.bayesopt.crossover import crossing, draw, sentences, show, summary
from experiments.bayesopt.given import Crossover
from experiments.common.command import CONFIGS

CONFIG = CONFIGS / "crossover.toml"
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
    runs = Crossover.read(CONFIG).runs
    assert [run.n for run in runs] == [n for n in (3000, 1500, 800, 400, 200, 100) for _ in "ab"]
    assert [run.surrogate["name"] for run in runs] == ["wiski", "exact"] * 6
    assert len({run.stem for run in runs}) == 12
    assert all(run.config == runs[0].config for run in runs) and runs[0].config.q == 3


def test_a_run_measures_steps_after_n_points(tmp_path: Path) -> None:
    run = next(r for r in Crossover.read(CONFIG, smoke=True).runs if r.n == 20)
    seen: list[int] = []
    run.execute(tmp_path, lambda row: seen.append(row["n"]))
    measured = pd.read_csv(tmp_path / f"{run.stem}.csv")
    assert measured["n"].tolist() == seen == [20 + 3 + 3]  # after the step that is thrown away
    assert measured["given"].tolist() == [20] and (measured["fit_evaluations"] > 0).all()
    about = json.loads((tmp_path / f"{run.stem}.json").read_text())
    assert about["n"] == 20 and "versions" in about["environment"]
    line = summary([measured, measured.assign(step_seconds=3.0)]).iloc[0]
    assert line["s/step"] == pytest.approx((measured["step_seconds"].item() + 3.0) / 2)


def test_points_beyond_the_first_hundred_are_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.bayesopt.given.FITTED", 15)
    run = Crossover.read(CONFIG, smoke=True).runs[-1]
    loop = run.loop()
    assert loop.model is not None and loop.model.num_observed == run.n == 20
    assert loop.table()["n"].tolist() == [15]


def test_it_shows_a_table_and_writes_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show(CONFIG, tmp_path, smoke=True)
    printed = capsys.readouterr().out
    assert "given n points first" in printed and "table of surrogates in the README" in printed
    assert pd.read_csv(tmp_path / "crossover.csv")["n"].tolist() == [20, 20, 40, 40]
    assert (tmp_path / "step_vs_n.png").stat().st_size > 10_000
    assert not list(tmp_path.glob("*_20.csv"))  # no part of the study in the folder
