"""`report`: one page of HTML about a campaign or the results of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bo_stream.cli.arguments import CampaignName
from bo_stream.cli.toml_document import ConfigError

__all__ = ["report"]


def report(
    where: Annotated[
        str,
        typer.Argument(
            metavar="STORE|CONFIG|FOLDER",
            help="URL or file of a store, a TOML, or the folder with the results of a study.",
        ),
    ],
    name: CampaignName = None,
    out: Annotated[
        Path | None,
        typer.Option(help="HTML; by default report.html, in the folder of a study or here."),
    ] = None,
) -> None:
    """Write a page about a campaign or a study.

    One HTML file that needs no network. Of a campaign, running or finished: the best so far, trials
    under way, the model around the best point and where to measure next; nothing of it is changed.
    Of a study: regret and errors against time and observations, seconds a step by part, and how
    the runs came about.
    """
    folder = Path(where)
    if folder.is_dir() and name is not None:
        raise ConfigError(f"{folder} holds the results of a study. Leave out the name {name!r}.")
    page = out or (folder / "report.html" if folder.is_dir() else Path("report.html"))
    if not page.absolute().parent.is_dir():
        raise ConfigError(f"There is no folder {page.absolute().parent}. Make it, or correct it.")
    import plotly  # noqa: F401  # here: missed now rather than after the work

    if folder.is_dir():
        from bo_stream.cli.reports.study import study_page

        html = study_page(folder)
    else:
        from bo_stream.cli.formatting import standing
        from bo_stream.cli.load_campaign import found
        from bo_stream.cli.reports.campaign import campaign_page

        opened = found(where, name)
        html = campaign_page(opened.campaign, standing(opened), opened.outcome, opened.optimum)
    page.write_text(html, encoding="utf-8")
    print(f"Written to {page}.")
