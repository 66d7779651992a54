"""A campaign in words: counts, the incumbent, regret, seconds by part; tables with units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from bo_stream.campaign.campaign import Campaign
    from bo_stream.cli.load_campaign import Opened

__all__ = ["counted", "incumbent", "label", "regret", "seconds", "standing", "table"]

PARTS = ("fit", "acquisition", "evaluation", "update", "score", "store")


def standing(opened: Opened) -> dict[str, str | None]:
    """How far a campaign has come; None for what there is not."""
    campaign = opened.campaign
    trials, family = campaign.trials(), campaign.settings.surrogate
    left = regret(campaign, trials, opened.optimum)
    return {
        "campaign": f"{campaign.name} in {opened.store}",
        "goal": campaign.goal,
        "inputs": ", ".join(label(campaign, n) for n in campaign.space.names),
        "surrogate": "a callable" if family is None else family["name"],
        "trials": counted(trials),
        "best": incumbent(campaign, trials),
        "regret": None if left is None else f"{left:.6g}",
    }


def counted(trials: pd.DataFrame) -> str:
    """How many trials were told, are under way and have failed."""
    counts = trials["status"].value_counts()
    said = [f"{counts.get('told', 0)} told"]
    for status, word in (("running", "under way"), ("failed", "failed")):
        if counts.get(status, 0):
            said.append(f"{counts[status]} {word}")
    return ", ".join(said)


def incumbent(campaign: Campaign, trials: pd.DataFrame) -> str | None:
    """The best outcome so far and where it was measured; None where there is none."""
    row = _best(campaign, trials)
    if row is None:
        return None
    inputs = ", ".join(
        f"{name} = {row[name]:.6g}{_unit(campaign, name)}" for name in campaign.space.names
    )
    place = f"place {row['place']}, " if "place" in row else ""
    return f"{row['y']:.6g} at {place}{inputs} (trial {row.name})"


def regret(campaign: Campaign, trials: pd.DataFrame, optimum: float | None) -> float | None:
    """How far the best outcome is from the best there can be; None where that is unknown."""
    row = _best(campaign, trials)
    if row is None or optimum is None:
        return None
    return campaign.settings.sign * (optimum - float(row["y"]))


def seconds(row: Mapping[str, float]) -> str:
    """Where the time went, the longest part first, parts of nothing left out."""
    spent = {part: row[f"{part}_seconds"] for part in PARTS}
    parts = sorted((part for part in PARTS if spent[part] > 0.0), key=lambda part: -spent[part])
    return ", ".join(f"{part} {spent[part]:.3g} s" for part in parts)


def label(campaign: Campaign, name: str) -> str:
    """An input with its unit."""
    unit = campaign.space.units.get(name)
    return f"{name} ({unit})" if unit else name


def table(campaign: Campaign, frame: pd.DataFrame) -> str:
    """Trials as aligned text, units in the header, columns without any content left out."""
    shown = frame.dropna(axis="columns", how="all").reset_index()
    names = {name: label(campaign, name) for name in campaign.space.names}
    return shown.rename(columns=names).to_string(
        index=False, na_rep="", float_format=lambda value: f"{value:.6g}"
    )


def _best(campaign: Campaign, trials: pd.DataFrame) -> pd.Series | None:
    none = campaign.goal == "learn" or not (trials["status"] == "told").any()
    return None if none else campaign.best()


def _unit(campaign: Campaign, name: str) -> str:
    unit = campaign.space.units.get(name)
    return f" {unit}" if unit else ""
