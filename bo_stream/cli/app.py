"""The program `bo-stream` and its commands."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from bo_stream.cli.commands import (
    amend,
    change,
    check,
    map_places,
    plot,
    recommend,
    report,
    resume,
    run,
    status,
    suggest,
    tell,
    trials,
    widen,
    withdraw,
)
from bo_stream.cli.error_handling import in_one_line
from bo_stream.cli.toml_reader import ConfigError

__all__ = ["app", "start"]

NAME = "bo-stream"
TEMPLATE = Path(__file__).with_name("template.toml")

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Campaigns of measurements: where to measure next, given the outcomes so far.",
)


def init(
    file: Annotated[Path, typer.Argument(help="The TOML to write.")] = Path("campaign.toml"),
) -> None:
    """Write a commented TOML to start from."""
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(TEMPLATE.read_text(encoding="utf-8"))
    except FileExistsError as error:
        raise ConfigError(f"{file} exists already. Choose another name.") from error
    print(f"Wrote {file}. Edit it, then: bo-stream run {file}")
    print(f"To measure by hand: bo-stream suggest {file} -q 3 --csv next.csv")


_COMMANDS: dict[str, Callable[..., None]] = {
    "init": init,
    "run": run,
    "resume": resume,
    "status": status,
    "recommend": recommend,
    "trials": trials,
    "plot": plot,
    "suggest": suggest,
    "tell": tell,
    "amend": amend,
    "withdraw": withdraw,
    "widen": widen,
    "change": change,
    "map": map_places,
    "report": report,
    "check": check,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(in_one_line(_command))


def start(args: list[str]) -> None:
    """Run the program.

    A command that is named first is started directly: otherwise typer would import pydantic, which
    takes longer than the rest of the help.

    Args:
        args: Arguments after the program's name.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a console may lack characters of names
            stream.reconfigure(errors="replace")
    program = get_command(app)
    if args and args[0] in _COMMANDS:
        command = program.commands[args[0]]  # type: ignore[attr-defined]
        command(args[1:], prog_name=f"{NAME} {args[0]}")
    program(args, prog_name=NAME)
