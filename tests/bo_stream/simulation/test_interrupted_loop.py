"""Loops that are interrupted: nothing that was paid for is lost, repeated, or paired wrongly."""

import random
import time
from functools import partial
from typing import Any

import pandas as pd
import pytest
import torch
from botorch.acquisition.analytic import UpperConfidenceBound
from torch import Tensor

from bo_stream import surrogate
from bo_stream.errors import DtypeError, ShapeError, StateError
from bo_stream.simulation import BOLoop, FitPolicy, LoopConfig
from tests.bo_stream.simulation.interruptions import (
    OPTIONS,
    SETTINGS,
    Bowl,
    Line,
    loop,
    same,
    ucb,
)


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    """Of undisturbed loops."""
    return {family: loop(Bowl(), family).run() for family in OPTIONS}


@pytest.fixture(scope="module")
def lines() -> int:
    """How many lines an undisturbed run has."""
    tracer = Line()
    assert not tracer.run(loop(Bowl()).run)
    assert tracer.count > 100
    return tracer.count


def interrupted_then_same(run: BOLoop, problem: Bowl, expected: pd.DataFrame, **tol: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        run.run()
    X, Y = run.observations()
    assert torch.equal(X, torch.cat(problem.asked))  # all that was paid for is in the books
    assert torch.equal(Y, torch.cat(problem.answered))
    same(run, expected, **tol)
    assert len(problem.asked) == SETTINGS.steps + 1  # and nothing was paid for twice
    assert run.model is not None and run.model.num_observed == len(torch.cat(problem.asked))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("predictive_score", 1),
        ("observe", 1),
        ("fit", 1),
        ("fit", 2),
        ("process", 1),
        ("process", 2),
    ],
)
def test_a_loop_interrupted_in_its_surrogate_ends_as_one_that_was_not(
    method: str, call: int, after: bool, tables: dict[str, pd.DataFrame]
) -> None:
    problem = Bowl()
    run = loop(problem, "wiski", method, call, after)
    interrupted_then_same(run, problem, tables["wiski"])


@pytest.mark.parametrize("family", [f for f in OPTIONS if f != "wiski"])
def test_so_do_loops_of_every_family(family: str, tables: dict[str, pd.DataFrame]) -> None:
    problem = Bowl()
    run = loop(problem, family, "fit", 2, after=True)
    interrupted_then_same(run, problem, tables[family])


def test_a_step_without_a_fit_ends_the_same_too() -> None:
    settings = LoopConfig(**{**vars(SETTINGS), "fit": FitPolicy(then_every=0, first_max_evals=5)})
    undisturbed = BOLoop(Bowl(), partial(surrogate, "wiski", grid_size=12), ucb, settings).run()
    problem = Bowl()
    run = loop(problem, "wiski", "observe", 1, after=True, settings=settings)
    interrupted_then_same(run, problem, undisturbed, rtol=1e-5)  # its posterior was made anew


def test_a_step_whose_regret_cannot_be_had_is_finished_later(
    tables: dict[str, pd.DataFrame],
) -> None:
    problem = Bowl()
    run = loop(problem)
    run.start()
    problem.truth_is_known = False
    for _ in range(2):
        with pytest.raises(RuntimeError, match="truth"):
            run.step()
    assert len(problem.asked) == 2 and len(run.rows) == 1
    problem.truth_is_known = True
    same(run, tables["wiski"])


def test_what_is_interrupted_before_it_was_evaluated_is_not_asked_anew(
    tables: dict[str, pd.DataFrame],
) -> None:
    problem, builds = Bowl(), []

    def build(model: Any, **kw: object) -> UpperConfidenceBound:
        builds.append(1)
        return ucb(model)

    run = BOLoop(problem, partial(surrogate, "wiski", grid_size=12), build, SETTINGS)
    run.start()
    problem.reachable = False
    with pytest.raises(ConnectionError):
        run.step()
    assert len(run.observations()[1]) == 5
    problem.reachable = True
    same(run, tables["wiski"])
    assert len(builds) == SETTINGS.steps


@pytest.mark.parametrize("seed", range(10))
def test_a_loop_interrupted_at_any_line_ends_as_one_that_was_not(
    seed: int, tables: dict[str, pd.DataFrame], lines: int
) -> None:
    problem = Bowl()
    run = loop(problem)
    at = random.Random(seed).randint(1, lines)
    assert Line(at).run(run.run)
    X, Y = run.observations()
    assert torch.equal(X, torch.cat([X[:0], *problem.asked]))
    assert torch.equal(Y, torch.cat([Y[:0], *problem.answered]))
    same(run, tables["wiski"])
    assert len(problem.asked) == SETTINGS.steps + 1
    assert run.model is not None and run.model.num_observed == 7


def test_a_start_that_was_interrupted_is_not_begun_twice(tables: dict[str, pd.DataFrame]) -> None:
    run = loop(Bowl(), method="fit")
    with pytest.raises(KeyboardInterrupt):
        run.start()
    with pytest.raises(StateError, match="go on"):
        run.start(torch.ones(2, 1).double(), torch.ones(2, 1).double())
    assert run.start()["n"] == 5
    with pytest.raises(StateError, match="go on"):
        run.start()


@pytest.mark.parametrize("after", [False, True])
def test_data_are_preloaded_as_a_whole_or_not_at_all(after: bool) -> None:
    X = torch.linspace(0, 1, 4, dtype=torch.float64).unsqueeze(-1)
    run = loop(Bowl(), method="observe", after=after)
    run.start()
    with pytest.raises(KeyboardInterrupt):
        run.preload(X, X)
    assert len(run.observations()[1]) == 9 == run.model.num_observed  # they are in the books
    assert run.step()["n"] == 10


@pytest.mark.parametrize(
    ("spoiled", "error"), [(lambda Y: Y.squeeze(-1), ShapeError), (Tensor.float, DtypeError)]
)
def test_what_cannot_be_paired_with_its_points_is_evaluated_again(
    spoiled: Any, error: Any, tables: dict[str, pd.DataFrame]
) -> None:
    problem = Bowl()
    run = loop(problem)
    run.start()
    problem.spoiled = spoiled
    with pytest.raises(error, match="Return"):
        run.step()
    assert len(run.observations()[1]) == 5
    problem.spoiled = None
    same(run, tables["wiski"])


def test_the_seconds_are_those_of_an_undisturbed_step() -> None:
    run = loop(Bowl(), method="observe", after=True)
    run.start()
    hook = run.model.observe
    run.model.observe = lambda *data: (time.sleep(1.5), hook(*data))  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run.step()
    run.model.observe = hook  # type: ignore[method-assign]
    assert run.step()["update_seconds"] < 1.0
