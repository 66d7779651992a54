"""Evaluations without a value are recorded, and the run goes on with the others."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from acquisitions import build
from bo_stream import surrogate
from bo_stream.errors import DtypeError, InputError, ShapeError, StateError
from experiments.common.loops import BOLoop, LoopConfig
from problems import load_malaria
from tests.experiments.loops.small_runs import SETTINGS, Bowl, loop, pool_loop


def test_failed_evaluations_are_recorded_and_the_others_observed() -> None:
    problem = Bowl(nothing_below=0.35)  # its maximum is just outside
    settings = LoopConfig(**{**vars(SETTINGS), "steps": 5, "q": 2, "seed": 1})
    run = BOLoop(problem, partial(surrogate, "exact"), partial(build, "qucb"), settings)
    table = run.run()
    Y = torch.cat(problem.returned)
    failed = [int((~y.isfinite()).sum()) for y in problem.returned]
    assert table["failed"].tolist() == failed
    assert 1 in failed[1:]  # a batch of which one is good
    assert table["n"].tolist() == (torch.cat([y.isfinite() for y in problem.returned]).cumsum(0))[
        torch.tensor([4, 6, 8, 10, 12, 14])
    ].flatten().tolist()  # fmt: skip
    assert run.model is not None and run.model.num_observed == len(run.observations()[1])
    assert float(table["incumbent"].iloc[-1]) == float(Y[Y.isfinite()].max())
    scored = [bool(y.isfinite().any()) for y in problem.returned[1:]]
    assert table["log_predictive"][1:].notna().tolist() == scored


def test_a_point_that_failed_is_not_asked_for_again() -> None:
    """Though the acquisition function, which learns nothing from it, prefers it at every step."""
    problem = Bowl(nothing_below=0.35)
    loop(problem, LoopConfig(**{**vars(SETTINGS), "steps": 6})).run()
    X = torch.cat(problem.asked)[~torch.cat(problem.returned)[:, 0].isfinite()]
    apart = (X - X.T).abs() + torch.eye(len(X))
    assert len(X) > 4 and float(apart.min()) > 1e-3


def test_a_start_without_two_values_is_refused() -> None:
    with pytest.raises(InputError, match="0 of 5"):
        loop(Bowl(nothing_below=1.0)).run()


class Faulty(Bowl):
    """Returns its values in another form from the second batch on."""

    def __init__(self, form: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.form = form

    def __call__(self, X: Tensor) -> Any:
        Y = super().__call__(X)
        return Y if len(self.asked) == 1 else self.form(Y)


@pytest.mark.parametrize(
    ("form", "error"), [(lambda Y: Y.squeeze(-1), ShapeError), (Tensor.float, DtypeError)]
)
def test_values_that_do_not_fit_their_points_are_refused(form: Any, error: Any) -> None:
    run = loop(Faulty(form))
    run.start()
    with pytest.raises(error, match="Return"):
        run.step()


def test_a_run_that_was_interrupted_inside_a_step_does_not_continue() -> None:
    def interrupt(Y: Tensor) -> Any:
        raise KeyboardInterrupt

    run = loop(Faulty(interrupt))
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert len(run.rows) == 1
    with pytest.raises(StateError, match="run it from the start"):
        run.run()


@pytest.fixture(scope="module")
def cells() -> Any:
    return load_malaria(cells=150)


@pytest.mark.parametrize("observation", ["raster", "known noise"])
def test_readings_that_failed_are_recorded_and_not_observed(
    observation: str, cells: Any, tmp_path: Path
) -> None:
    split = pool_loop(cells, observation=observation).split
    lost = split.pool[::3]
    gaps = replace(cells, Y=cells.Y.index_fill(0, lost, torch.nan))
    if observation == "known noise":  # a reading with infinite variance is as good as none
        vague = split.pool[1::3]
        gaps = replace(gaps, Yvar=cells.Yvar.index_fill(0, vague, torch.inf))
        lost = torch.cat([lost, vague])
    run = pool_loop(gaps, observation=observation, steps=5)
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


def test_a_pool_run_needs_two_readings_to_start(cells: Any) -> None:
    initial = pool_loop(cells).split.initial
    run = pool_loop(replace(cells, Y=cells.Y.index_fill(0, initial[1:], torch.inf)))
    with pytest.raises(InputError, match="1 of 10"):
        run.run()
    with pytest.raises(StateError, match="start"):
        pool_loop(cells).step()
