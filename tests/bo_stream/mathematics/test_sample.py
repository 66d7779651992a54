"""The rows that hyperparameters are learned from."""

import torch

from bo_stream.mathematics.rows import Rows
from bo_stream.mathematics.sums import Sample


def sample(n, most, parts=1):
    made = Sample(Rows.empty(1), torch.zeros(0).double())
    X = torch.arange(n, dtype=torch.float64).unsqueeze(-1)
    for part in X.split(-(-n // parts)):
        made = made.joined(Rows(part, part.mT, torch.ones_like(part.mT)), int(part[0]), most)
    return made.rows


def test_all_rows_while_there_is_room():
    assert sample(50, 60, 7).y.tolist() == list(range(50))


def test_the_same_rows_in_any_chunks():
    assert torch.equal(sample(1000, 60).y, sample(1000, 60, 13).y)


def test_it_is_spread_evenly_over_the_stream():
    """Also over every part of it: no stretch is more than two rows from its share."""
    y = sample(10_000, 600, 20).y
    assert len(y) == 600 and bool((y.diff() > 0).all())
    for start in range(0, 10_000, 500):
        inside = int(((y >= start) & (y < start + 500)).sum())
        assert abs(inside - 30) <= 2, (start, inside)
