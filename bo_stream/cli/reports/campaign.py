"""The page of a campaign: its current state, its model, and where it would measure next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, cast

import pandas as pd

from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.records import environment
from bo_stream.campaign.storage.read_only_store import ReadOnlyStore
from bo_stream.cli.reports.campaign_data import best_so_far, goal, in_unit, is_single, label
from bo_stream.cli.reports.figures import Figure, Panels, plain
from bo_stream.cli.reports.fronts import fronts
from bo_stream.cli.reports.model import maps, slices
from bo_stream.cli.reports.page import PageSection, page
from bo_stream.cli.reports.runs import describe
from bo_stream.cli.reports.tables import facts, table
from bo_stream.errors import BudgetError, InputError

__all__ = ["PageLimits", "campaign_page"]

DIGITS = 6
"""Significant digits of inputs and outcomes."""


@dataclass(frozen=True)
class PageLimits:
    """Limits that keep the page of a large campaign small.

    Attributes:
        trials: Maximum number of trials listed; `bo-stream trials` lists all.
        places: Maximum number of places of a pool on a map.
        outcomes: Maximum number of outcomes beside a slice.
    """

    trials: int = 300
    places: int = 20_000
    outcomes: int = 1000


def campaign_page(
    campaign: Campaign,
    summary: Mapping[str, str],
    outcome: str,
    optimum: float | None,
    limits: PageLimits | None = None,
) -> str:
    """The HTML of a campaign's page; the campaign is not changed.

    Cost: that of its next `ask`, and of predictions at some hundred points.

    Args:
        campaign: A running or finished campaign.
        summary: Facts about its current state, among them ``goal`` and ``trials``.
        outcome: Name and unit of the outcome.
        optimum: The best possible outcome, if known.
        limits: Limits of the page's size.
    """
    most = limits or PageLimits()
    view = Campaign.resume(ReadOnlyStore(campaign.store, campaign.name), campaign.name)
    view.budget = campaign.budget
    trials, running, panels = view.trials(), view.running(), Panels()
    following = _next_trial(view)
    trials = in_unit(view, trials)
    if optimum is not None and view.counts is not None:
        optimum *= view.counts.factor
    told = trials.loc[trials["status"] == "told"]
    sections = [
        PageSection("Current state", _state(view, summary)),
        PageSection("Where to measure next", _following(view, following)),
        PageSection("Running trials", _listed(view, "Running trials", running.reset_index())),
    ]
    several = isinstance(view.goal, Mapping)
    drawn = fronts(view) if several else [_outcomes(view, trials, outcome, optimum)]
    sections.append(PageSection("The front" if several else "Outcomes", panels.html(drawn)))
    if view.model is not None and len(told) and not several:
        centre, where = _centre(view, told)
        drawn = slices(view, centre, told, outcome, most.outcomes)
        html = panels.html(drawn, about=f"Slices through {where}")
        sections.append(PageSection("The model along each input", f"<p>Through {where}.</p>{html}"))
        drawn = maps(view, centre, told, running, following, outcome, most.places)
        sections.append(PageSection("Maps of the model", panels.html(drawn)))
    sections.append(PageSection("Trials", _trials(view, trials, most.trials)))
    sections.append(PageSection("Settings", _settings(view)))
    about = f"{summary['goal']}: {summary['trials']}"
    return page(f"Campaign: {view.name}", about, sections)


def _state(campaign: Campaign, summary: Mapping[str, str]) -> str:
    warning = "Outcomes are further from the predictions than the predictions promise."
    return facts("Current state", {**summary, "warning": warning if campaign.behind else None})


def _next_trial(campaign: Campaign) -> pd.DataFrame | str:
    """The next trial, or why there is none."""
    try:
        return campaign.ask()
    except (BudgetError, InputError) as error:
        return str(error)


def _following(campaign: Campaign, following: pd.DataFrame | str) -> str:
    if isinstance(following, str):
        return f"<p>{escape(following)}</p>"
    built = campaign.model is not None
    names = list(campaign.space.names)
    frame = following
    if built:
        frame = following.join(in_unit(campaign, campaign.predict(following[names])))
    note = "This is the next trial that the campaign would propose now. It has not been asked for."
    if not built:
        wanted = campaign.settings.initial
        note += f" Until there are {wanted} outcomes, trials are spread over the space."
    frame = frame.rename(columns={"mean": "predicted mean", "sd": "standard deviation"})
    return f"<p>{note}</p>{_listed(campaign, 'The next trial', frame.reset_index())}"


def _centre(campaign: Campaign, told: pd.DataFrame) -> tuple[pd.Series[Any], str]:
    """The trial that slices go through, and its description."""
    if is_single(campaign) and campaign.settings.named.feasible(campaign.told()).any():
        best = campaign.best()
        row = cast("pd.Series[Any]", told.loc[int(str(best.name))])
        return row, f"the best outcome so far (trial {best.name})"
    last = told.iloc[-1]
    return last, f"the last outcome (trial {last.name})"


def _outcomes(
    campaign: Campaign, trials: pd.DataFrame, outcome: str, optimum: float | None
) -> Figure | None:
    """Outcomes by trial, and the best so far."""
    told = trials[trials["status"] == "told"]
    if not len(told):
        return None
    points: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": "outcome",
        "x": told.index.tolist(),
        "y": plain(told["y"]),
        "marker": {"color": "@c0", "size": 6},
    }
    if "yvar" in told:
        bars = {"type": "data", "array": plain(told["yvar"] ** 0.5), "color": "@c0/0.5"}
        points["error_y"] = {**bars, "width": 0}
    traces, note = [points], "Dots: outcomes"
    if campaign.goal != "learn":
        best = plain(best_so_far(campaign, told))
        line = {"color": "@c1", "width": 2, "shape": "hv"}
        curve = {"type": "scatter", "mode": "lines", "name": "best so far", "line": line}
        traces.append({**curve, "x": told.index.tolist(), "y": best})
        note += "; line: the best so far"
    shapes = []
    if optimum is not None:
        rule = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": optimum, "y1": optimum}
        shapes.append({**rule, "line": {"color": "@soft", "dash": "dash", "width": 1.5}})
        note += "; dashed: the optimum"
    for status, symbol, word in (
        ("failed", "x", "crosses"),
        ("running", "diamond-open", "diamonds"),
    ):
        ids = trials.index[trials["status"] == status].tolist()
        if ids:
            bottom = plain([float(told["y"].min())] * len(ids))
            look = {"symbol": symbol, "color": "@c7", "size": 8}
            marks = {"type": "scatter", "mode": "markers", "name": status, "marker": look}
            traces.append({**marks, "x": ids, "y": bottom})
            note += f"; {word} at the bottom: {status}"
    axes = {"title": "trial"}, {"title": outcome}
    return Figure("Outcomes by trial", traces, *axes, f"{note}.", layout={"shapes": shapes})


def _trials(campaign: Campaign, trials: pd.DataFrame, most: int) -> str:
    if not len(trials):
        return "<p>There are none yet.</p>"
    omitted = len(trials) - most
    note = f"<p>The first {omitted} are omitted; bo-stream trials lists all.</p>"
    shown = trials.dropna(axis="columns", how="all").reset_index().iloc[::-1].head(most)
    listed = _listed(campaign, "Trials, the latest first", shown)
    return f"{note if omitted > 0 else ''}{listed}"


def _listed(campaign: Campaign, caption: str, frame: pd.DataFrame) -> str:
    names = {name: label(campaign.space, name) for name in campaign.space.names}
    return table(caption, frame.rename(columns=names), DIGITS)


def _settings(campaign: Campaign) -> str:
    s, about = campaign.settings, environment()
    settings = {
        "goal": goal(campaign),
        "surrogate": None if s.surrogate is None else describe(s.surrogate),
        "acquisition": None if s.acquisition is None else describe(s.acquisition),
        "seed": s.seed,
        "outcomes before a surrogate is built": s.initial,
    }
    for kind in campaign.space.kinds:
        settings[label(campaign.space, kind.name)] = kind.described()
    if s.failures != "ignored":
        settings["failures"] = s.failures
    if s.constraints:
        listed = ("a callable" if text is None else text for text in s.constraints)
        settings["constraints"] = "; ".join(listed)
    versions = {k: v for k, v in about["versions"].items() if v is not None}
    return facts("Settings of the campaign", settings) + facts("Versions for this page", versions)
