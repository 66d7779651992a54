"""The command of a study that plans runs from a TOML file, sweeps them and reports on them.

No torch here, so that ``--help`` need not wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from experiments.common.command import (
    TAKES,
    Config,
    Fresh,
    Out,
    Retry,
    Smoke,
    Typer,
    Workers,
    begin,
    command,
    end,
    swept,
)

__all__ = ["study"]


def study(
    package: str, default: Path, help: str | None, packages: Sequence[str] = ("rich",)
) -> Typer:
    """A program of one command.

    Args:
        package: With a function ``plan`` in its module of that name, from a configuration and
            whether this is a smoke run to runs, and a function ``report`` in its module of that
            name, which gets the configuration, the runs that are done with their tables, and the
            folder of the results.
        default: The configuration where none is named. It names the folder of the results,
            ``output``.
        help: What the command does.
        packages: Optional packages that it needs, besides those of a sweep.
    """

    def main(
        config: Config = default,
        out: Out = None,
        smoke: Smoke = False,
        workers: Workers = None,
        retry: Retry = False,
        fresh: Fresh = False,
    ) -> None:
        from experiments.common.kinds import configured, finished, planned

        c = configured(config, default)
        runs = planned(import_module(f"{package}.plan").plan, c, smoke)
        folder = begin(c["output"], out, smoke, c.get(TAKES), [*packages, "sqlalchemy", "loky"])
        outcomes = swept(runs, folder, smoke, workers, retry, fresh, about={"study": c})
        if tables := finished(runs, outcomes, folder):
            import_module(f"{package}.report").report(c, tables, folder)
        end(outcomes, folder)

    return command(main, help)
