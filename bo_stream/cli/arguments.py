"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["CampaignName", "ConfigFile", "Where"]

ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="A TOML, as bo-stream init writes one.")
]

Where = Annotated[
    str, typer.Argument(metavar="STORE|CONFIG", help="URL or file of a store, or a TOML.")
]

CampaignName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Of the campaign, where a store has several."),
]
