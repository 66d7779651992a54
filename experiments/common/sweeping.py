"""Programs of studies that are sweeps; what takes long to import is imported as they run."""

from importlib import import_module
from pathlib import Path

from typer import Typer

from experiments.common.command import (
    Config,
    Fresh,
    Minutes,
    Only,
    Out,
    Retry,
    Smoke,
    Workers,
    command,
    read,
)


def sweeping(module: str, default: Path, help: str | None) -> Typer:
    """The program of a study that plans runs from a TOML file and sweeps them.

    ``module`` has ``plan`` and ``report``, as `experiments.common.study.conduct` wants them, and
    may have ``OPTIONAL``, keys that a configuration need not have; ``default`` is the one where
    none is named.
    """

    def main(
        config: Config = default,
        out: Out = None,
        smoke: Smoke = False,
        workers: Workers = None,
        retry: Retry = False,
        fresh: Fresh = False,
        only: Only = None,
        minutes: Minutes = None,
    ) -> None:
        from experiments.common.study import conduct

        own = import_module(module)
        c = read(config, default, getattr(own, "OPTIONAL", ()))
        conduct(own, c, c["output"], out, smoke, workers, retry, fresh, only, minutes)

    return command(main, help)
