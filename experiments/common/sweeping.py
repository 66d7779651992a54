"""The program of a study that sweeps the runs of a configuration."""

from importlib import import_module
from pathlib import Path

import typer

from experiments.common.command import Config, Fresh, Out, Retry, Smoke, Workers, command, read


def sweeping(module: str, default: Path, help: str | None) -> typer.Typer:
    """The program of a study that plans runs from a TOML file and sweeps them.

    ``module``, imported when the program runs, has ``plan`` and ``report``, as
    `experiments.common.study.conduct` wants them, and may have ``OPTIONAL``, keys that a
    configuration need not have; ``default`` is the one where none is named.
    """

    def main(
        config: Config = default,
        out: Out = None,
        smoke: Smoke = False,
        workers: Workers = None,
        retry: Retry = False,
        fresh: Fresh = False,
    ) -> None:
        from experiments.common.study import conduct

        own = import_module(module)
        c = read(config, default, getattr(own, "OPTIONAL", ()))
        conduct(own, c, c["output"], out, smoke, workers, retry, fresh)

    return command(main, help)
