"""Commands that evaluate an objective: `run`, and `resume` after an interruption."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bo_stream.cli.error_handling import INTERRUPTED, print_error
from bo_stream.cli.load_campaign import (
    CampaignName,
    ConfigFile,
    Where,
    create_or_continue,
    is_config,
    load_campaign,
)
from bo_stream.cli.objective import find_objective
from bo_stream.cli.toml_reader import ConfigError

if TYPE_CHECKING:
    from bo_stream.cli.config import CampaignConfig
    from bo_stream.cli.objective import NamedObjective

__all__ = ["resume", "run"]


Seconds = Annotated[
    float | None,
    typer.Option(min=0.0, help="Start no further trial after so many seconds."),
]


def run(config: ConfigFile, seconds: Seconds = None) -> None:
    """Measure with an objective until the budget is used up.

    A campaign that exists already is continued.
    """
    _run(str(config), None, None, None, None, seconds, create=True)


def resume(
    where: Where,
    name: CampaignName = None,
    objective: Annotated[
        str | None, typer.Option(help="file.py:function or module:function.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Number of trials in all, earlier ones included.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of local processes.")] = None,
    seconds: Seconds = None,
) -> None:
    """Continue a campaign that was interrupted.

    Nothing is measured or fitted again. By default objective, budget and workers are those of the
    TOML. For a store, objective and budget have to be given.
    """
    _run(where, name, objective, budget, workers, seconds, create=False)


def _run(
    where: str,
    name: str | None,
    objective: str | None,
    budget: int | None,
    workers: int | None,
    seconds: float | None,
    create: bool,
) -> None:
    from bo_stream.cli.config import EvaluationConfig, read_config

    config = read_config(Path(where)) if create or is_config(where) else None
    named = objective or (config and config.objective)
    total = budget or (config and config.budget)
    if not named or not total:
        what = "objective" if not named else "budget"
        raise ConfigError(
            f"{where}: Expected the {what} of the campaign; got none. "
            f"Add {what} = ... to the TOML, or --{what} to resume."
        )
    how = (config.run if config else EvaluationConfig()).model_dump()
    if workers is not None:
        how.update(workers=workers, q=None)
    if seconds:
        how["seconds"] = seconds
    function = _objective(named, where, config if objective is None else None)

    from bo_stream.cli.progress import RunProgress

    progress = RunProgress(sys.stdout, total, config.optimum if config else None)
    if config and create:
        loaded = create_or_continue(config, [progress])
    else:
        loaded = load_campaign(where, name, [progress])
    total = progress.budget = budget or loaded.campaign.budget or total
    again = ["bo-stream", "resume", where, *([name] if name else [])]
    given = {"objective": objective, "budget": budget, "workers": workers, "seconds": seconds}
    for option, value in given.items():
        if value:
            again += [f"--{option}", str(value)]
    try:
        with progress:
            loaded.campaign.run(function, total, **how)
    except KeyboardInterrupt:
        print_error(
            f"Stopped. All outcomes so far are in {loaded.store}. To continue: {shlex.join(again)}"
        )
        raise typer.Exit(INTERRUPTED) from None


def _objective(name: str, where: str, config: CampaignConfig | None) -> NamedObjective:
    """The objective; errors name the line of the configuration that has its name."""
    if config is None:
        return find_objective(name, Path.cwd())
    try:
        return find_objective(name, Path(where).parent)
    except ConfigError as error:
        raise config.document.error_at(("objective",), str(error)) from error
