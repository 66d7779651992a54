"""Campaigns that are interrupted: no cell is lost, and each keeps its own reading."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from bo_stream.simulation import PoolLoop
from problems import load_malaria
from tests.bo_stream.simulation.interruptions import (
    Line,
    campaign,
    same,
)


@pytest.fixture(scope="module")
def cells() -> Any:
    return load_malaria(cells=150)


@pytest.fixture(scope="module")
def surveyed(cells: Any) -> PoolLoop:
    """An undisturbed campaign in which readings are clipped."""
    run = campaign(cells)
    assert run.run()["clipped"].sum() > 0
    return run


def consistent(run: PoolLoop, folder: Path) -> None:
    """Cells with their own readings, none of them lost, on disk too."""
    X, Y, _ = run.observations()
    assert len(X) == len(Y) == len(run.readings) == len(run.queried)
    assert torch.equal(X, run.cells.X[run.queried])
    assert len(run.queried.unique()) == len(run.queried)
    every = torch.cat([run.split.initial, run.queried, run.pool, run.split.test]).unique()
    assert torch.equal(every, torch.arange(len(run.cells.X)))
    assert not bool(torch.isin(run.queried, run.pool).any())
    run.save(folder / "run.csv")
    about = json.loads((folder / "run.json").read_text())
    assert len(about["queried"]) == len(about["readings"]) == len(Y)


def ends_like(run: PoolLoop, surveyed: PoolLoop, folder: Path) -> None:
    consistent(run, folder)
    same(run, surveyed.table())
    consistent(run, folder)
    assert torch.equal(run.queried, surveyed.queried)
    assert torch.equal(run.readings, surveyed.readings)
    assert run.model is not None and run.model.num_observed == len(run.queried)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "method", ["predictive_score", "observe", "restandardise", "fit", "process"]
)
def test_a_campaign_interrupted_in_its_surrogate_ends_as_one_that_was_not(
    method: str, after: bool, cells: Any, surveyed: PoolLoop, tmp_path: Path
) -> None:
    for call in (1, 2):
        run = campaign(cells, method, call, after)
        with pytest.raises(KeyboardInterrupt):
            run.run()
        ends_like(run, surveyed, tmp_path)


@pytest.fixture(scope="module")
def lines(cells: Any) -> int:
    """How many lines an undisturbed run has."""
    tracer = Line()
    assert not tracer.run(campaign(cells).run)
    assert tracer.count > 100
    return tracer.count


@pytest.mark.parametrize("seed", range(10))
def test_a_campaign_interrupted_at_any_line_ends_as_one_that_was_not(
    seed: int, cells: Any, surveyed: PoolLoop, lines: int, tmp_path: Path
) -> None:
    run = campaign(cells)
    assert Line(random.Random(seed).randint(1, lines)).run(run.run)
    ends_like(run, surveyed, tmp_path)
