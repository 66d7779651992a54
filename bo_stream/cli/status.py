"""Commands that look at a campaign and change nothing: `status` and `trials`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bo_stream.cli.arguments import CampaignName, Where

__all__ = ["status", "trials"]


def status(where: Where, name: CampaignName = None) -> None:
    """Say how far a campaign has come."""
    from bo_stream.cli.formatting import standing, table
    from bo_stream.cli.load_campaign import found

    opened = found(where, name)
    campaign = opened.campaign
    facts = standing(opened)
    under_way = campaign.running()
    width = max(map(len, facts))
    for fact, said in facts.items():
        if said is not None:
            print(f"{fact:<{width}}  {said}")
    if len(under_way):
        print("under way:")
        print(table(campaign, under_way))


def trials(
    where: Where,
    name: CampaignName = None,
    csv: Annotated[Path | None, typer.Option(help="Write them here instead.")] = None,
) -> None:
    """List every trial.

    Inputs, outcome, status, and the reason of those that failed.
    """
    from bo_stream.cli.formatting import table
    from bo_stream.cli.load_campaign import found

    campaign = found(where, name).campaign
    frame = campaign.trials()
    if csv is None:
        print(table(campaign, frame) if len(frame) else "No trials yet.")
        return
    frame.to_csv(csv)
    print(f"{len(frame)} trials written to {csv}.")
