"""Predictions along an axis: a panel a method, beside those of the first."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import pyplot as plt
from torch import Tensor

from experiments.common.plots import save


@dataclass(frozen=True, eq=False)
class Along:
    """One method's predictions of observations at ``p`` inputs on the axis, and the ``n`` rows."""

    name: str
    at: Tensor
    mean: Tensor
    deviation: Tensor
    X: Tensor
    Y: Tensor


def draw_along(every: Sequence[Along], path: Path) -> None:
    """A panel a method: rows, mean, two deviations of observations; the first one's dashed."""
    size, first = (3.6 * len(every), 3.4), every[0]
    figure, panels = plt.subplots(1, len(every), figsize=size, sharey=True, layout="constrained")
    for k, (ax, one) in enumerate(zip(panels, every, strict=True)):
        ax.plot(one.X, one.Y, ".", color="0.8", markersize=3)
        ax.plot(first.at, first.mean, "--", color="0.2", linewidth=1, label=first.name)
        (line,) = ax.plot(one.at, one.mean, color=f"C{k}", label="mean")
        low, high = one.mean - 2.0 * one.deviation, one.mean + 2.0 * one.deviation
        ax.fill_between(one.at, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        ax.set(title=one.name, xlabel="x")
    panels[0].set_ylabel("y; band: two deviations of observations")
    panels[0].legend(fontsize=8)
    save(figure, path)
