"""Line plots: coinciding curves can be told apart, axes say what is drawn."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments import plots


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Figure]]:
    figures: list[Figure] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    yield figures
    for figure in figures:
        plt.close(figure)


def table(name: str, seed: int) -> pd.DataFrame:
    return pd.DataFrame({"step": range(20), "loss": 1.0, "name": name, "order": "a", "seed": seed})


def test_coinciding_curves_differ_in_dash_and_markers(drawn: list[Figure]) -> None:
    runs = [table(name, seed) for name in ("one", "two", "three") for seed in (0, 1)]
    plots.draw_bands(runs, "loss", "step", ["name"], Path("a.png"))
    sizes = pd.concat(runs).rename(columns={"step": "batch", "name": "policy", "loss": "points"})
    plots.draw_sizes(sizes.assign(dim=1, scenario="a"), Path("b.png"))
    for figure in drawn:
        lines = figure.axes[0].get_lines()
        assert len(lines) == 3
        assert len({line.get_marker() for line in lines}) == 3
        assert len({line.get_markersize() for line in lines}) == 3
        assert len({line.get_linewidth() for line in lines}) == 3
        assert len({line.get_linestyle() for line in lines}) > 1


def test_axes_and_title_are_what_is_given(drawn: list[Figure]) -> None:
    labels = {"step": "day", "loss": "loss, nats"}
    runs = [table("one", 0), table("two", 0)]
    plots.draw_bands(runs, "loss", "step", ["name"], Path("a.png"), labels=labels, title="Title")
    plots.draw_bands(runs, "loss", "step", ["name", "order"], Path("a.png"))
    (given,), (default,) = (figure.axes for figure in drawn)
    assert (given.get_xlabel(), given.get_ylabel(), given.get_title()) == (
        *labels.values(),
        "Title",
    )
    assert (default.get_xlabel(), default.get_ylabel(), default.get_title()) == (
        "step",
        "loss",
        "a",
    )


def test_a_negative_density_is_not_cut_off(drawn: list[Figure]) -> None:
    sizes = pd.DataFrame({"batch": [0, 1], "nlpd": [1.0, -1.0], "policy": "a", "seed": 0})
    plots.draw_sizes(sizes.assign(dim=1, scenario="a"), Path("a.png"), "nlpd", "NLPD, nats")
    (ax,) = drawn[0].axes
    assert ax.get_ylim()[0] < -1.0 and ax.get_ylabel() == "NLPD, nats"


def test_saving_makes_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.png"
    plots.save(plt.figure(), path)
    assert path.exists() and not plt.get_fignums()
