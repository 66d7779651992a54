"""What all commands share: options, configurations, folders of results, errors of one line.

No torch here, so that ``--help`` need not wait for it, and the only import of typer in the studies,
so that its absence is said in one line.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from experiments.common.extras import missing
from experiments.common.progress import say

if TYPE_CHECKING:
    from experiments.common.sweep import Outcome, Redo, Run

try:
    import typer
except ImportError as error:
    line = missing(error)
    if line is None:
        raise
    sys.exit(line)

__all__ = [
    "CONFIGS",
    "TAKES",
    "BadParameter",
    "Choice",
    "Config",
    "Out",
    "Fresh",
    "Retry",
    "Smoke",
    "Typer",
    "Workers",
    "argument",
    "begin",
    "command",
    "commands",
    "done",
    "end",
    "folder",
    "need",
    "option",
    "parsed",
    "read",
    "selected",
    "start",
    "swept",
]

CONFIGS = Path(__file__).parents[1] / "configs"
TAKES = "takes"
"""Key by which a configuration may say how long all of it takes, in words."""

Typer = typer.Typer
BadParameter, option, argument = typer.BadParameter, typer.Option, typer.Argument

Config = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="TOML with the keys of the default.")
]
Out = Annotated[
    Path | None, typer.Option(help="Folder for tables and pictures; one under results/ if none.")
]
Smoke = Annotated[
    bool, typer.Option(help="Seconds on little, made-up data; results go to a folder of their own.")
]
Retry = Annotated[
    bool, typer.Option("--retry", help="Run again what failed, or was left by another machine.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run all again, whatever is there.")]
Workers = Annotated[
    int | None,
    typer.Option(min=0, help="Processes, one torch thread each; 0: this one. 2, or 0 in smoke."),
]
R = TypeVar("R", bound="Run")
Choice = Annotated[list[str] | None, typer.Option(help="Only these; may repeat.")]


def parsed(config: Path) -> dict[str, Any]:
    """The contents of a TOML file; one that is malformed ends the command in one line."""
    try:
        return tomllib.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadParameter(f"{config} is no TOML: {error}.") from error


def read(config: Path, default: Path) -> dict[str, Any]:
    """A configuration, which must have the keys of the default one (but for ``takes``)."""
    c = parsed(config)
    missing_keys = ", ".join(key for key in parsed(default) if key not in c and key != TAKES)
    if missing_keys:
        raise BadParameter(f"{config} has no {missing_keys}; see {default}.")
    return c


def selected(names: list[str] | None, known: Iterable[str], option: str) -> list[str]:
    """Which of the known are asked for by an option: all, if it was not given."""
    known = list(known)
    for name in names or []:
        if name not in known:
            raise BadParameter(f"no {name}; there are {', '.join(known)}.", param_hint=option)
    return [name for name in known if not names or name in names]


def folder(default: str | Path, out: Path | None, smoke: bool) -> Path:
    """Where results go, made; by default, those of a smoke run lie beside the real ones."""
    path = out or Path(f"{default}_smoke" if smoke else default)
    path.mkdir(parents=True, exist_ok=True)
    return path


def need(*packages: str) -> None:
    """Miss optional packages now rather than when a command wants to draw, hours later."""
    for package in packages:
        import_module(package)


def begin(
    default: str | Path,
    out: Path | None,
    smoke: bool,
    takes: str | None = None,
    packages: Iterable[str] = ("rich", "matplotlib"),
) -> Path:
    """Say how long a command takes, before it starts, and where results go; returns that folder.

    Args:
        default: Folder of results where none is named.
        out: The one named.
        smoke: Whether this is a smoke run.
        takes: How long it takes otherwise, in words, if that is known.
        packages: Optional packages that it needs.
    """
    need(*packages)
    from bo_stream.campaign.evaluation.compiled_extensions import (
        prepare_extensions,  # here: it brings torch along
    )

    prepare_extensions()
    path = folder(default, out, smoke)
    known = f"Takes {takes}." if takes else "How long this takes depends on the configuration."
    say(f"{'A smoke run takes seconds.' if smoke else known} Results go to {path}/.")
    return path


def swept(
    runs: Sequence[Run],
    out: Path,
    smoke: bool,
    workers: int | None = None,
    retry: bool = False,
    fresh: bool = False,
    **more: Any,
) -> list[Outcome]:
    """Sweep the runs of a study as its options say; see `experiments.common.sweep.sweep`.

    A smoke run ignores results from before.

    Raises:
        BadParameter: for a folder with results of other configurations.
    """
    from bo_stream.errors import BoStreamError
    from experiments.common.sweep import sweep

    redo: Redo = "all" if fresh or smoke else "failed" if retry else "nothing"
    number = workers if workers is not None else 0 if smoke else 2
    try:
        return sweep(runs, out, workers=number, redo=redo, **more)
    except BoStreamError as error:
        raise BadParameter(str(error)) from error


def done(runs: Iterable[R], outcomes: Iterable[Outcome]) -> list[R]:
    """The runs that did not fail."""
    stems = {outcome.stem for outcome in outcomes if not outcome.failed}
    return [run for run in runs if run.stem in stems]


def end(outcomes: Iterable[Outcome], out: Path) -> None:
    """Name the runs that failed; with any, the command ends with exit code 1."""
    every = list(outcomes)
    failed = [outcome for outcome in every if outcome.failed]
    for outcome in failed:
        say(f"{outcome.stem} failed: {outcome.reason}; see {out / outcome.stem}.error.txt")
    if failed:
        say(f"{len(failed)} of {len(every)} runs failed; --retry runs them again.")
        raise typer.Exit(1)


def command(main: Callable[..., None], help: str | None = None) -> Typer:
    """A program of one command.

    Args:
        main: What it does.
        help: Its help; the docstring of its module if None.
    """
    app = _program()
    app.command(help=help or sys.modules[main.__module__].__doc__)(main)
    return app


def commands(help: str | None, *mains: Callable[..., None]) -> Typer:
    """A program of several commands, each called by its function's name."""
    app = _program(no_args_is_help=True, help=help)
    for main in mains:
        app.command()(main)
    return app


def start(app: Typer) -> None:
    """Run a program; data or an extra that is missing ends it in one line."""
    try:
        app()
    except ImportError as error:
        line = missing(error)
        if line is None:
            raise
        sys.exit(line)
    except FileNotFoundError as error:
        from problems.errors import DataNotFound

        if not isinstance(error, DataNotFound):
            raise
        sys.exit(f"{error} Or run with --smoke, on made-up data.")


def _program(**settings: Any) -> Typer:
    return Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        **settings,
    )
