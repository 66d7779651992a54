"""The page of a campaign: its current state, its model, and where it would measure next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pandas as pd

from bo_stream.campaign import figures
from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.space import Pool
from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.cli.page import PageTable, Picture, Section, describe, facts, page
from bo_stream.errors import BudgetError, InputError

__all__ = ["PageLimits", "campaign_page"]


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
    most, ledger = limits or PageLimits(), campaign.ledger
    view = Campaign.resume(MemoryStore.copy_of(ledger.store, ledger.name), ledger.name)
    view.budget = campaign.budget
    trials, running = view.trials(), view.running()
    try:
        following, why = view.ask(), ""
    except (BudgetError, InputError) as error:
        following, why = None, str(error)
    warning = "Outcomes are further from the predictions than the predictions promise."
    state = {**summary, "warning": warning if view.state.engine.behind else None}
    sections = [
        Section("Current state", tables=[facts("Current state", state)]),
        _next_trial(view, following, why),
        Section("Running trials", tables=[_listed(view, "Running trials", running.reset_index())]),
    ]
    told = trials["status"] == "told"
    if told.any() and isinstance(view.settings.goal, Mapping):
        note = "Dots: outcomes; crosses: those that break a constraint; line: the front."
        drawn = Picture("The front", note, figures.front(view.state))
        sections.append(Section("The front", pictures=[drawn]))
    elif told.any():
        note = "Dots: outcomes; line: the best so far; at the bottom: failed and running trials."
        drawn = Picture("Outcomes by trial", note, figures.outcomes(view.state, outcome, optimum))
        sections.append(Section("Outcomes", pictures=[drawn]))
    if view.model is not None and told.any() and not isinstance(view.settings.goal, Mapping):
        where = figures.reference_trial(view.state)[1]
        within = "two standard deviations" if view.settings.counts is None else "90 % interval"
        few = f"the last {most.outcomes}" if told.sum() > most.outcomes else "all"
        note = f"Mean and {within}; dots: {few} outcomes; star: {where}."
        along = figures.slices(view.state, outcome, most.outcomes)
        drawn = Picture(f"Through {where}", note, along)
        sections.append(Section("The model along each input", pictures=[drawn]))
        if view.space.dim == 2 and not view.space.categories:
            note = "Dots: measured; open diamonds: running; red diamond: the next trial."
            note += " Star: the best." if figures.is_single(view.settings) else ""
            if isinstance(view.space, Pool) and len(view.space.table) > most.places:
                every = -(-len(view.space.table) // most.places)
                note += f" One in {every} places is drawn."
            over = figures.maps(view.state, outcome, following, most.places)
            drawn = Picture(f"Prediction of {outcome}", note, over)
            sections.append(Section("Maps of the model", pictures=[drawn]))
    listed = figures.in_unit(view.settings, trials)
    sections += [_all_trials(view, listed, most.trials), _settings(view)]
    about = f"{summary['goal']}: {summary['trials']}"
    return page(f"Campaign: {ledger.name}", about, sections)


def _next_trial(campaign: Campaign, following: pd.DataFrame | None, why: str) -> Section:

    title = "Where to measure next"
    if following is None:
        return Section(title, why)
    note = "This is the next trial that the campaign would propose now. It has not been asked for."
    if campaign.model is None:
        wanted = campaign.settings.initial
        note += f" Until there are {wanted} outcomes, trials are spread over the space."
    else:
        predicted = campaign.predict(following[list(campaign.space.names)])
        following = following.join(figures.in_unit(campaign.settings, predicted))
    frame = following.rename(columns={"mean": "predicted mean", "sd": "standard deviation"})
    return Section(title, note, tables=[_listed(campaign, "The next trial", frame.reset_index())])


def _all_trials(campaign: Campaign, trials: pd.DataFrame, most: int) -> Section:

    omitted = len(trials) - most
    note = f"The first {omitted} are omitted; bo-stream trials lists all." if omitted > 0 else ""
    shown = trials.dropna(axis="columns", how="all").reset_index().iloc[::-1].head(most)
    listed = _listed(campaign, "Trials, the latest first", shown)
    return Section("Trials", note if len(trials) else "There are none yet.", tables=[listed])


def _listed(campaign: Campaign, caption: str, frame: pd.DataFrame) -> PageTable:
    """A table of trials with units in its header."""
    names = {name: figures.label(campaign.space, name) for name in campaign.space.names}
    return PageTable(caption, frame.rename(columns=names), 6)


def _settings(campaign: Campaign) -> Section:

    s = campaign.settings
    settings: dict[str, Any] = {
        "goal": figures.goal(s),
        "surrogate": None if s.surrogate is None else describe(s.surrogate),
        "acquisition": None if s.acquisition is None else describe(s.acquisition),
        "seed": s.seed,
        "outcomes before a surrogate is built": s.initial,
        "failures": None if s.failures == "ignored" else s.failures,
        "constraints": "; ".join("a callable" if c is None else c for c in s.constraints) or None,
    }
    for kind in campaign.space.kinds:
        settings[figures.label(campaign.space, kind.name)] = kind.described()
    tables = [facts("Settings of the campaign", settings)]
    versions = {name: version(name) for name in ("bo_stream", "torch", "botorch", "gpytorch")}
    tables.append(facts("Versions for this page", versions))
    return Section("Settings", tables=tables)
