"""The program `bo-stream`: its commands by name."""

from __future__ import annotations

import typer

from bo_stream.commands.ending import in_one_line
from bo_stream.commands.init import init
from bo_stream.commands.looking import status, trials
from bo_stream.commands.map import map_places
from bo_stream.commands.measuring import suggest, tell
from bo_stream.commands.plot import plot
from bo_stream.commands.running import resume, run

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Campaigns of measurements: where to measure next, from the outcomes so far.",
)

for _name, _command in {
    "init": init,
    "run": run,
    "resume": resume,
    "status": status,
    "trials": trials,
    "plot": plot,
    "suggest": suggest,
    "tell": tell,
    "map": map_places,
}.items():
    app.command(_name)(in_one_line(_command))
