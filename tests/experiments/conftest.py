"""What tests of several studies share: a smoke run of campaigns, and refusals on one line."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from typer import Typer
from typer.testing import CliRunner

from experiments.active_learning import __main__ as active_learning
from experiments.common.command import CONFIGS


@pytest.fixture
def refused() -> Callable[..., str]:
    """What a command prints beside its usage when it refuses arguments, on one line."""

    def refuse(app: Typer, *arguments: Any) -> str:
        result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "1000"})
        assert result.exit_code == 2, result.output
        return " ".join(result.output.replace("│", " ").split())

    return refuse


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a smoke run of both policies that the report compares, and what it printed."""
    folder = tmp_path_factory.mktemp("smoke")
    config = CONFIGS / "malaria_senegal.toml"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        arguments = ["--smoke", "--policy", "nipv", "--policy", "random", "--surrogate", "wiski"]
        result = CliRunner().invoke(active_learning.app, [str(config), *arguments])
    assert result.exit_code == 0, result.output
    return folder / "results" / "active_learning" / "senegal_2017_smoke", result.output


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Figure]]:
    """Figures that would have been closed after they were written."""
    figures: list[Figure] = []
    monkeypatch.setattr(plt, "close", figures.append)
    yield figures
    monkeypatch.undo()
    for figure in figures:
        plt.close(figure)
