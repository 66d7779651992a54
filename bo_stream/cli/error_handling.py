"""How a command ends: in silence, or in one line that says what to do, and never in a traceback."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from bo_stream.cli.toml_document import ConfigError

__all__ = ["REFUSED", "STOPPED", "complain", "in_one_line"]

REFUSED, STOPPED = 2, 130
"""Exit codes: what was asked for cannot be done; the user pressed Ctrl-C."""

EXTRAS = {
    "rich": "cli",
    "matplotlib": "plots",
    "plotly": "report",
    "sqlalchemy": "store",
    "psycopg": "postgres",
    "loky": "workers",
    "distributed": "dask",
}

P = ParamSpec("P")


def in_one_line(command: Callable[P, None]) -> Callable[P, None]:
    """The command, whose refusals end in one line on the standard error and exit code 2."""

    @functools.wraps(command)
    def whole(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            complain("Stopped.")
            raise typer.Exit(STOPPED) from None
        except Exception as error:
            line = _line(error)
            if line is None:
                raise
            complain(line)
            raise typer.Exit(REFUSED) from None

    return whole


def complain(line: str) -> None:
    """Print to the standard error."""
    print(line, file=sys.stderr, flush=True)


def _line(error: Exception) -> str | None:
    """What an error says in one line; None for one that nobody raised on purpose."""
    if isinstance(error, ImportError):
        return _missing(error)
    errors = sys.modules.get("bo_stream.errors")  # not loaded: nothing can have raised one
    ours = () if errors is None else (errors.BoStreamError,)
    return (
        " ".join(str(error).split()) if isinstance(error, (ConfigError, OSError, *ours)) else None
    )


def _missing(error: ImportError) -> str | None:
    package = (error.name or "").partition(".")[0]
    if package in EXTRAS:
        extra = EXTRAS[package]
        return f"This needs {package} (extra {extra!r}): pip install 'bo_stream[{extra}]'"
    return str(error) if "bo_stream[" in str(error) else None
