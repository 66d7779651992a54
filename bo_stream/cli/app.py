"""The program `bo-stream`: its commands by name."""

from __future__ import annotations

from collections.abc import Callable

import typer
from typer.main import get_command

from bo_stream.cli.ask_tell import suggest, tell
from bo_stream.cli.error_handling import in_one_line
from bo_stream.cli.init import init
from bo_stream.cli.map import map_places
from bo_stream.cli.plot import plot
from bo_stream.cli.report import report
from bo_stream.cli.run import resume, run
from bo_stream.cli.status import status, trials

__all__ = ["app", "start"]

NAME = "bo-stream"

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Campaigns of measurements: where to measure next, from the outcomes so far.",
)

_COMMANDS: dict[str, Callable[..., None]] = {
    "init": init,
    "run": run,
    "resume": resume,
    "status": status,
    "trials": trials,
    "plot": plot,
    "suggest": suggest,
    "tell": tell,
    "map": map_places,
    "report": report,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(in_one_line(_command))


def start(args: list[str]) -> None:
    """Run the program.

    A command that is named first is started by itself: on its way through the program typer would
    import pydantic, which takes longer than all else that its help needs.

    Args:
        args: What follows the program's name.
    """
    program = get_command(app)
    if args and args[0] in _COMMANDS:
        command = program.commands[args[0]]  # type: ignore[attr-defined]
        command(args[1:], prog_name=f"{NAME} {args[0]}")
    program(args, prog_name=NAME)
