"""Pictures of the study on tables: every point is inside, seeds are said."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from experiments.computation_aware.pictures import draw_calibration, draw_curves


@pytest.mark.parametrize("least", [0.02, 0.6])
def test_the_calibration_picture_shows_all_its_points(
    tmp_path: Path, kept: list[Figure], least: float
) -> None:
    rows = {"table": ["a", "a"], "contender": ["sure", "right"], "seed": 0}
    coverage = {"coverage 0.5": [least, 0.5], "coverage 0.99": [least, 1.0]}
    draw_calibration(pd.DataFrame(rows | coverage), tmp_path / "c.png")
    (ax,) = kept[0].axes
    low, high = ax.get_xlim()
    assert ax.get_ylim() == (low, high)
    for line in ax.get_lines()[1:]:
        for point in line.get_xydata():
            radius = line.get_markersize() / 72 * kept[0].dpi  # pixels, with room to spare
            x, y = ax.transData.transform(point)
            assert ax.bbox.x0 + radius <= x <= ax.bbox.x1 - radius
            assert ax.bbox.y0 + radius <= y <= ax.bbox.y1 - radius
    assert len(ax.get_lines()) == 3
    assert "one seed, hence no bands" in kept[0].get_suptitle()


def test_learning_curves_have_units(tmp_path: Path, kept: list[Figure]) -> None:
    rows = {"table": "a", "seed": [0, 0, 1, 1], "contender": "x", "seconds": [1, 2, 1, 2]}
    draw_curves(pd.DataFrame(rows | {"nll": 1.0, "rmse": 0.5}), tmp_path / "c.png")
    labels = [ax.get_ylabel() for ax in kept[0].axes]
    assert labels == ["test NLL (nats)", "test RMSE (standard deviations)"]
    assert "2 seeds, a line each" in kept[0].get_suptitle()
