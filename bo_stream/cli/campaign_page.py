"""The page of a campaign: its current state, its model, and where it would measure next."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pandas as pd

from bo_stream.campaign import figures
from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.outcomes.outcome import SPREADS
from bo_stream.campaign.results import winsorised
from bo_stream.campaign.space import Pool
from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.cli.formatting import recommendation, summary
from bo_stream.cli.loading import LoadedCampaign
from bo_stream.cli.page import PageTable, Picture, Section, describe, facts, page
from bo_stream.errors import BudgetError, InputError

__all__ = ["campaign_page"]


def campaign_page(
    loaded: LoadedCampaign,
    most_trials: int = 300,
    most_places: int = 20_000,
    most_outcomes: int = 1000,
) -> str:
    """The HTML of a campaign's page; the campaign is not changed.

    Cost: that of its next `ask`, and of predictions at some hundred points.

    Args:
        loaded: A running or finished campaign.
        most_trials: Maximum number of trials listed; `bo-stream trials` lists all.
        most_places: Maximum number of places of a pool on a map.
        most_outcomes: Maximum number of outcomes beside a slice.
    """
    campaign, outcome = loaded.learning, loaded.outcome
    store, name = campaign.ledger.store, campaign.ledger.name
    state = summary(campaign, loaded.store, loaded.optimum)
    about = f"{state['goal']}: {state['trials']}"
    learned = {"recommended": recommendation(campaign), "learned": _winsorised(campaign)}
    state |= {name: fact for name, fact in learned.items() if fact}
    if campaign.state.engine.behind:
        state["warning"] = "Outcomes are further from the predictions than the predictions promise."
    view = Campaign.resume(MemoryStore.copy_of(store, name), name)
    view.budget = campaign.budget
    trials, settings = view.trials(), view.settings
    told = int((trials["status"] == "told").sum())
    following, note = _following(view)
    sections = [
        Section("Current state", tables=[facts("Current state", state)]),
        Section("Where to measure next", note, tables=[_listed(view, "The next trial", following)]),
        Section("Running trials", tables=[_listed(view, "Running trials", view.running())]),
    ]
    if told and len(settings.outcomes.goals) > 1:
        note = "Dots: outcomes; crosses: those that break a constraint; line: the front."
        drawn = Picture("The front", note, figures.front(view.ledger))
        sections.append(Section("The front", pictures=[drawn]))
    elif told:
        note = "Dots: outcomes; line: the best so far; at the bottom: failed and running trials."
        over = figures.outcomes(view.ledger, outcome, loaded.optimum)
        sections.append(Section("Outcomes", pictures=[Picture("Outcomes by trial", note, over)]))
        if view.model is not None:
            sections += _model(view, following, outcome, most_places, most_outcomes)
    omitted = len(trials) - most_trials
    note = f"The first {omitted} are omitted; bo-stream trials lists all." if omitted > 0 else ""
    latest = figures.in_unit(settings, trials).dropna(axis="columns", how="all").iloc[::-1]
    listed = _listed(view, "Trials, the latest first", latest.head(most_trials))
    sections.append(Section("Trials", note, tables=[listed]))
    versions = {name: version(name) for name in ("bo_stream", "torch", "botorch", "gpytorch")}
    tables = [_settings(view), facts("Versions for this page", versions)]
    return page(f"Campaign: {name}", about, [*sections, Section("Settings", tables=tables)])


def _following(campaign: Campaign) -> tuple[pd.DataFrame, str]:
    """The next trial with its prediction, and a note; or no trial, and the reason."""
    try:
        frame = campaign.ask()
    except (BudgetError, InputError) as error:
        return pd.DataFrame(), str(error)
    note = "This is the next trial that the campaign would propose now. It has not been asked for."
    if campaign.model is None:
        wanted = campaign.settings.initial
        return frame, f"{note} Until there are {wanted} outcomes, trials are spread over the space."
    predicted = campaign.predict(frame[list(campaign.space.names)])
    return frame.join(figures.in_unit(campaign.settings, predicted)), note


def _model(
    campaign: Campaign, following: pd.DataFrame, outcome: str, most_places: int, most_outcomes: int
) -> list[Section]:
    """Pictures of the model of one outcome."""
    state, space = campaign.state, campaign.space
    where = figures.reference_trial(state.ledger)[1]
    within = "two standard deviations" if campaign.settings.counts is None else "90 % interval"
    few = f"the last {most_outcomes}" if state.history.num_told > most_outcomes else "all"
    note = f"Mean and {within}; dots: {few} outcomes; star: {where}."
    along = Picture(f"Through {where}", note, figures.slices(state, outcome, most_outcomes))
    sections = [Section("The model along each input", pictures=[along])]
    if space.dim == 2 and not space.categories:
        note = "Dots: measured; open diamonds: running; red diamond: the next trial."
        note += " Star: the best." if figures.is_single(campaign.settings) else ""
        if isinstance(space, Pool) and len(space.table) > most_places:
            note += f" One in {-(-len(space.table) // most_places)} places is drawn."
        over = figures.maps(state, outcome, following, most_places)
        drawn = Picture(f"Prediction of {outcome}", note, over)
        sections.append(Section("Maps of the model", pictures=[drawn]))
    return sections


def _winsorised(campaign: Campaign) -> str:
    """The limits of what is learned, of the outcomes that are beyond."""
    return "; ".join(
        f"{number} of {name} beyond {limit:.6g}, {SPREADS:g} spreads from the median, as this limit"
        for name, (limit, number) in winsorised(campaign.state).items()
        if number
    )


def _listed(campaign: Campaign, caption: str, frame: pd.DataFrame) -> PageTable:
    """A table of trials with units in its header."""
    names = {name: figures.label(campaign.space, name) for name in campaign.space.names}
    names |= {"mean": "predicted mean", "sd": "standard deviation"}
    return PageTable(caption, frame.reset_index().rename(columns=names), 6)


def _settings(campaign: Campaign) -> PageTable:
    s = campaign.settings
    settings: dict[str, Any] = {
        "goal": figures.goal(s),
        "surrogate": s.surrogate and describe(s.surrogate),
        "acquisition": s.acquisition and describe(s.acquisition),
        "seed": s.seed,
        "outcomes before a surrogate is built": s.initial,
        "failures": None if s.failures == "ignored" else s.failures,
        "constraints": "; ".join("a callable" if c is None else c for c in s.constraints) or None,
    }
    inputs = {
        figures.label(campaign.space, one.name): one.described() for one in campaign.space.kinds
    }
    return facts("Settings of the campaign", {**settings, **inputs})
