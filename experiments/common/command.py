"""What all commands share: options, configurations, folders of results, errors of one line."""

import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

EXTRAS = "cli,plots,workers"
"""Of bo_stream: what studies need."""

try:
    import typer

    from experiments.common.progress import say
except ImportError as error:
    sys.exit(f'{error}. Studies need: pip install "bo_stream[{EXTRAS}]"')

CONFIGS = Path(__file__).parents[1] / "configs"
TAKES = "takes"
"""Key by which a configuration may say how long all of it takes, in words."""

BadParameter = typer.BadParameter
option, argument = typer.Option, typer.Argument

Config = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="TOML with the keys of the default.")
]
Out = Annotated[
    Path | None, typer.Option(help="Folder for tables and pictures; one under results/ if none.")
]
Smoke = Annotated[
    bool, typer.Option(help="Seconds on little, made-up data; results go to a folder of their own.")
]
Retry = Annotated[bool, typer.Option("--retry", help="Run again what failed.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run all again, whatever is there.")]
Workers = Annotated[
    int | None,
    typer.Option(min=0, help="Processes, one torch thread each; 0: this one. 2, or 0 in smoke."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="Only runs whose names match this pattern, as levy*_0; may repeat."),
]
Minutes = Annotated[
    float | None, typer.Option(help="Begin no run later than this; the rest is for another time.")
]
Choice = Annotated[list[str] | None, typer.Option(help="Only these; may repeat.")]


def parsed(config: Path) -> dict[str, Any]:
    """The contents of a TOML file; one that is malformed ends the command in one line."""
    try:
        return tomllib.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadParameter(f"{config} is no TOML: {error}.") from error


def read(config: Path, default: Path, optional: Iterable[str] = ()) -> dict[str, Any]:
    """A configuration, which must have the keys of the default one but for optional ones."""
    may = {TAKES, *optional}
    c, known = parsed(config), parsed(default).keys() - may
    if known - c.keys():
        raise BadParameter(f"{config} has no {', '.join(sorted(known - c.keys()))}; see {default}.")
    refuse_unknown(c, known | may, str(config))
    return c


def refuse_unknown(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """End the command in one line if there is an unknown key."""
    known = set(known)
    if unknown := sorted(set(given) - known):
        names = ", ".join(sorted(known))
        raise BadParameter(f"{what} has {', '.join(unknown)}; known are {names}.")


def begin(default: str | Path, out: Path | None, smoke: bool, takes: str | None = None) -> Path:
    """Say how long a command takes, before it starts, and where results go; returns that folder.

    It is the default one if ``out`` is None; that of a smoke run lies beside it.
    """
    path = out or Path(f"{default}_smoke" if smoke else default)
    path.mkdir(parents=True, exist_ok=True)
    known = f"Takes {takes}." if takes else "How long this takes depends on the configuration."
    say(f"{'A smoke run takes seconds.' if smoke else known} Results go to {path}/.")
    return path


# -- programs ------------------------------------------------------------------------------------


def command(main: Callable[..., None], help: str | None = None) -> typer.Typer:
    """A program of one command; its help is the docstring of its module if none is given."""
    return commands(None, main, help=help or sys.modules[main.__module__].__doc__)


def commands(
    about: str | None, *mains: Callable[..., None], help: str | None = None
) -> typer.Typer:
    """A program of several commands, each called by its function's name."""
    several = len(mains) > 1
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        no_args_is_help=several,
        help=about,
    )
    for main in mains:
        app.command(help=help)(main)
    return app


def configured(
    main: Callable[[dict[str, Any], Path], None], default: Path, smaller: Mapping[str, Any]
) -> Callable[..., None]:
    """A command that reads a TOML file and does one piece of work on one thread.

    ``main`` has the configuration, in which ``smaller`` replaces keys in a smoke run, and the
    folder of the results; ``default`` is the configuration where none is named.
    """

    def run(config: Config = default, out: Out = None, smoke: Smoke = False) -> None:
        import torch

        c = read(config, default) | (dict(smaller) if smoke else {})
        torch.set_num_threads(1)
        main(c, begin(c["output"], out, smoke, c.get(TAKES)))

    run.__name__, run.__doc__, run.__module__ = main.__name__, main.__doc__, main.__module__
    return run


def start(app: typer.Typer) -> None:
    """Run a program; data or a package that is missing ends it in one line."""
    try:
        app()
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "matplotlib", "loky"):
            raise
        sys.exit(f'{error}. Studies need: pip install "bo_stream[{EXTRAS}]"')
    except FileNotFoundError as error:
        from problems.errors import DataNotFound

        if not isinstance(error, DataNotFound):
            raise
        sys.exit(f"{error} Or run with --smoke, on made-up data.")
