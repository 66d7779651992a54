"""Campaigns as text: counts, the best trial, regret, seconds by part, tables with units."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pandas as pd

from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.figures import goal, is_single, labels
from bo_stream.campaign.frames import far_outcomes
from bo_stream.errors import StateError, UnsupportedError

__all__ = [
    "as_json",
    "count_by_status",
    "lines",
    "recommendation",
    "seconds_by_part",
    "show",
    "so_far",
    "summary",
    "table",
]

STATUSES = ("running", "failed", "withdrawn")


def show(campaign: Campaign, frame: pd.DataFrame, json: bool) -> None:
    """Print trials or settings, as a table or as JSON."""
    print(as_json(frame) if json else table(campaign, frame))


def table(campaign: Campaign, frame: pd.DataFrame) -> str:
    """Trials or settings as aligned text with units in the header, without empty columns."""
    shown = frame.dropna(axis="columns", how="all").rename(columns=labels(campaign.space))
    return shown.to_string(index=False, na_rep="", float_format=lambda value: f"{value:.6g}")


def lines(facts: Mapping[str, str]) -> str:
    """Facts with their names, one a line."""
    width = max(map(len, facts))
    return "\n".join(f"{name:<{width}}  {fact}" for name, fact in facts.items())


def as_json(value: Mapping[str, Any] | pd.DataFrame) -> str:
    """Facts, or rows of a frame, as JSON; what is missing in a frame is null."""
    if isinstance(value, pd.DataFrame):
        return value.to_json(orient="records", double_precision=15)
    return json.dumps(value)


def summary(campaign: Campaign, store: str, optimum: float | None = None) -> dict[str, str]:
    """Facts about the current state of a campaign, by name.

    Args:
        campaign: The campaign.
        store: Where it is stored.
        optimum: The best possible outcome, if known.
    """
    decision, settings, current = campaign.decision, campaign.settings, campaign.ledger.current
    family = current.surrogate
    learned = "infeasible: where trials fail is learned from the first failure on"
    facts = {
        "campaign": f"{campaign.ledger.name} in {store}",
        "goal": goal(settings),
        "inputs": ", ".join(labels(campaign.space).values()),
        "surrogate": f"{'a callable' if family is None else family['name']}. {current.why[0]}",
        "acquisition": f"{decision.acquisition}. {decision.why}",
        "failures": None if settings.failures == "ignored" else learned,
        "budget": None if campaign.budget is None else f"{campaign.budget} trials",
        **so_far(campaign, optimum),
        "far off": _far_off(campaign),
    }
    return {name: fact for name, fact in facts.items() if fact}


def so_far(campaign: Campaign, optimum: float | None = None) -> dict[str, str]:
    """What trials have found, by name: their numbers, and the best one or the front if any."""
    facts = {"trials": count_by_status(campaign.trials())}
    with suppress(StateError, UnsupportedError):
        best, column = campaign.best(), campaign.settings.column
        facts["best"] = f"{best[column]:.6g} at {_inputs(campaign, best)} (trial {best.name})"
        if optimum is not None:
            facts["regret"] = f"{campaign.settings.sign * (optimum - best[column]):.6g}"
    with suppress(UnsupportedError):
        volume = campaign.hypervolume()
        facts["front"] = "no feasible trial yet"
        if volume is not None:
            point = ", ".join(f"{name} = {bound:.4g}" for name, bound in volume[1].items())
            found = f"{len(campaign.front())} trials, hypervolume {volume[0]:.4g} from {point}"
            facts["front"] = found
    return facts


def count_by_status(trials: pd.DataFrame) -> str:
    """Numbers of trials that were told, are running, have failed and were withdrawn."""
    counts = trials["status"].value_counts()
    others = [f"{counts[status]} {status}" for status in STATUSES if status in counts]
    return ", ".join([f"{counts.get('told', 0)} told", *others])


def recommendation(campaign: Campaign) -> str | None:
    """The recommended setting, its 90 % interval, and the gain still expected elsewhere.

    None before there is a surrogate.
    """
    if not is_single(campaign.settings):
        return None
    try:
        row = campaign.recommend().iloc[0]
    except StateError:
        return None
    interval = f"{row['mean']:.6g} ({row['lower']:.6g} to {row['upper']:.6g})"
    if "gain" in row:
        interval += f", expected gain {row['gain']:.3g},"
    if "feasible" in row:
        interval += f", feasible with probability {row['feasible']:.2f},"
    return f"{interval} at {_inputs(campaign, row)}"


def seconds_by_part(row: Mapping[str, float]) -> str:
    """Seconds of every part that took time, the longest first."""
    spent = pd.Series(dict(row)).filter(like="_seconds").sort_values(ascending=False)
    return ", ".join(f"{str(k).removesuffix('_seconds')} {s:.3g} s" for k, s in spent.items() if s)


def _far_off(campaign: Campaign) -> str | None:
    """Outcomes that are far from all others; None if there is none."""
    history, outcomes = campaign.ledger.refresh(), campaign.settings.outcomes
    far = far_outcomes(history, outcomes)
    values = [(history.trials[id].entries[outcomes.columns[0]][0], id) for id in far[:5]]
    shown = ", ".join(f"{value:.6g} (trial {id})" for value, id in values)
    more = f" and {len(far) - 5} more" if len(far) > 5 else ""
    return f"{shown}{more}, hundreds of interquartile ranges from the others" if far else None


def _inputs(campaign: Campaign, row: pd.Series[Any]) -> str:
    """Inputs of a row with their units, and the place in a pool."""
    units = campaign.space.units
    shown = [f"place {row['place']}"] if "place" in row else []
    for name in campaign.space.names:
        value = f"{row[name]:.6g}" if isinstance(row[name], float) else str(row[name])
        shown.append(f"{name} = {value} {units.get(name, '')}".rstrip())
    return ", ".join(shown)
