"""Campaigns as text: counts, the best trial, regret, seconds by part, tables with units."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bo_stream.campaign import results
from bo_stream.campaign.figures import goal, is_single, label
from bo_stream.campaign.outcomes.observations import SPREADS
from bo_stream.errors import StateError

if TYPE_CHECKING:
    import pandas as pd

    from bo_stream.campaign.campaign import Campaign
    from bo_stream.cli.load_campaign import LoadedCampaign

__all__ = [
    "as_json",
    "best_trial",
    "count_by_status",
    "far_off",
    "front",
    "recommendation",
    "regret",
    "seconds_by_part",
    "summary",
    "table",
    "winsorised",
]


def as_json(value: Mapping[str, Any] | pd.DataFrame) -> str:
    """Facts, or rows of a frame, as JSON; what is missing is null."""
    import pandas as pd

    if isinstance(value, pd.DataFrame):
        return value.to_json(orient="records", double_precision=15)
    frames = {k: json.loads(as_json(v)) for k, v in value.items() if isinstance(v, pd.DataFrame)}
    return json.dumps({**value, **frames})


def summary(loaded: LoadedCampaign) -> dict[str, str]:
    """Facts about the current state of a campaign, by name."""
    campaign = loaded.campaign
    trials, family = campaign.trials(), campaign.state.engine.current.surrogate
    why, decision = campaign.state.engine.current.why[0], campaign.decision
    left = regret(campaign, trials, loaded.optimum)
    learned = "infeasible: where trials fail is learned from the first failure on"
    facts = {
        "campaign": f"{campaign.ledger.name} in {loaded.store}",
        "goal": goal(campaign.settings),
        "inputs": ", ".join(label(campaign.space, n) for n in campaign.space.names),
        "surrogate": f"{'a callable' if family is None else family['name']}. {why}",
        "acquisition": f"{decision.acquisition}. {decision.why}",
        "trials": count_by_status(trials),
        "failures": None if campaign.settings.failures == "ignored" else learned,
        "budget": None if campaign.budget is None else f"{campaign.budget} trials",
        "far off": far_off(campaign),
        "best": best_trial(campaign, trials),
        "front": front(campaign),
        "recommended": recommendation(campaign, trials),
        "learned": winsorised(campaign),
        "regret": None if left is None else f"{left:.6g}",
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def front(campaign: Campaign) -> str | None:
    """Size and hypervolume of the front of several objectives; None before there is one."""
    if not isinstance(campaign.settings.goal, Mapping):
        return None
    volume = campaign.hypervolume()
    if volume is None:
        return "no feasible trial yet"
    value, reference = volume
    point = ", ".join(f"{name} = {bound:.4g}" for name, bound in reference.items())
    return f"{len(campaign.front())} trials, hypervolume {value:.4g} from {point}"


def count_by_status(trials: pd.DataFrame) -> str:
    """Numbers of trials that were told, are running, have failed and were withdrawn."""
    counts = trials["status"].value_counts()
    parts = [f"{counts.get('told', 0)} told"]
    others = ("running", "failed", "withdrawn")
    parts += [f"{counts[status]} {status}" for status in others if status in counts]
    return ", ".join(parts)


def far_off(campaign: Campaign) -> str | None:
    """Outcomes that are far from all others; None if there is none."""
    from bo_stream.campaign.frames import far_outcomes

    history = campaign.ledger.refresh()
    outcomes = campaign.settings.outcomes
    far = far_outcomes(history, outcomes)
    if not far:
        return None
    values = [(history.trials[id].entries[outcomes.columns[0]][0], id) for id in far[:5]]
    shown = ", ".join(f"{value:.6g} (trial {id})" for value, id in values)
    more = f" and {len(far) - 5} more" if len(far) > 5 else ""
    return f"{shown}{more}, hundreds of interquartile ranges from the others"


def best_trial(campaign: Campaign, trials: pd.DataFrame) -> str | None:
    """The best outcome with its inputs; None if there is none."""
    row = _best(campaign, trials)
    if row is None:
        return None
    return f"{row[campaign.settings.column]:.6g} at {_place_of(campaign, row)} (trial {row.name})"


def recommendation(campaign: Campaign, trials: pd.DataFrame) -> str | None:
    """The recommended setting, its 90 % interval, and the gain still expected elsewhere.

    None before there is a surrogate.
    """
    told = int((trials["status"] == "told").sum())
    if not is_single(campaign.settings) or told < campaign.settings.initial:
        return None
    try:
        row = campaign.recommend().iloc[0]
    except StateError:  # no surrogate could be built
        return None
    interval = f"{row['mean']:.6g} ({row['lower']:.6g} to {row['upper']:.6g})"
    if "gain" in row:
        interval += f", expected gain {row['gain']:.3g},"
    if "feasible" in row:
        interval += f", feasible with probability {row['feasible']:.2f},"
    return f"{interval} at {_place_of(campaign, row)}"


def winsorised(campaign: Campaign) -> str | None:
    """The limits of what is learned, if outcomes are beyond; None otherwise."""
    found, limits = [], results.winsorised(campaign.state)
    for name, (limit, number) in limits.items():
        if number:
            of = f" of {name}" if len(limits) > 1 else ""
            values = f"1 outcome{of}" if number == 1 else f"{number} outcomes{of}"
            found.append(f"{values} beyond {limit:.6g}, {SPREADS:g} spreads from the median")
            found[-1] += f", as {limit:.6g}"
    return "; ".join(found) or None


def regret(campaign: Campaign, trials: pd.DataFrame, optimum: float | None) -> float | None:
    """Difference between the optimum and the best outcome; None if unknown."""
    row = _best(campaign, trials)
    if row is None or optimum is None:
        return None
    return campaign.settings.sign * (optimum - float(row[campaign.settings.column]))


def seconds_by_part(row: Mapping[str, float]) -> str:
    """Seconds of every part that took time, the longest first."""
    spent = {
        column.removesuffix("_seconds"): seconds
        for column, seconds in row.items()
        if column.endswith("_seconds") and seconds > 0.0
    }
    parts = sorted(spent.items(), key=lambda item: -item[1])
    return ", ".join(f"{part} {seconds:.3g} s" for part, seconds in parts)


def table(campaign: Campaign, frame: pd.DataFrame) -> str:
    """Trials or settings as aligned text with units in the header, without empty columns."""
    names = {name: label(campaign.space, name) for name in campaign.space.names}
    return (
        frame.dropna(axis="columns", how="all")
        .rename(columns=names)
        .to_string(index=False, na_rep="", float_format=lambda value: f"{value:.6g}")
    )


def _best(campaign: Campaign, trials: pd.DataFrame) -> pd.Series | None:
    told = trials[trials["status"] == "told"]
    none = not is_single(campaign.settings) or not campaign.settings.outcomes.feasible(told).any()
    return None if none else campaign.best()


def _place_of(campaign: Campaign, row: pd.Series) -> str:
    """Inputs of a row with their units, and the place in a pool."""
    units = campaign.space.units
    inputs = ", ".join(
        f"{name} = {_shown(row[name])}{' ' + units[name] if name in units else ''}"
        for name in campaign.space.names
    )
    return f"place {row['place']}, {inputs}" if "place" in row else inputs


def _shown(value: Any) -> str:
    """A number in six digits, or a label."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
