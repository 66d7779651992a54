"""Seconds of a step by part, on a clock that only the parts of the step advance."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from acquisitions import build
from bo_stream import ExactGP
from experiments.common.loops import BOLoop, LoopConfig, PoolConfig, PoolLoop
from experiments.common.records import TimedRow
from problems import load_malaria


class Watch:
    """A clock that runs only when it is told to; the processor's runs at half its pace."""

    now = 0.0

    def __call__(self) -> tuple[float, float]:
        return self.now, self.now / 2.0


def slow_surrogate(watch: Watch, *args: Any, **options: Any) -> ExactGP:
    """A surrogate that takes 16 seconds to build, 32 to observe, 64 to fit."""

    class Slow(ExactGP):
        def observe(self, *data: Any, **options: Any) -> Any:
            watch.now += 32.0
            return super().observe(*data, **options)

        def fit(self, *args: Any) -> Any:
            watch.now += 64.0
            return super().fit(*args)

    watch.now += 16.0
    return Slow(*args, **options)


class SlowFunction:
    """A function that takes 8 seconds; its noiseless value takes 1."""

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


def test_all_seconds_of_a_step_of_optimisation_are_in_its_row() -> None:
    watch = Watch()

    def slow_build(*args: Any, **data: Any) -> Any:
        watch.now += 4.0
        return build("qucb", *args, **data)

    config = LoopConfig(2, 1, 3, 0, 1, 8)
    make = partial(slow_surrogate, watch)
    table = BOLoop(SlowFunction(watch), make, slow_build, config, clock=watch).run()
    assert table["acquisition_seconds"].tolist() == [0.0, 4.0, 4.0]
    assert table["evaluation_seconds"].tolist() == [8.0] * 3
    assert table["update_seconds"].tolist() == [16.0, 32.0, 32.0]
    assert table["fit_seconds"].tolist() == [64.0] * 3
    assert table["step_seconds"].tolist() == [88.0, 108.0, 108.0]
    assert table["wallclock_seconds"].tolist() == [88.0, 196.0, 304.0]
    assert table["cpu_seconds"].tolist() == [40.0, 50.0, 50.0]  # without evaluation
    assert table["score_seconds"].tolist() == [2.0] * 3  # not part of a step
    assert watch.now == 304.0 + 6.0


def test_all_seconds_of_a_step_over_a_pool_are_in_its_row() -> None:
    watch = Watch()

    def policy(model: Any, test_X: Tensor, pool: Tensor, q: int) -> Tensor:
        watch.now += 4.0
        return torch.arange(q)

    cells, config = load_malaria(cells=100), PoolConfig(steps=2, num_test=20)
    loop = PoolLoop(cells, partial(slow_surrogate, watch), policy, config, clock=watch)
    table = loop.run()
    assert table["acquisition_seconds"].tolist() == [0.0, 4.0, 4.0]
    assert table["update_seconds"].tolist() == [16.0, 32.0, 32.0]
    assert table["fit_seconds"].tolist() == [64.0] * 3
    assert table["wallclock_seconds"].iloc[-1] == watch.now == 280.0


def test_seconds_that_no_other_column_received_are_in_the_rest() -> None:
    watch = Watch()
    row = TimedRow(("part_seconds", "rest_seconds"), watch)
    for _ in range(2):
        with row.rest("rest_seconds"):
            watch.now += 1.0
            with row.timed("part_seconds"):
                watch.now += 2.0
            with row.timed("store_seconds"):  # not a column
                watch.now += 4.0
    assert row == {"part_seconds": 4.0, "rest_seconds": 10.0, "store_seconds": 8.0}
    assert row.processor == {"part_seconds": 2.0, "rest_seconds": 1.0, "store_seconds": 4.0}
    assert row.spent_on(["part_seconds", "rest_seconds", "fit_seconds"]) == 3.0
    with pytest.raises(ZeroDivisionError), row.rest("rest_seconds"):
        watch.now += 1.0
        raise ZeroDivisionError
    assert row["rest_seconds"] == 10.0
