"""Commands that show a campaign: `status`, `trials` and `recommend`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bo_stream.cli.load_campaign import AsJson, CampaignName, Where, load_campaign

__all__ = ["recommend", "status", "trials"]


def status(where: Where, name: CampaignName = None, json: AsJson = False) -> None:
    """Show the current state of a campaign."""
    loaded = load_campaign(where, name)
    from bo_stream.cli.formatting import as_json, summary, table

    facts = summary(loaded)
    if json:
        print(as_json({**facts, "running": loaded.campaign.running().reset_index()}))
        return
    width = max(map(len, facts))
    for fact, value in facts.items():
        print(f"{fact:<{width}}  {value}")
    running = loaded.campaign.running()
    if len(running):
        print("running:")
        print(table(loaded.campaign, running))


def trials(
    where: Where,
    name: CampaignName = None,
    csv: Annotated[Path | None, typer.Option(help="Write them to this CSV instead.")] = None,
    json: AsJson = False,
) -> None:
    """List all trials.

    The list has inputs, outcome and status, and the reason of every failure.
    """
    campaign = load_campaign(where, name).campaign
    frame = campaign.trials()
    from bo_stream.cli.formatting import as_json, table

    if json:
        print(as_json(frame.reset_index()))
        return
    if csv is None:
        print(table(campaign, frame) if len(frame) else "No trials yet.")
        return
    frame.to_csv(csv)
    print(f"Wrote {len(frame)} trials to {csv}.")


def recommend(
    where: Where,
    name: CampaignName = None,
    n: Annotated[int, typer.Option("-n", "--number", min=1, help="Number of settings.")] = 1,
    json: AsJson = False,
) -> None:
    """Recommend settings: those to use by what is known, in order of preference.

    The list has the expected outcome without noise, its standard deviation, a 90 % interval, and
    the gain that may still be had: how much better the best outcome anywhere is expected to be.
    """
    campaign = load_campaign(where, name).campaign
    from bo_stream.cli.formatting import as_json, recommendations

    print(as_json(campaign.recommend(n)) if json else recommendations(campaign, n))
