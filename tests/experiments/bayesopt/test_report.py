"""Pictures of regrets: labels, seeds, a panel each for a crowd."""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from experiments.bayesopt.report import draw_each, draw_regret


def test_regret_is_drawn_with_labels_and_seeds(tmp_path: Path, kept: list[Figure]) -> None:
    steps = {"step": [0, 1], "n": [3, 4], "wallclock_seconds": [0.1, 0.2]}
    regrets = {"inference_regret": [2.0, 1.0], "simple_regret": [2.0, 0.0]}
    one = pd.DataFrame(steps | regrets).assign(surrogate="a", seed=0)
    draw_regret([one], tmp_path / "one.png", "Title")
    draw_regret([one, one.assign(seed=1)], tmp_path / "two.png", "Title")
    said = [figure.axes[1].get_legend().get_title().get_text() for figure in kept]
    assert said == ["one seed, hence no bands", "median; band: range of 2 seeds"]
    left, right = kept[0].axes
    assert left.get_xlabel() == "wall-clock time (seconds)"
    assert right.get_xlabel() == "number of observations"
    assert "without noise" in left.get_ylabel() and kept[0].get_suptitle() == "Title"
    assert len(left.collections) == 0 and len(kept[1].axes[0].collections) == 1


def test_a_crowd_has_a_panel_each(tmp_path: Path, kept: list[Figure]) -> None:
    steps = {"step": [0, 1, 2], "n": [3, 4, 5]}
    one = pd.DataFrame(steps | {"inference_regret": [2.0, None, 1.0]}).assign(seed=0)
    runs = [one.assign(surrogate=name, seed=seed) for name in "abcdef" for seed in (0, 1)]
    draw_each(runs, "n", tmp_path / "each.png", "Title")
    figure = kept[0]
    own = [ax for ax in figure.axes if ax.axison]
    assert [ax.get_title() for ax in own] == list("abcdef")
    assert all(len(ax.lines) == 7 and len(ax.collections) == 1 for ax in own)  # six behind, a band
    assert own[0].lines[-1].get_xydata().tolist() == [[3.0, 2.0], [5.0, 1.0]]
    assert figure.get_supxlabel() == "number of observations"
    assert "range of 2 seeds" in figure.get_suptitle()
