"""`init`: a configuration to start from, with every key explained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bo_stream.cli.toml_document import ConfigError

__all__ = ["init"]

TEMPLATE = Path(__file__).with_name("template.toml")


def init(
    file: Annotated[Path, typer.Argument(help="The TOML to write.")] = Path("campaign.toml"),
) -> None:
    """Write a commented TOML to start from."""
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(TEMPLATE.read_text(encoding="utf-8"))
    except FileExistsError as error:
        raise ConfigError(f"{file} is there already. Choose another name.") from error
    print(f"Written to {file}. Edit it, then: bo-stream run {file}")
    print(f"To measure by hand: bo-stream suggest {file} -q 3 --csv next.csv")
