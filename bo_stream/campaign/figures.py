"""Pictures of a campaign by matplotlib: outcomes, front, and what the surrogate predicts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from bo_stream.campaign import found
from bo_stream.campaign.ledger import Ledger
from bo_stream.campaign.outcomes.outcome import noise_column
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Box, Pool, Space
from bo_stream.campaign.space.spaces import Range
from bo_stream.errors import InputError, StateError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bo_stream.campaign.campaign_state import CampaignState


__all__ = [
    "front",
    "goal",
    "in_unit",
    "is_single",
    "labels",
    "maps",
    "outcomes",
    "places",
    "reference_trial",
    "slices",
]

FULL = 0.25
"""Fraction of a regular grid that places have to fill to be drawn as its cells."""
FINE = 101
"""Points along a slice."""
GRID = 41
"""Points along each side of the map of a box."""
ACROSS = 3
"""Largest number of panels in a row."""


def labels(space: Space) -> dict[str, str]:
    """Names of the inputs with their units, by name."""
    units = {name: f" ({unit})" for name, unit in space.units.items() if unit}
    return {name: name + units.get(name, "") for name in space.names}


def goal(settings: Settings) -> str:
    """The goal, or goals by outcome, and the constraints."""
    goals = settings.outcomes.goals.items()
    text = ", ".join(one if column == "y" else f"{one} {column}" for column, one in goals)
    limits = [constraint for constraint in settings.constraints if constraint]
    return f"{text}, with {' and '.join(limits)}" if limits else text


def is_single(settings: Settings) -> bool:
    """Whether a campaign optimises one objective."""
    return settings.goal != "learn" and isinstance(settings.goal, str)


def in_unit(settings: Settings, frame: pd.DataFrame) -> pd.DataFrame:
    """Trials or predictions in the unit of the outcome's label: a prevalence in percent.

    The only objective is then in the column ``y``, whatever its name.
    """
    counts = settings.counts
    if counts is None:
        column = settings.column
        return frame.rename(columns={column: "y", noise_column(column): "yvar"})
    shown = [name for name in ("y", "mean", "sd", "lower", "upper") if name in frame]
    return frame.assign(**{name: counts.factor * frame[name] for name in shown})


def reference_trial(ledger: Ledger) -> tuple[pd.Series[Any], str]:
    """The trial that slices go through, in the unit of the label, and its description: the best
    outcome so far, or the last one if there is no best.
    """
    told, settings = _told(ledger), ledger.settings
    if is_single(settings) and settings.outcomes.feasible(found.told(ledger)).any():
        id, which = int(str(found.best(ledger).name)), "the best outcome so far"
    else:
        id, which = int(told.index[-1]), "the last outcome"
    return cast("pd.Series[Any]", told.loc[id]), f"{which} (trial {id})"


def outcomes(ledger: Ledger, title: str | None = None, optimum: float | None = None) -> Figure:
    """The outcome of every trial, and the best so far.

    Args:
        ledger: That of a campaign with one outcome.
        title: Label of the outcome; by default its column, or what counts tell.
        optimum: The best possible outcome, if known.

    Raises:
        StateError: before the first outcome.
    """
    from matplotlib.ticker import MaxNLocator

    told, trials = _told(ledger), found.trials(ledger)
    settings, counts = ledger.settings, ledger.settings.counts
    figure, (ax,) = _panels(1)
    bars = told["yvar"] ** 0.5 if "yvar" in told else None
    look: dict[str, Any] = {"markersize": 4, "color": "tab:blue", "label": "outcome"}
    ax.errorbar(told.index, told["y"], bars, fmt="o", **look)
    if settings.goal != "learn":
        kept = told["y"].where(settings.outcomes.feasible(found.told(ledger)))
        best = kept.cummin() if settings.goal == "minimise" else kept.cummax()
        ax.step(told.index, best, where="post", color="tab:red", label="best so far")
    if optimum is not None:
        factor = 1.0 if counts is None else counts.factor
        ax.axhline(factor * optimum, color="black", linestyle="--", label="optimum")
    for status, mark in (("failed", "x"), ("running", "|")):
        ids = trials.index[trials["status"] == status]
        if len(ids):
            bottom = ax.get_xaxis_transform()  # heights are fractions of the panel
            ax.plot(ids, [0.02] * len(ids), mark, color="black", transform=bottom, label=status)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    usual = settings.column if counts is None else counts.label
    ax.set(xlabel="trial", ylabel=title or usual)
    ax.legend(fontsize=8)
    return figure


def front(ledger: Ledger) -> Figure:
    """The first of several objectives against each of the others.

    Raises:
        StateError: before the first outcomes.
    """
    told, best = _told(ledger), found.front(ledger)
    feasible = ledger.settings.outcomes.feasible(told)
    first, *others = ledger.settings.outcomes.goals
    figure, panels = _panels(len(others))
    for ax, other in zip(panels, others, strict=True):
        good, bad = told[feasible], told[~feasible]
        ax.plot(good[first], good[other], "o", markersize=4, color="tab:blue", label="outcomes")
        if len(bad):
            ax.plot(bad[first], bad[other], "x", color="grey", label="infeasible")
        ax.plot(best[first], best[other], "o-", color="tab:red", label="front")
        ax.set(xlabel=first, ylabel=other)
    panels[0].legend(fontsize=8)
    return figure


def slices(state: CampaignState, title: str = "outcome", most: int = 1000) -> Figure:
    """The prediction along each input, with the other inputs at those of `reference_trial`.

    Args:
        state: That of a campaign with a surrogate.
        title: Label of the outcome.
        most: Maximum number of outcomes beside a slice, the last ones.
    """
    from bo_stream.campaign.results import predict  # not at the top: it imports torch

    centre, _ = reference_trial(state.ledger)
    space, latest = state.settings.space, _told(state.ledger).tail(most)
    figure, panels = _panels(space.dim)
    for ax, kind in zip(panels, space.kinds, strict=True):
        name, x = kind.name, _along(kind, FINE)
        frame = pd.DataFrame({n: [centre[n]] * len(x) for n in space.names} | {name: x})
        predicted = in_unit(state.settings, predict(state, frame))
        mean, sd = predicted["mean"], predicted["sd"]
        low, high = predicted.get("lower", mean - 2 * sd), predicted.get("upper", mean + 2 * sd)
        if kind.choices is None:
            ax.plot(x, mean, color="tab:blue")
            ax.fill_between(x, low, high, color="tab:blue", alpha=0.2, linewidth=0)
        else:
            bars = (mean - low, high - mean)
            ax.errorbar(x, mean, bars, fmt="o", color="tab:blue", ecolor="lightblue")
        ax.plot(latest[name], latest["y"], "o", markersize=3, color="grey", alpha=0.6)
        ax.plot([centre[name]], [centre["y"]], "*", markersize=12, color="tab:red")
        ax.set(xlabel=labels(space)[name], ylabel=title, xscale="log" if kind.log else "linear")
    return figure


def places(state: CampaignState, most: int | None = None) -> pd.DataFrame:
    """Predictions at the places of a pool, or on a grid over a box, by their inputs.

    Args:
        state: That of a campaign over two numeric inputs, with a surrogate.
        most: Maximum number of places of a pool; None for all.

    Raises:
        InputError: for other inputs.
    """
    from bo_stream.campaign.results import predict  # not at the top: it imports torch

    space = state.settings.space
    if space.dim != 2 or space.categories:
        names = f"{space.dim} inputs: {', '.join(space.names)}"
        raise InputError("two numeric inputs", names, "Use bo-stream plot.")
    if isinstance(space, Pool):
        step = 1 if most is None else -(-len(space.table) // most)
        frame = space.table[list(space.names)][::step]
    else:
        sides = [_along(kind, GRID) for kind in space.kinds]
        frame = pd.MultiIndex.from_product(sides, names=space.names).to_frame(index=False)
    return frame.join(predict(state, frame))


def maps(
    state: CampaignState,
    places: pd.DataFrame,
    title: str = "outcome",
    following: pd.DataFrame | None = None,
) -> Figure:
    """Mean and standard deviation of the prediction over two numeric inputs.

    The maps show the places that were measured, the best one, those of running trials, and those
    of the next ones if they are given. Of counts they show the smooth surface.

    Args:
        state: That of a campaign.
        places: Its `places`.
        title: Label of the outcome.
        following: The next trials.
    """
    space, predicted = state.settings.space, in_unit(state.settings, places)
    trials, (x, y) = found.trials(state.ledger), space.names
    told, running = (trials[trials["status"] == status] for status in ("told", "running"))
    marks: dict[str, tuple[pd.DataFrame, dict[str, Any]]] = {
        "measured": (told, {"color": "black", "edgecolors": "white"}),
        "running": (running, {"marker": "D", "facecolors": "none", "edgecolors": "red"}),
    }
    if is_single(state.settings):
        best = reference_trial(state.ledger)[0].to_frame().T
        marks["best"] = (best, {"marker": "*", "s": 140, "color": "white", "edgecolors": "black"})
    if following is not None:
        marks["next"] = (following, {"marker": "D", "color": "tab:red", "edgecolors": "white"})
    of = "" if state.settings.counts is None else ", smooth surface"
    headings = f"predicted mean{of}", "standard deviation of the prediction"
    scales = ["log" if kind.log else "linear" for kind in space.kinds]
    figure, panels = _panels(2, 0.6, 0.3)
    shown = zip(panels, ("mean", "sd"), headings, ("viridis", "cividis"), strict=True)
    for ax, column, heading, colours in shown:
        drawn = _values(ax, predicted[x], predicted[y], predicted[column], colours)
        figure.colorbar(drawn, ax=ax, shrink=0.85, label=title)
        for word, (part, look) in marks.items():
            if len(part):
                ax.scatter(part[x], part[y], label=word, **{"s": 20, **look})
        for id, row in running.iterrows():
            at = (row[x], row[y])
            ax.annotate(f"{id}", at, (4, 4), textcoords="offset points", color="red")
        ax.set(title=heading, xlabel=labels(space)[x], ylabel=labels(space)[y])
        ax.set(xscale=scales[0], yscale=scales[1], aspect=_aspect(space))
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="lower center", ncols=4, fontsize=8)
    return figure


def _told(ledger: Ledger) -> pd.DataFrame:
    """Trials with outcomes, in the unit of the label.

    Raises:
        StateError: if there is none.
    """
    told = in_unit(ledger.settings, found.told(ledger))
    if not len(told):
        raise StateError("a campaign with outcomes", f"none in {ledger.name!r}", "Tell some.")
    return told


def _along(kind: Range, most: int) -> pd.Series[Any]:
    """Values of an input from its smallest to its largest: ``most`` of a continuous one."""
    if kind.choices is None:
        spread = np.geomspace if kind.log else np.linspace
        return pd.Series(spread(kind.low, kind.high, most).clip(kind.low, kind.high))
    places = np.unique(np.linspace(0, len(kind.choices) - 1, most).astype(int))
    return pd.Series(kind.labels(kind.values(kind.choices[places])))


def _values(
    ax: Axes, x: pd.Series[Any], y: pd.Series[Any], values: pd.Series[Any], colours: str
) -> Any:
    """Draw the cells of a regular grid, or squares if the points do not fill one."""
    (xs, i), (ys, j) = (np.unique(column, return_inverse=True) for column in (x, y))
    if min(len(xs), len(ys)) > 1 and len(values) >= FULL * len(xs) * len(ys):
        image = np.full((len(ys), len(xs)), np.nan)
        image[j, i] = values
        return ax.pcolormesh(xs, ys, image, shading="nearest", cmap=colours, rasterized=True)
    size = min(max(8.0, 20_000.0 / len(values)), 120.0)
    return ax.scatter(x, y, s=size, c=values, marker="s", cmap=colours, rasterized=True)


def _aspect(space: Box | Pool) -> Any:
    """Aspect of a map: true to scale if both inputs have the same unit."""
    first, second = (space.units.get(name) for name in space.names)
    if first is None or first != second or not isinstance(space, Pool):
        return "auto"
    if "deg" in first or "°" in first:  # a degree of longitude is shorter than one of latitude
        middle = math.radians(float(space.place_values[:, 1].mean()))
        return 1.0 / max(math.cos(middle), 0.1)
    return "equal"


def _panels(count: int, above: float = 0.35, below: float = 0.0) -> tuple[Figure, list[Axes]]:
    """A figure with panels, at most `ACROSS` in a row, which needs no display.

    Its margins are fixed: a layout by the sizes of all texts takes as long as drawing them.

    Args:
        count: Number of panels.
        above: Space above the panels, inches.
        below: Space for a legend below them, inches.
    """
    from matplotlib.figure import Figure  # not at the top: it is an extra

    columns = min(count, ACROSS)
    rows = -(-count // columns)
    width, height = 5.5 * columns + 0.5, 4.3 * rows + below
    figure = Figure(figsize=(width, height))
    figure.subplots_adjust(
        left=0.75 / width,
        right=1.0 - 0.2 / width,
        bottom=(0.55 + below) / height,
        top=1.0 - above / height,
        wspace=0.2,
        hspace=0.2,
    )
    return figure, [figure.add_subplot(rows, columns, 1 + i) for i in range(count)]
