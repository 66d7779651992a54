"""Scores while training; scoring takes none of the budget."""

import math

import pytest
import torch

from experiments.common.data import TableSplit
from experiments.computation_aware.tables import split_of
from experiments.computation_aware.training import Training, judged


def test_scores_of_right_predictions() -> None:
    generator = torch.Generator().manual_seed(0)
    y = 2.0 * torch.randn(20_000, 1, generator=generator, dtype=torch.float64)
    split = TableSplit(y, y, y, y)
    row = judged(lambda X: (torch.zeros(len(X)), torch.full((len(X),), 4.0)), split)
    assert row["nll"] == pytest.approx(0.5 * math.log(2 * math.pi * 4.0) + 0.5, abs=0.02)
    assert row["rmse"] == pytest.approx(2.0, abs=0.03)
    for level in (0.5, 0.95):
        assert row[f"coverage {level}"] == pytest.approx(level, abs=0.01)


def test_scoring_takes_none_of_the_budget() -> None:
    split = split_of("made up", 40, 20, 0)
    training = Training(split, 100.0)

    def slow(X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for _ in range(200):
            torch.randn(100, 100) @ torch.randn(100, 100)
        return torch.zeros(len(X)), torch.ones(len(X))

    before = training.seconds
    for _ in range(5):
        training.note(slow)
    spent = training.seconds - before
    assert 0.0 <= spent < 0.02
    assert [row["seconds"] for row in training.rows] == sorted(
        row["seconds"] for row in training.rows
    )
