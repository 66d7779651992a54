"""Ending a command with one line on the standard error in place of a traceback."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from bo_stream.cli.toml_reader import ConfigError

__all__ = ["INTERRUPTED", "REFUSED", "in_one_line", "print_error"]

REFUSED, INTERRUPTED = 2, 130
"""Exit codes of a command that is refused, and of one that was stopped by Ctrl-C."""

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

P = ParamSpec("P")


def in_one_line(command: Callable[P, None]) -> Callable[P, None]:
    """The command, whose expected errors are printed in one line with exit code 2."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            print_error("Stopped.")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            line = _line(error)
            if line is None:
                raise
            print_error(line)
            raise typer.Exit(REFUSED) from None

    return wrapped


def print_error(line: str) -> None:
    """Print to the standard error."""
    print(line, file=sys.stderr, flush=True)


def _line(error: Exception) -> str | None:
    """The message of an expected error in one line; None for any other error."""
    errors = sys.modules.get("bo_stream.errors")  # not imported: none of them was raised
    ours = () if errors is None else (errors.BoStreamError,)
    if isinstance(error, (ConfigError, OSError, *ours)):
        return " ".join(str(error).split())
    return _missing_extra(error) if isinstance(error, ImportError) else None


def _missing_extra(error: ImportError) -> str | None:
    package = (error.name or "").partition(".")[0]
    if package in EXTRAS:
        extra = EXTRAS[package]
        return f"This needs {package} (extra {extra!r}): pip install 'bo_stream[{extra}]'"
    return str(error) if "bo_stream[" in str(error) else None
