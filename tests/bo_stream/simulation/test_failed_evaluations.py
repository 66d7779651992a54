"""Evaluations that give no value: they are booked, the others absorbed, and the run goes on."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from acquisitions import build
from bo_stream import surrogate
from bo_stream.errors import InputError, StateError
from bo_stream.simulation import BOLoop, LoopConfig
from problems import load_malaria
from tests.bo_stream.simulation.interruptions import (
    SETTINGS,
    Bowl,
    campaign,
    loop,
    ucb,
)


def test_failed_evaluations_are_booked_and_the_others_absorbed() -> None:
    problem = Bowl(nothing_below=0.35)  # its maximum is just outside
    settings = LoopConfig(**{**vars(SETTINGS), "steps": 5, "q": 2, "seed": 1})
    run = BOLoop(problem, partial(surrogate, "exact"), partial(build, "qucb"), settings)
    table = run.run()
    Y = torch.cat(problem.answered)
    failed = [int((~y.isfinite()).sum()) for y in problem.answered]
    assert table["failed"].tolist() == failed
    assert 1 in failed[1:]  # a batch of which one is good
    assert table["n"].tolist() == (torch.cat([y.isfinite() for y in problem.answered]).cumsum(0))[
        torch.tensor([4, 6, 8, 10, 12, 14])
    ].flatten().tolist()  # fmt: skip
    assert run.model is not None and run.model.num_observed == len(run.observations()[1])
    assert float(table["incumbent"].iloc[-1]) == float(Y[Y.isfinite()].max())
    scored = [bool(y.isfinite().any()) for y in problem.answered[1:]]
    assert table["log_predictive"][1:].notna().tolist() == scored


def test_a_point_that_failed_is_not_asked_for_again() -> None:
    """Though the acquisition, which learns nothing from it, would choose it at every step."""
    problem = Bowl(nothing_below=0.35)
    settings = LoopConfig(**{**vars(SETTINGS), "steps": 6})
    BOLoop(problem, partial(surrogate, "wiski", grid_size=12), ucb, settings).run()
    X = torch.cat(problem.asked)[~torch.cat(problem.answered)[:, 0].isfinite()]
    apart = (X - X.T).abs() + torch.eye(len(X))
    assert len(X) > 4 and float(apart.min()) > 1e-3


def test_a_start_without_two_values_goes_on_with_another_design() -> None:
    problem = Bowl(nothing_below=1.0)
    run = loop(problem)
    for attempt in (1, 2):
        with pytest.raises(InputError, match=f"0 of {5 * attempt}"):
            run.run()
    assert len(torch.cat(problem.asked).unique()) == 10
    X = torch.tensor([[0.1], [0.2], [0.4]], dtype=torch.float64)
    row = run.start(X, X.exp())
    assert row["n"] == 3 and len(problem.asked) == 2
    assert run.observations()[1].equal(X.exp())


@pytest.fixture(scope="module")
def cells() -> Any:
    return load_malaria(cells=150)


@pytest.mark.parametrize("observation", ["raster", "known noise"])
def test_readings_that_failed_are_booked_and_not_absorbed(
    observation: str, cells: Any, tmp_path: Path
) -> None:
    split = campaign(cells, observation=observation).split
    lost = split.pool[::3]
    gaps = replace(cells, Y=cells.Y.index_fill(0, lost, torch.nan))
    if observation == "known noise":  # of these cells a reading is as good as none
        vague = split.pool[1::3]
        gaps = replace(gaps, Yvar=cells.Yvar.index_fill(0, vague, torch.inf))
        lost = torch.cat([lost, vague])
    run = campaign(gaps, observation=observation, steps=5)
    table = run.run()
    gone = torch.isin(run.queried, lost)
    assert table["failed"].sum() == int(gone.sum()) > 0
    assert torch.equal(run.readings[:, 0].isfinite(), ~gone)
    X, Y, _ = run.observations()
    assert torch.equal(X, cells.X[run.queried[~gone]]) and bool(Y.isfinite().all())
    assert table["n"].iloc[-1] == len(Y) and table["rmse"].notna().all()
    run.save(tmp_path / "run.csv")
    about = json.loads((tmp_path / "run.json").read_text())
    assert [y is None for y in about["readings"]] == gone.tolist()


def test_a_campaign_needs_two_readings_to_start(cells: Any) -> None:
    run = campaign(
        replace(cells, Y=cells.Y.index_fill(0, campaign(cells).split.initial[1:], torch.inf))
    )
    with pytest.raises(InputError, match="1 of 10"):
        run.run()
    with pytest.raises(StateError, match="start"):
        campaign(cells).step()
