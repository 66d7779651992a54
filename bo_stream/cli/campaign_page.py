"""The page of a campaign: its current state, its model, and where it would measure next."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pandas as pd

from bo_stream.campaign import figures, found
from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.frames import inputs_frame
from bo_stream.campaign.outcomes.outcome import SPREADS
from bo_stream.campaign.results import winsorised
from bo_stream.campaign.space import Pool
from bo_stream.cli.formatting import recommendation, summary
from bo_stream.cli.loading import LoadedCampaign
from bo_stream.cli.page import PageTable, Picture, Section, describe, facts, page
from bo_stream.errors import InputError

__all__ = ["campaign_page"]


def campaign_page(
    loaded: LoadedCampaign,
    most_trials: int = 300,
    most_places: int = 20_000,
    most_outcomes: int = 1000,
) -> str:
    """The HTML of a campaign's page; no trial is asked for.

    Cost: that of its next `ask`, and of predictions at some hundred points.

    Args:
        loaded: A running or finished campaign.
        most_trials: Maximum number of trials listed; `bo-stream trials` lists all.
        most_places: Maximum number of places of a pool on a map.
        most_outcomes: Maximum number of outcomes beside a slice.
    """
    campaign, state = loaded.learning, summary(loaded.campaign, loaded.store, loaded.optimum)
    title, about = f"Campaign: {campaign.ledger.name}", f"{state['goal']}: {state['trials']}"
    following, note = _following(campaign)  # first, for it may fit the surrogate
    far = "Outcomes are further from the predictions than the predictions promise."
    learned = {
        "recommended": recommendation(campaign),
        "learned": _winsorised(campaign),
        "warning": far if campaign.state.engine.behind else None,
    }
    state |= {name: fact for name, fact in learned.items() if fact}
    trials = campaign.trials()
    latest = figures.in_unit(campaign.settings, trials).dropna(axis="columns", how="all")
    listed = _listed(campaign, "Trials, the latest first", latest.iloc[::-1].head(most_trials))
    omitted = len(trials) - most_trials
    more = f"The first {omitted} are omitted; bo-stream trials lists all." if omitted > 0 else ""
    versions = {name: version(name) for name in ("bo_stream", "torch", "botorch", "gpytorch")}
    sections = [
        Section("Current state", tables=[facts("Current state", state)]),
        Section(
            "Where to measure next", note, tables=[_listed(campaign, "The next trial", following)]
        ),
        Section("Running trials", tables=[_listed(campaign, "Running trials", campaign.running())]),
        *_pictures(loaded, following, most_places, most_outcomes),
        Section("Trials", more, tables=[listed]),
        Section(
            "Settings", tables=[_settings(campaign), facts("Versions for this page", versions)]
        ),
    ]
    return page(title, about, sections)


def _following(campaign: Campaign) -> tuple[pd.DataFrame, str]:
    """The next trial with its prediction, and a note; or no trial, and the reason."""
    state = campaign.state
    if campaign.remaining <= 0:
        return pd.DataFrame(), f"The budget of {campaign.budget} trials is used up."
    state.sync().update()
    try:
        new, _ = state.propose(1)
    except InputError as error:
        return pd.DataFrame(), str(error)
    frame = inputs_frame(new, campaign.space)
    note = "This is the next trial that the campaign would propose now. It has not been asked for."
    if campaign.model is None:
        wanted = campaign.settings.initial
        return frame, f"{note} Until there are {wanted} outcomes, trials are spread over the space."
    predicted = campaign.predict(frame[list(campaign.space.names)])
    return frame.join(figures.in_unit(campaign.settings, predicted)), note


def _pictures(
    loaded: LoadedCampaign, following: pd.DataFrame, most_places: int, most_outcomes: int
) -> Iterator[Section]:
    """Pictures of the outcomes and, of a single one, of its model."""
    campaign, outcome = loaded.campaign, loaded.outcome
    state, space, settings = campaign.state, campaign.space, campaign.settings
    if found.told(campaign.ledger).empty:
        return
    if len(settings.outcomes.goals) > 1:
        note = "Dots: outcomes; crosses: those that break a constraint; line: the front."
        drawn = Picture("The front", note, figures.front(campaign.ledger))
        yield Section("The front", pictures=[drawn])
        return
    note = "Dots: outcomes; line: the best so far; at the bottom: failed and running trials."
    over = figures.outcomes(campaign.ledger, outcome, loaded.optimum)
    yield Section("Outcomes", pictures=[Picture("Outcomes by trial", note, over)])
    if campaign.model is None:
        return
    where = figures.reference_trial(state.ledger)[1]
    within = "two standard deviations" if settings.counts is None else "90 % interval"
    few = f"the last {most_outcomes}" if state.history.num_told > most_outcomes else "all"
    note = f"Mean and {within}; dots: {few} outcomes; star: {where}."
    along = Picture(f"Through {where}", note, figures.slices(state, outcome, most_outcomes))
    yield Section("The model along each input", pictures=[along])
    if space.dim == 2 and not space.categories:
        places = figures.places(state, most_places)
        note = "Dots: measured; open diamonds: running; red diamond: the next trial."
        note += " Star: the best." if figures.is_single(settings) else ""
        if isinstance(space, Pool) and len(places) < len(space.table):
            note += f" One in {-(-len(space.table) // most_places)} places is drawn."
        over = figures.maps(state, places, outcome, following)
        drawn = Picture(f"Prediction of {outcome}", note, over)
        yield Section("Maps of the model", pictures=[drawn])


def _winsorised(campaign: Campaign) -> str:
    """The limits of what is learned, of the outcomes that are beyond."""
    return "; ".join(
        f"{number} of {name} beyond {limit:.6g}, {SPREADS:g} spreads from the median, as this limit"
        for name, (limit, number) in winsorised(campaign.state).items()
        if number
    )


def _listed(campaign: Campaign, caption: str, frame: pd.DataFrame) -> PageTable:
    """A table of trials with units in its header."""
    results = {"mean": "predicted mean", "sd": "standard deviation"}
    names = figures.labels(campaign.space) | results
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
    names = figures.labels(campaign.space)
    inputs = {names[one.name]: one.described() for one in campaign.space.kinds}
    return facts("Settings of the campaign", {**settings, **inputs})
