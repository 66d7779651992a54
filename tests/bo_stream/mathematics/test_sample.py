"""The rows that hyperparameters are learned from."""

import torch
from gpytorch.kernels import RBFKernel

from bo_stream.mathematics.inducing import InducingState, SparsePrior
from bo_stream.mathematics.shapes import Rows


def sample(n, most, parts=1):
    """Numbers of the rows that are kept of n, which come in so many parts."""
    zero = torch.zeros(1, dtype=torch.float64)
    made = InducingState.empty(1, 1e-8, SparsePrior(RBFKernel(), zero + 1.0, zero, zero))
    X = torch.arange(n, dtype=torch.float64).unsqueeze(-1)
    for part in X.split(-(-n // parts)):
        made = made.with_counted(Rows(part, part.mT, torch.ones_like(part.mT)), most)
    return made.sample.y


def test_all_rows_while_there_is_room():
    assert sample(50, 60, 7).tolist() == list(range(50))


def test_the_same_rows_in_any_chunks():
    assert torch.equal(sample(1000, 60), sample(1000, 60, 13))


def test_it_is_spread_evenly_over_the_stream():
    """Also over every part of it: no stretch is more than two rows from its share."""
    y = sample(10_000, 600, 20)
    assert len(y) == 600 and bool((y.diff() > 0).all())
    for start in range(0, 10_000, 500):
        inside = int(((y >= start) & (y < start + 500)).sum())
        assert abs(inside - 30) <= 2, (start, inside)
