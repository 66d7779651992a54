"""Commands that evaluate an objective: `run`, and `resume` after an interruption."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bo_stream.cli.arguments import CampaignName, ConfigFile, Where
from bo_stream.cli.config import Run, read_config
from bo_stream.cli.error_handling import STOPPED, complain
from bo_stream.cli.toml_document import ConfigError

__all__ = ["resume", "run"]


def run(config: ConfigFile) -> None:
    """Measure with an objective until the budget is used up.

    A campaign that was begun before goes on from where it is.
    """
    _go(str(config), None, None, None, None, new=True)


def resume(
    where: Where,
    name: CampaignName = None,
    objective: Annotated[
        str | None, typer.Option(help="file.py:function or module:function.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Trials in all, those done before counted.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Local processes.")] = None,
) -> None:
    """Go on with a campaign that was interrupted.

    Nothing is measured or fitted again. With a TOML, objective, budget and workers are those that
    it names unless they are given here. With a store, objective and budget have to be given.
    """
    _go(where, name, objective, budget, workers, new=False)


def _go(
    where: str,
    name: str | None,
    objective: str | None,
    budget: int | None,
    workers: int | None,
    new: bool,
) -> None:
    from bo_stream.cli.load_campaign import begun, found, is_config

    config = read_config(Path(where)) if new or is_config(where) else None
    named = objective or (config and config.objective)
    total = budget or (config and config.budget)
    if not named or not total:
        what = "objective" if not named else "budget"
        raise ConfigError(
            f"{where}: Expected the {what} of the campaign; got none. "
            f"Add {what} = ... to the TOML, or --{what} to resume."
        )
    how = config.run if config else Run(None, None, None)
    if workers is not None:
        how = Run(workers, how.timeout, None)
    function = _found(named, where, config if objective is None else None)

    from bo_stream.cli.progress import Progress

    progress = Progress(sys.stdout, total, config.optimum if config else None)
    opened = begun(config, [progress]) if config and new else found(where, name, [progress])
    again = ["bo-stream", "resume", where, *([name] if name else [])]
    if objective:
        again += ["--objective", objective]
    if budget:
        again += ["--budget", str(budget)]
    if workers:
        again += ["--workers", str(workers)]
    try:
        with progress:
            opened.campaign.run(function, total, q=how.q, workers=how.workers, timeout=how.timeout)
    except KeyboardInterrupt:
        complain(f"Stopped. What was told is in {opened.store}. To go on: {shlex.join(again)}")
        raise typer.Exit(STOPPED) from None


def _found(named: str, where: str, config: Any) -> Any:
    """The objective; one that a configuration names is blamed on its line."""
    from bo_stream.cli.objective import objective

    if config is None:
        return objective(named, Path.cwd())
    try:
        return objective(named, Path(where).parent)
    except ConfigError as error:
        raise config.document.wrong(("objective",), str(error)) from error
