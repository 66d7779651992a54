"""What all commands share: options, configurations, folders of results, errors of one line.

No torch here, so that ``--help`` need not wait for it.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["CONFIGS", "Config", "Out", "Smoke", "folder", "parsed", "read", "selected", "start"]

CONFIGS = Path(__file__).parent / "configs"
Config = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="TOML with the keys of the default.")
]
Out = Annotated[
    Path | None, typer.Option(help="Folder for tables and pictures; one under results/ if none.")
]
Smoke = Annotated[
    bool, typer.Option(help="Seconds on little, made-up data; results go to a folder of their own.")
]


def parsed(config: Path) -> dict[str, Any]:
    """The contents of a TOML file; one that is malformed ends the command in one line."""
    try:
        return tomllib.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise typer.BadParameter(f"{config} is no TOML: {error}.") from error


def read(config: Path, default: Path) -> dict[str, Any]:
    """A configuration, which must have the keys of the default one."""
    c = parsed(config)
    missing = ", ".join(key for key in parsed(default) if key not in c)
    if missing:
        raise typer.BadParameter(f"{config} has no {missing}; see {default}.")
    return c


def selected(names: list[str] | None, known: Iterable[str], option: str) -> list[str]:
    """Which of the known are asked for by an option: all, if it was not given."""
    known = list(known)
    for name in names or []:
        if name not in known:
            raise typer.BadParameter(f"no {name}; there are {', '.join(known)}.", param_hint=option)
    return [name for name in known if not names or name in names]


def folder(default: str | Path, out: Path | None, smoke: bool) -> Path:
    """Where results go, made; by default, those of a smoke run lie beside the real ones."""
    path = out or Path(f"{default}_smoke" if smoke else default)
    path.mkdir(parents=True, exist_ok=True)
    return path


def start(main: Callable[..., None]) -> None:
    """Run a function as a command; data that is missing ends it in one line."""
    app = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown"
    )
    app.command(help=sys.modules[main.__module__].__doc__)(main)
    try:
        app()
    except FileNotFoundError as error:
        from problems.errors import DataNotFound

        if not isinstance(error, DataNotFound):
            raise
        sys.exit(f"{error} Or run with --smoke, on made-up data.")
