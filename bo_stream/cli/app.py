"""The program `bo-stream`: its commands, whose expected errors are printed in one line."""

from __future__ import annotations

import io
import sys

import typer

from bo_stream.cli.commands import NAME, TEMPLATE, app

__all__ = ["TEMPLATE", "app", "start"]

REFUSED = 2
"""Exit code of a command that is refused."""

EXTRAS = {
    "rich": "cli",
    "matplotlib": "plots",
    "jinja2": "report",
    "sqlalchemy": "store",
    "psycopg": "postgres",
    "loky": "workers",
    "distributed": "dask",
}
"""Extra of bo_stream by package."""


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
    program, name = typer.main.get_command(app), NAME
    commands = program.commands  # type: ignore[attr-defined]
    if args and args[0] in commands:
        program, name, args = commands[args[0]], f"{NAME} {args[0]}", args[1:]
    try:
        program(args, prog_name=name)
    except Exception as error:
        line = _line(error)
        if line is None:
            raise
        print(line, file=sys.stderr, flush=True)
        raise SystemExit(REFUSED) from None


def _line(error: Exception) -> str | None:
    """The message of an expected error in one line; None for any other error."""
    if isinstance(error, OSError) or type(error).__module__.startswith("bo_stream."):
        return " ".join(str(error).split())
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ImportError) and package in EXTRAS:
        extra = EXTRAS[package]
        return f"This needs {package} (extra {extra!r}): pip install 'bo_stream[{extra}]'"
    return str(error) if "bo_stream[" in str(error) else None
