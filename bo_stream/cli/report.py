"""Command `report`: one page of HTML about a campaign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bo_stream.cli.load_campaign import CampaignName, Where, load_campaign
from bo_stream.cli.toml_reader import ConfigError

__all__ = ["report"]


def report(
    where: Where,
    name: CampaignName = None,
    out: Annotated[Path, typer.Option(help="HTML.")] = Path("report.html"),
) -> None:
    """Write a page about a campaign.

    The page is one HTML file that needs no network. It shows the best trial, the running trials,
    the model around the best trial and where to measure next; the campaign is not changed.
    """
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"There is no folder {out.absolute().parent}. Create it or correct it.")
    import jinja2  # noqa: F401  # now, so that a missing package costs no work
    import matplotlib  # noqa: F401

    loaded = load_campaign(where, name)
    from bo_stream.cli.campaign_page import campaign_page
    from bo_stream.cli.formatting import summary

    html = campaign_page(loaded.campaign, summary(loaded), loaded.outcome, loaded.optimum)
    out.write_text(html, encoding="utf-8")
    print(f"Wrote {out}.")
