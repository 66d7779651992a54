"""Seconds of a step, by part: together they are what a clock around the step shows."""

import statistics
import time
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from acquisitions import PoolPolicy, build
from bo_stream import surrogate
from bo_stream.campaign import records
from bo_stream.campaign.records import Row
from bo_stream.simulation.bo_loop import BOLoop, FitPolicy, LoopConfig
from bo_stream.simulation.pool_loop import PoolConfig, PoolLoop
from bo_stream.simulation.run import Run
from bo_stream.surrogates.registry import in_loops
from problems import load_malaria, synthetic

FAMILIES = {
    "wiski": {"grid_size": 8},
    "node_wiski": {},
    "exact": {},
    "cagp": {},
    "online_sgpr": {},
}
BESIDES = ("score_seconds", "recommend_seconds")
STEPS = 7
FIT = FitPolicy(max_evals=3, first_max_evals=3)


def clocked(run: Run) -> float:
    """Seconds of a step by a clock around it, less what judges it, over its ``step_seconds``."""
    run.start()
    ratios = []
    for _ in range(STEPS):
        began = time.perf_counter()
        row = run.step()
        outside = time.perf_counter() - began - sum(row.get(name, 0.0) for name in BESIDES)
        ratios.append(outside / row["step_seconds"])
    return statistics.median(ratios)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_time_of_a_step_of_optimisation_is_in_its_row(family: str) -> None:
    make = partial(surrogate, family, **in_loops(family, FAMILIES[family]))
    config = LoopConfig(STEPS, 1, 5, 0, 1, 8, {"maxiter": 5}, FIT, recommend_every=0)
    loop = BOLoop(synthetic("levy", 2, noise_std=1.0), make, partial(build, "qucb"), config)
    assert clocked(loop) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_time_of_a_step_over_a_pool_is_in_its_row(family: str) -> None:
    make = partial(surrogate, family, **in_loops(family, FAMILIES[family]))
    config = PoolConfig(steps=STEPS, num_test=50, fit=FIT)
    loop = PoolLoop(load_malaria(cells=300), make, PoolPolicy("max_variance"), config)
    assert clocked(loop) == pytest.approx(1.0, abs=0.02)


class Watch:
    """A clock that runs only when it is told to; the processor's goes at half its pace."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        clocks = {"perf_counter": lambda: self.now, "process_time": lambda: self.now / 2.0}
        monkeypatch.setattr(records, "time", SimpleNamespace(**clocks))


class Slow:
    """A function that takes 8 seconds; what it is without noise takes 1."""

    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    optimal_value = 0.0

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def evaluate_true(self, X: Tensor) -> Tensor:
        self.watch.now += 1.0
        return torch.zeros_like(X[:, :1])

    def __call__(self, X: Tensor) -> Tensor:
        self.watch.now += 8.0
        return torch.randn_like(X[:, :1])


def test_judging_is_no_part_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    config = LoopConfig(1, 1, 3, 0, 1, 8)
    problem = Slow(Watch(monkeypatch))
    table = BOLoop(problem, partial(surrogate, "exact"), partial(build, "qucb"), config).run()
    assert table["score_seconds"].tolist() == [2.0, 2.0]
    assert table["step_seconds"].tolist() == table["evaluation_seconds"].tolist() == [8.0, 8.0]
    assert table["cpu_seconds"].tolist() == [0.0, 0.0]


def test_what_no_column_got_is_in_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, row = Watch(monkeypatch), Row(("part_seconds", "rest_seconds"))
    for _ in range(2):
        with row.rest("rest_seconds"):
            watch.now += 1.0
            with row.timed("part_seconds"):
                watch.now += 2.0
            with row.timed("store_seconds"):  # is no column
                watch.now += 4.0
    assert row == {"part_seconds": 4.0, "rest_seconds": 10.0, "store_seconds": 8.0}
    assert row.processor == {"part_seconds": 2.0, "rest_seconds": 1.0, "store_seconds": 4.0}
    assert row.spent_on(["part_seconds", "rest_seconds", "fit_seconds"]) == 3.0
    copied = row.copy()
    with pytest.raises(ZeroDivisionError), copied.rest("rest_seconds"):
        watch.now += 1.0
        raise ZeroDivisionError
    assert copied == row
    with copied.rest("rest_seconds"), copied.timed("part_seconds"):
        watch.now += 1.0
    assert copied["rest_seconds"] == 10.0
    assert copied.processor["part_seconds"] == 2.5 and row.processor["part_seconds"] == 2.0
