"""Commands that draw a campaign: `plot` its outcomes, and `map` its predictions over a pool."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bo_stream.cli.load_campaign import CampaignName, Where, load_campaign
from bo_stream.cli.toml_reader import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from bo_stream.campaign.campaign import Campaign
    from bo_stream.campaign.space import Pool
    from bo_stream.cli.load_campaign import LoadedCampaign

__all__ = ["map_places", "plot"]


def plot(
    where: Where,
    name: CampaignName = None,
    out: Annotated[Path, typer.Option(help="PNG, PDF or SVG.")] = Path("campaign.png"),
) -> None:
    """Plot the outcome of every trial, and the best outcome so far.

    Of several objectives the picture shows the front: the trials that are not dominated.
    """
    import matplotlib

    matplotlib.use("Agg")
    loaded = load_campaign(where, name)
    if isinstance(loaded.campaign.goal, Mapping):
        _plot_front(loaded.campaign, out)
    else:
        _plot_outcomes(loaded, out)
    print(f"Wrote {out}.")


def map_places(
    where: Where,
    name: CampaignName = None,
    out: Annotated[Path, typer.Option(help="PNG, PDF or SVG.")] = Path("map.png"),
    csv: Annotated[
        Path | None, typer.Option(help="Also write the predictions of every place to this CSV.")
    ] = None,
) -> None:
    """Map predictions over a pool with two inputs.

    The two maps show the mean and the standard deviation of the prediction, with the places that
    were measured and those of running trials. Of counts they show the prevalence in percent, or the
    rate, of the smooth surface.
    """
    import matplotlib

    matplotlib.use("Agg")
    from bo_stream.campaign.space import Pool
    from bo_stream.cli.reports.campaign_data import in_unit

    loaded = load_campaign(where, name)
    space = loaded.campaign.space
    if not isinstance(space, Pool) or space.dim != 2:
        kind = "a pool" if isinstance(space, Pool) else "a box"
        raise ConfigError(
            f"Expected a pool with two inputs; got {kind} with {space.dim} inputs: "
            f"{', '.join(space.names)}. Use bo-stream plot."
        )
    predictions = loaded.campaign.predict(space.table)
    _plot_maps(loaded, space, in_unit(loaded.campaign, predictions), out)
    print(f"Wrote {out}.")
    if csv is not None:
        frame = space.table[list(space.names)].join(predictions).rename_axis("place")
        frame.to_csv(csv)
        print(f"Wrote {len(frame)} places to {csv}.")


def _plot_outcomes(loaded: LoadedCampaign, out: Path) -> None:
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    from bo_stream.cli.formatting import count_by_status
    from bo_stream.cli.reports.campaign_data import best_so_far, in_unit

    campaign = loaded.campaign
    trials = in_unit(campaign, campaign.trials())
    told = trials[trials["status"] == "told"]
    if not len(told):
        raise ConfigError(f"Campaign {campaign.name!r} has no outcomes yet. Tell some first.")
    figure, ax = plt.subplots(figsize=(7.0, 4.5), layout="constrained")
    ax.plot(told.index, told["y"], "o", markersize=4, color="tab:blue", label="outcome")
    if "yvar" in told:
        bars = told["yvar"] ** 0.5
        ax.errorbar(told.index, told["y"], bars, fmt="none", color="tab:blue", alpha=0.5)
    if campaign.goal != "learn":
        best = best_so_far(campaign, told)
        ax.step(told.index, best, where="post", color="tab:red", label="best so far")
    if loaded.optimum is not None:
        factor = 1.0 if campaign.counts is None else campaign.counts.factor
        ax.axhline(factor * loaded.optimum, color="black", linestyle="--", label="optimum")
    for status, mark in (("failed", "x"), ("running", "|")):
        ids = trials.index[trials["status"] == status]
        if len(ids):
            bottom = ax.get_xaxis_transform()  # heights are fractions of the panel
            ax.plot(ids, [0.02] * len(ids), mark, color="black", transform=bottom, label=status)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="trial", ylabel=loaded.outcome)
    ax.set_title(f"{campaign.name} ({campaign.goal}): {count_by_status(trials)}")
    ax.legend(fontsize=8)
    figure.savefig(out, dpi=110)
    plt.close(figure)


def _plot_front(campaign: Campaign, out: Path) -> None:
    """Draw the first objective against each of the others."""
    from matplotlib import pyplot as plt

    from bo_stream.cli.formatting import count_by_status

    trials, front = campaign.trials(), campaign.front()
    told = trials[trials["status"] == "told"]
    if not len(told):
        raise ConfigError(f"Campaign {campaign.name!r} has no outcomes yet. Tell some first.")
    feasible = campaign.settings.named.feasible(told)
    first, *others = campaign.settings.named.objectives
    size: Any = {"figsize": (5.5 * len(others), 4.5), "layout": "constrained"}
    figure, panels = plt.subplots(1, len(others), squeeze=False, **size)
    for ax, other in zip(panels[0], others, strict=True):
        good, bad = told[feasible], told[~feasible]
        ax.plot(good[first], good[other], "o", markersize=4, color="tab:blue", label="outcomes")
        if len(bad):
            ax.plot(bad[first], bad[other], "x", color="grey", label="infeasible")
        ax.plot(front[first], front[other], "o-", color="tab:red", label="front")
        ax.set(xlabel=first, ylabel=other)
    panels[0][0].legend(fontsize=8)
    figure.suptitle(f"{campaign.name}: {count_by_status(trials)}, {len(front)} on the front")
    figure.savefig(out, dpi=110)
    plt.close(figure)


def _plot_maps(loaded: LoadedCampaign, space: Pool, predictions: pd.DataFrame, out: Path) -> None:
    from matplotlib import pyplot as plt

    from bo_stream.cli.reports.campaign_data import label

    campaign = loaded.campaign
    trials = campaign.trials()
    x, y = space.names
    figure, axes = plt.subplots(1, 2, figsize=(11.0, 4.8), layout="constrained")
    of = "" if campaign.counts is None else ", smooth surface"
    titles = {"mean": f"predicted mean{of}", "sd": "standard deviation of the prediction"}
    for ax, (column, title) in zip(axes, titles.items(), strict=True):
        drawn = _draw_places(ax, space, predictions[column])
        figure.colorbar(drawn, ax=ax, shrink=0.85, label=loaded.outcome)
        ax.set(title=title, xlabel=label(space, x), ylabel=label(space, y))
        ax.set_aspect(_aspect(space))
        for status, look, word in (
            ("told", {"marker": "o", "color": "black", "edgecolors": "white", "s": 20}, "measured"),
            ("running", {"marker": "D", "facecolors": "none", "edgecolors": "red"}, "running"),
        ):
            part = trials[trials["status"] == status]
            if len(part):
                ax.scatter(part[x], part[y], label=word, **look)
        for id, row in trials[trials["status"] == "running"].iterrows():
            ax.annotate(f"{id}", (row[x], row[y]), (4, 4), textcoords="offset points", color="red")
    marks = axes[0].get_legend_handles_labels()
    figure.legend(*marks, loc="outside lower center", ncols=2, fontsize=8)
    figure.suptitle(f"{campaign.name}: {len(space.table)} places")
    figure.savefig(out, dpi=110)
    plt.close(figure)


def _draw_places(ax: Any, space: Pool, values: pd.Series[float]) -> Any:
    """Draw the cells of a regular grid, or dots if the places do not fill one."""
    import numpy as np

    from bo_stream.cli.reports.campaign_data import fills_grid

    if fills_grid(space.place_values):
        (xs, i), (ys, j) = (np.unique(v, return_inverse=True) for v in space.place_values.T)
        image = np.full((len(ys), len(xs)), np.nan)
        image[j, i] = values
        return ax.pcolormesh(xs, ys, image, shading="nearest")
    size = max(8.0, 20_000.0 / len(values))
    return ax.scatter(*space.place_values.T, c=values, s=min(size, 120.0), marker="s")


def _aspect(space: Pool) -> float | str:
    """Aspect of a map: true to scale if both inputs have the same unit."""
    first, second = (space.units.get(name) for name in space.names)
    if first is None or first != second:
        return "auto"
    if "deg" in first or "°" in first:  # a degree of longitude is shorter than one of latitude
        middle = math.radians(float(space.place_values[:, 1].mean()))
        return 1.0 / max(math.cos(middle), 0.1)
    return "equal"
