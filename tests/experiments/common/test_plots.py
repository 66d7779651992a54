"""Line plots: coinciding curves can be told apart, axes say what is drawn."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.common import plots


@pytest.fixture
def drawn(kept: list[Figure], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures that were written to a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return kept


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


@pytest.mark.parametrize("logarithmic_x, scale", [(True, "log"), (False, "linear")])
def test_bands_may_have_a_logarithmic_time(
    drawn: list[Figure], logarithmic_x: bool, scale: str
) -> None:
    table = pd.DataFrame({"step": [0, 1], "seconds": [1, 9], "rmse": [2, 1], "policy": "nipv"})
    path = Path("bands.png")
    plots.draw_bands([table], "rmse", "seconds", ["policy"], path, logarithmic_x=logarithmic_x)
    (ax,) = drawn[0].axes
    assert ax.get_xscale() == scale and ax.get_yscale() == "log"


def test_the_legend_says_whether_there_is_a_band(drawn: list[Figure]) -> None:
    runs = {
        (a, b): [table("one", s) for s in range(a)] + [table("two", s) for s in range(b)]
        for a, b in ((1, 1), (3, 3), (1, 3))
    }
    for tables in runs.values():
        plots.draw_bands(tables, "loss", "step", ["name"], Path("a.png"))
    said = [figure.axes[0].get_legend().get_title().get_text() for figure in drawn]
    assert said == [
        "one seed, hence no bands",
        "median; band: range of 3 seeds",
        "median; band: range of 1 to 3 seeds, none for one seed",
    ]
    assert [len(figure.axes[0].collections) for figure in drawn] == [0, 2, 1]


def test_names_are_drawn_in_words(drawn: list[Figure]) -> None:
    words = {"one": "The first", "a": "The order"}
    runs = [table("one", 0), table("two", 0)]
    plots.draw_bands(runs, "loss", "step", ["name", "order"], Path("a.png"), words=words)
    (ax,) = drawn[0].axes
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["The first", "two"]
    assert ax.get_title() == "The order"


@pytest.mark.parametrize("low, high", [(0.05, 0.9), (0.009, 0.012), (1.0, 900.0)])
def test_labels_of_a_logarithmic_axis_keep_apart(low: float, high: float) -> None:
    figure, ax = plt.subplots(figsize=(7, 4.5))
    ax.plot([low, high], [1.0, 2.0])
    plots.logarithmic_axis(ax, "x")
    figure.canvas.draw()
    labels = [*ax.xaxis.get_majorticklabels(), *ax.xaxis.get_minorticklabels()]
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    inside = sorted((b.x0, b.x1) for b in boxes if b.x0 < ax.bbox.x1 and b.x1 > ax.bbox.x0)
    assert len(inside) >= 2
    assert all(a[1] < b[0] for a, b in zip(inside, inside[1:], strict=False))
    plt.close(figure)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("online_svgp", "OnlineSVGP"),
        ("svdgp", "SVDGP"),
        ("a_policy_2", "a policy 2"),
    ],
)
def test_names_have_words(name: str, words: str) -> None:
    assert plots.in_words(name) == words
