"""The page of a campaign: how far it is, what it has learned, where it would measure next."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.records import environment
from bo_stream.campaign.storage.read_only_store import Aside
from bo_stream.cli.reports.figures import Figure, Panels, plain
from bo_stream.cli.reports.inputs import bounds, is_log, label
from bo_stream.cli.reports.model import maps, slices
from bo_stream.cli.reports.page import Section, page
from bo_stream.cli.reports.runs import words
from bo_stream.cli.reports.tables import facts, table
from bo_stream.errors import InputError

__all__ = ["campaign_page"]

MOST = 300
"""Trials listed; earlier ones are left to `bo-stream trials`."""
DIGITS = 6
"""Of numbers that are to be set or were measured."""


def campaign_page(
    campaign: Campaign, known: Mapping[str, str | None], outcome: str, optimum: float | None
) -> str:
    """The HTML of a campaign's page; the campaign stays as it is.

    Cost: what its next `ask` will cost, and predictions at some hundred points.

    Args:
        campaign: Running or finished.
        known: What there is to say about it in words.
        outcome: What is measured, with its unit.
        optimum: The best outcome there can be, where that is known.
    """
    aside = Campaign.resume(Aside(campaign.store, campaign.name), campaign.name)
    trials, panels = aside.trials(), Panels()
    asked = aside.running()
    following = _next(aside)
    marked = trials.loc[trials["status"] == "told"]
    centre, where = _centre(aside, marked)
    sections = [
        Section("How far it is", _standing(aside, known)),
        Section("Where to measure next", _following(aside, following)),
        Section("Under way", _listed(aside, "Trials under way", asked.reset_index())),
        Section("Outcomes", panels.html([_outcomes(aside, trials, outcome, optimum)])),
    ]
    if aside.model is not None and centre is not None:
        drawn = panels.html(slices(aside, centre, marked, outcome), about=f"Slices through {where}")
        sections.append(Section("The model along each input", f"<p>Through {where}.</p>{drawn}"))
        places = maps(aside, centre, marked, asked, following, outcome)
        sections.append(Section("Maps of the model", panels.html(places)))
    sections += [Section("Trials", _all(aside, trials)), Section("Settings", _settings(aside))]
    about = f"{known['goal']}: {known['trials']}"
    return page(f"Campaign: {aside.name}", about, sections)


def _standing(campaign: Campaign, known: Mapping[str, str | None]) -> str:
    behind = "outcomes are further from the predictions than these promise"
    warning = {"warning": behind if campaign.behind else None}
    return facts("The campaign now", {**known, **warning})


def _next(campaign: Campaign) -> pd.DataFrame | str:
    """The trial that would be asked for now, or why there is none."""
    try:
        return campaign.ask()
    except InputError as error:
        return str(error)


def _following(campaign: Campaign, following: pd.DataFrame | str) -> str:
    if isinstance(following, str):
        return f"<p>{escape(following)}</p>"
    known = campaign.model is not None
    names = list(campaign.space.names)
    frame = following.join(campaign.predict(following[names])) if known else following
    note = "This is what the campaign would ask for now. Nothing has been put under way."
    if not known:
        wanted = campaign.settings.initial
        note += f" Until there are {wanted} outcomes, trials are spread over the space."
    said = frame.rename(columns={"mean": "predicted mean", "sd": "standard deviation"})
    return f"<p>{note}</p>{_listed(campaign, 'The next trial', said.reset_index())}"


def _centre(campaign: Campaign, told: pd.DataFrame) -> tuple[pd.Series[Any] | None, str]:
    """Where the model is cut, and how to call it."""
    if not len(told):
        return None, ""
    if campaign.goal != "learn":
        best = campaign.best()
        return best, f"the best outcome so far (trial {best.name})"
    last = told.iloc[-1]
    return last, f"the last outcome (trial {last.name})"


def _outcomes(
    campaign: Campaign, trials: pd.DataFrame, outcome: str, optimum: float | None
) -> Figure | None:
    """Outcomes by trial and the best so far."""
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
        best = told["y"].cummin() if campaign.goal == "minimise" else told["y"].cummax()
        line = {"color": "@c1", "width": 2, "shape": "hv"}
        curve = {"type": "scatter", "mode": "lines", "name": "best so far", "line": line}
        traces.append({**curve, "x": told.index.tolist(), "y": plain(best)})
        note += "; line: the best so far"
    shapes = []
    if optimum is not None:
        rule = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": optimum, "y1": optimum}
        shapes.append({**rule, "line": {"color": "@soft", "dash": "dash", "width": 1.5}})
        note += "; dashed: the best there can be"
    for status, symbol, word in (
        ("failed", "x", "failed"),
        ("running", "diamond-open", "under way"),
    ):
        ids = trials.index[trials["status"] == status].tolist()
        if ids:
            low = float(told["y"].min())
            look = {"symbol": symbol, "color": "@c7", "size": 8}
            marks = {"type": "scatter", "mode": "markers", "name": word, "marker": look}
            traces.append({**marks, "x": ids, "y": plain([low] * len(ids))})
            note += f"; {'crosses' if status == 'failed' else 'diamonds'} at the bottom: {word}"
    axes = {"title": "trial"}, {"title": outcome}
    return Figure("Outcomes by trial", traces, *axes, f"{note}.", layout={"shapes": shapes})


def _trials(trials: pd.DataFrame) -> pd.DataFrame:
    return trials.dropna(axis="columns", how="all").reset_index()


def _all(campaign: Campaign, trials: pd.DataFrame) -> str:
    left = len(trials) - MOST
    note = f"<p>The first {left} are left out; bo-stream trials lists all.</p>" if left > 0 else ""
    listed = _listed(campaign, "Trials, the latest first", _trials(trials).iloc[::-1].head(MOST))
    return f"{note}{listed}" if listed else "<p>There are none yet.</p>"


def _listed(campaign: Campaign, caption: str, frame: pd.DataFrame) -> str:
    names = {name: label(campaign.space, name) for name in campaign.space.names}
    return table(caption, frame.rename(columns=names), DIGITS)


def _settings(campaign: Campaign) -> str:
    s, about = campaign.settings, environment()
    said = {
        "goal": s.goal,
        "surrogate": None if s.surrogate is None else words(s.surrogate),
        "acquisition": None if s.acquisition is None else words(s.acquisition),
        "seed": s.seed,
        "outcomes before there is a surrogate": s.initial,
    }
    for name, (low, high) in bounds(campaign.space).items():
        scale = ", on a logarithmic scale" if is_log(campaign.space, name) else ""
        said[label(campaign.space, name)] = f"{low:g} to {high:g}{scale}"
    versions = {k: v for k, v in about["versions"].items() if v is not None}
    return facts("What it was begun with", said) + facts("Versions that wrote this page", versions)
