"""Runs that are interrupted: nothing that was paid for is lost, repeated, or paired wrongly."""

import json
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
import pytest
import torch
from botorch.acquisition.analytic import UpperConfidenceBound
from torch import Tensor

import bo_stream.campaign
from acquisitions import PoolPolicy, build
from bo_stream import surrogate
from bo_stream.campaign import BOLoop, Campaign, CampaignConfig, FitPolicy, LoopConfig
from bo_stream.errors import InputError, ShapeError, StateError
from problems import load_malaria

FOLDER = str(Path(bo_stream.campaign.__file__).parent)
SETTINGS = LoopConfig(
    steps=2,
    q=1,
    num_initial=5,
    num_restarts=2,
    raw_samples=16,
    recommend_every=2,
    fit=FitPolicy(max_evals=2, first_max_evals=5),
)
OPTIONS: dict[str, dict[str, int]] = {
    "wiski": {"grid_size": 12},
    "exact": {},
    "online_sgpr": {},
    "online_svgp": {"num_inducing": 5, "initial_steps": 5},
    "cagp": {},
}


class Bowl:
    """Noisy, its maximum at 0.3; counts what it is asked; may have a part without values."""

    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    optimal_value = 2.0

    def __init__(self, nothing_below: float = -1.0) -> None:
        self.nothing_below = nothing_below
        self.truth_is_known = self.reachable = True
        self.asked: list[Tensor] = []
        self.answered: list[Tensor] = []

    def evaluate_true(self, X: Tensor) -> Tensor:
        if not self.truth_is_known:
            raise RuntimeError("no truth today")
        return 2.0 - 10.0 * (X - 0.3).square()

    def __call__(self, X: Tensor) -> Tensor:
        if not self.reachable:
            raise ConnectionError
        Y = 2.0 - 10.0 * (X - 0.3).square() + 0.1 * torch.randn(len(X), 1, dtype=torch.float64)
        self.asked.append(X)
        self.answered.append(Y.masked_fill(self.nothing_below > X, torch.nan))
        return self.answered[-1]


def ucb(model: Any, **kw: object) -> UpperConfidenceBound:
    return UpperConfidenceBound(model, beta=4.0)


class Once:
    """A method that is interrupted in one of its calls, before or after it does its work."""

    def __init__(self, method: Callable[..., Any], call: int, after: bool) -> None:
        self.method, self.left, self.after = method, call, after

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise KeyboardInterrupt
        result = self.method(*args, **kwargs)
        if self.left == 0:
            raise KeyboardInterrupt
        return result


class Line:
    """A trace function that counts the lines run in one folder and interrupts at one of them."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.count = at, 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self.line if frame.f_code.co_filename.startswith(FOLDER) else None

    def line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt
        return self.line

    def run(self, work: Callable[[], Any]) -> bool:
        """Whether the work was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            work()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


def untimed(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns=[name for name in table if str(name).endswith("_seconds")])


def same(run: BOLoop | Campaign, undisturbed: pd.DataFrame, **tolerance: Any) -> None:
    options = tolerance or {"check_exact": True}
    pd.testing.assert_frame_equal(untimed(run.run()), untimed(undisturbed), **options)


# -- Bayesian optimisation ------------------------------------------------------------------------


def loop(
    problem: Bowl, family: str = "wiski", method: str = "", call: int = 1, after: bool = False
) -> BOLoop:
    """A loop, a method of whose surrogate may be interrupted at one of its calls."""

    def make(*args: Any, **kwargs: Any) -> Any:
        options = OPTIONS.get(family, {})
        model = surrogate(family, *args, **kwargs, **options)
        if method and hook:
            setattr(model, method, Once(getattr(model, method), hook.pop(), after))
        return model

    hook = [call]
    return BOLoop(problem, make, ucb, SETTINGS)


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    """Of undisturbed loops."""
    return {family: loop(Bowl(), family).run() for family in OPTIONS}


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
    [("log_predictive", 1), ("observe", 1), ("fit", 1), ("fit", 2), ("process", 1), ("process", 2)],
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
    run = loop(problem, "wiski", "observe", 1, after=True)
    run.config = settings
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

    run = loop(problem)
    run.build_acquisition = build
    run.start()
    problem.reachable = False
    with pytest.raises(ConnectionError):
        run.step()
    assert len(run.observations()[1]) == 5
    problem.reachable = True
    same(run, tables["wiski"])
    assert len(builds) == SETTINGS.steps


@pytest.mark.parametrize("seed", range(30))
def test_a_loop_interrupted_at_any_line_ends_as_one_that_was_not(
    seed: int, tables: dict[str, pd.DataFrame], lines: dict[str, int]
) -> None:
    problem = Bowl()
    run = loop(problem)
    at = random.Random(seed).randint(1, lines["loop"])
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
    assert len(run.observations()[1]) == 5 and run.model.num_observed == 5
    run.preload(X, X)
    assert len(run.observations()[1]) == 9 and run.step()["n"] == 10


# -- evaluations without a value ------------------------------------------------------------------


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
        with pytest.raises(InputError, match=f"0 among {5 * attempt}"):
            run.run()
    assert len(torch.cat(problem.asked).unique()) == 10
    X = torch.tensor([[0.1], [0.2], [0.4]], dtype=torch.float64)
    row = run.start(X, X.exp())
    assert row["n"] == 3 and len(problem.asked) == 2
    assert run.observations()[1].equal(X.exp())


def test_what_cannot_be_paired_with_its_points_is_evaluated_again(
    tables: dict[str, pd.DataFrame],
) -> None:
    problem = Bowl()
    run = loop(problem)
    run.start()
    run.problem = Flat(problem)
    with pytest.raises(ShapeError, match="one row for each point"):
        run.step()
    assert len(run.observations()[1]) == 5
    run.problem = problem
    same(run, tables["wiski"])


class Flat(Bowl):
    """Returns values without their last dimension."""

    def __init__(self, problem: Bowl) -> None:
        self.problem = problem

    def __call__(self, X: Tensor) -> Tensor:
        return self.problem(X).squeeze(-1)


# -- active learning ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cells() -> Any:
    return load_malaria(cells=150)


def campaign(
    cells: Any, method: str = "", call: int = 1, after: bool = False, **changes: Any
) -> Campaign:
    """A campaign, a method of whose surrogate may be interrupted at one of its calls."""

    def make(*args: Any, **kwargs: Any) -> Any:
        model = surrogate("wiski", *args, **kwargs, grid_size=8)
        if method and hook:
            setattr(model, method, Once(getattr(model, method), hook.pop(), after))
        return model

    hook = [call]
    settings = {"steps": 2, "q": 3, "num_test": 20, "clip_from": 10, "clip": 1.0}
    fit = FitPolicy(max_evals=2, first_max_evals=5)
    config = CampaignConfig(**{**settings, "fit": fit, **changes})
    return Campaign(cells, make, PoolPolicy("random"), config)


@pytest.fixture(scope="module")
def surveyed(cells: Any) -> Campaign:
    """An undisturbed campaign in which readings are clipped."""
    run = campaign(cells)
    assert run.run()["clipped"].sum() > 0
    return run


def consistent(run: Campaign, folder: Path) -> None:
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


def ends_like(run: Campaign, surveyed: Campaign, folder: Path) -> None:
    consistent(run, folder)
    same(run, surveyed.table())
    consistent(run, folder)
    assert torch.equal(run.queried, surveyed.queried)
    assert torch.equal(run.readings, surveyed.readings)
    assert run.model is not None and run.model.num_observed == len(run.queried)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", ["log_predictive", "observe", "restandardise", "fit", "process"])
def test_a_campaign_interrupted_in_its_surrogate_ends_as_one_that_was_not(
    method: str, after: bool, cells: Any, surveyed: Campaign, tmp_path: Path
) -> None:
    for call in (1, 2):
        run = campaign(cells, method, call, after)
        with pytest.raises(KeyboardInterrupt):
            run.run()
        ends_like(run, surveyed, tmp_path)


@pytest.mark.parametrize("seed", range(30))
def test_a_campaign_interrupted_at_any_line_ends_as_one_that_was_not(
    seed: int, cells: Any, surveyed: Campaign, lines: dict[str, int], tmp_path: Path
) -> None:
    run = campaign(cells)
    assert Line(random.Random(seed).randint(1, lines["campaign"])).run(run.run)
    ends_like(run, surveyed, tmp_path)


@pytest.fixture(scope="module")
def lines(cells: Any) -> dict[str, int]:
    """How many lines an undisturbed run has."""
    counted = {}
    for name, run in (("loop", loop(Bowl())), ("campaign", campaign(cells))):
        tracer = Line()
        assert not tracer.run(run.run)
        counted[name] = tracer.count
    assert min(counted.values()) > 100
    return counted


@pytest.mark.parametrize("observation", ["raster", "known noise"])
def test_readings_that_failed_are_booked_and_not_absorbed(
    observation: str, cells: Any, tmp_path: Path
) -> None:
    split = campaign(cells, observation=observation).split
    lost, vague = split.pool[::3], split.pool[1::7]
    gaps = replace(cells, Y=cells.Y.index_fill(0, lost, torch.nan))
    if observation == "known noise":
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
