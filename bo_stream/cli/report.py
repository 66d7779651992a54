"""Command `report`: one page of HTML about a campaign or about the results of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bo_stream.cli.load_campaign import CampaignName, load_campaign
from bo_stream.cli.toml_reader import ConfigError

__all__ = ["report"]


def report(
    where: Annotated[
        str,
        typer.Argument(
            metavar="STORE|CONFIG|FOLDER",
            help="URL or file of a store, a TOML, or a folder with the results of a study.",
        ),
    ],
    name: CampaignName = None,
    out: Annotated[
        Path | None,
        typer.Option(help="HTML; by default report.html, in a study's folder or here."),
    ] = None,
) -> None:
    """Write a page about a campaign or a study.

    The page is one HTML file that needs no network. For a campaign, running or finished, it shows
    the best trial, the running trials, the model around the best trial and where to measure next;
    the campaign is not changed. For a study it shows regret and errors against time and number of
    observations, seconds per step by part, and the configuration of the runs.
    """
    folder = Path(where)
    if folder.is_dir() and name is not None:
        raise ConfigError(f"{folder} has the results of a study. Leave out the name {name!r}.")
    page = out or (folder / "report.html" if folder.is_dir() else Path("report.html"))
    if not page.absolute().parent.is_dir():
        raise ConfigError(f"There is no folder {page.absolute().parent}. Create it or correct it.")
    import plotly  # noqa: F401  # now, so that a missing plotly costs no work

    if folder.is_dir():
        from bo_stream.cli.reports.study import study_page

        html = study_page(folder)
    else:
        loaded = load_campaign(where, name)
        from bo_stream.cli.formatting import summary
        from bo_stream.cli.reports.campaign import campaign_page

        html = campaign_page(loaded.campaign, summary(loaded), loaded.outcome, loaded.optimum)
    page.write_text(html, encoding="utf-8")
    print(f"Wrote {page}.")
