"""The course of a training: its scores, and what is outside its account."""

import math

import pytest
import torch

from experiments.common.splits import TableSplit
from experiments.computation_aware_tables.course import Course, judged
from experiments.computation_aware_tables.rows import split_of


def test_scores_of_right_predictions() -> None:
    generator = torch.Generator().manual_seed(0)
    y = 2.0 * torch.randn(20_000, 1, generator=generator, dtype=torch.float64)
    split = TableSplit(y, y, y, y)
    row = judged(lambda X: (torch.zeros(len(X)), torch.full((len(X),), 4.0)), split)
    assert row["nll"] == pytest.approx(0.5 * math.log(2 * math.pi * 4.0) + 0.5, abs=0.02)
    assert row["rmse"] == pytest.approx(2.0, abs=0.03)
    for level in (0.5, 0.95):
        assert row[f"coverage {level}"] == pytest.approx(level, abs=0.01)


def test_scoring_is_outside_the_account() -> None:
    split = split_of("cohort", 40, 20, 0)
    course = Course(split, 100.0)

    def slow(X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for _ in range(200):
            torch.randn(100, 100) @ torch.randn(100, 100)
        return torch.zeros(len(X)), torch.ones(len(X))

    before = course.seconds
    for _ in range(5):
        course.note(slow)
    spent = course.seconds - before
    assert 0.0 <= spent < 0.02
    assert [row["seconds"] for row in course.rows] == sorted(row["seconds"] for row in course.rows)
