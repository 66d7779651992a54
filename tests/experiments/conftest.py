"""What tests of several studies share: figures that were drawn, and refusals on one line."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from typer import Typer
from typer.testing import CliRunner


@pytest.fixture
def refused() -> Callable[..., str]:
    """What a command prints beside its usage when it refuses arguments, on one line."""

    def refuse(app: Typer, *arguments: Any) -> str:
        result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "1000"})
        assert result.exit_code == 2, result.output
        return " ".join(result.output.replace("│", " ").split())

    return refuse


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Figure]]:
    """Figures that would have been closed after they were written."""
    figures: list[Figure] = []
    monkeypatch.setattr(plt, "close", figures.append)
    yield figures
    monkeypatch.undo()
    for figure in figures:
        plt.close(figure)
