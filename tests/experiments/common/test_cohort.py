"""The cohort that is made up."""

import torch

from experiments.common.cohort import COLUMNS, cohort


def test_the_cohort_is_shuffled_and_smooth_in_who_and_when() -> None:
    X, Y = cohort(subjects=4, sessions=10)
    assert X.shape == (240, len(COLUMNS)) and Y.shape == (240, 1)
    assert len(X[:12, 0].unique()) > 1
    for subject in range(4):
        rows = X[:, 0] == subject
        day, score = X[rows, 3], Y[rows, 0]
        order = day.argsort()
        slopes = score[order].diff().abs() / day[order].diff().clamp_min(1e-9)
        assert len(X[rows, 1].unique()) == 1 and slopes.max() < 0.3  # points a day
    again, _ = cohort(subjects=4, sessions=10)
    assert torch.equal(X, again)
