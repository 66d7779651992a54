"""A uniform sample of a stream."""

import pytest
import torch

from bo_stream.errors import InputError
from experiments.common.baselines.reservoir import Reservoir


def numbered(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    X = torch.arange(n, dtype=torch.float64).unsqueeze(-1)
    return X, 2.0 * X


def test_while_there_is_room_every_row_is_kept() -> None:
    rows, (X, Y) = Reservoir(10), numbered(10)
    first = X[:4].clone()
    rows.add(first, Y[:4])
    first.zero_()  # copies
    rows.add(X[4:], Y[4:])
    assert torch.equal(rows.X, X) and torch.equal(rows.Y, Y) and rows.seen == 10


def test_every_row_has_the_same_chance() -> None:
    X, Y = numbered(40)
    counts = torch.zeros(40)
    for seed in range(600):
        rows = Reservoir(8, seed)
        for part in (slice(0, 5), slice(5, 30), slice(30, 40)):
            rows.add(X[part], Y[part])
        assert len(rows.X) == 8 and rows.seen == 40 and torch.equal(rows.Y, 2.0 * rows.X)
        counts[rows.X[:, 0].long()] += 1.0
    # each is binomial with mean 120 and deviation 10: four deviations
    assert bool((counts - 120.0).abs().max() < 40.0)
    assert abs(float(counts[:5].mean()) - 120.0) < 18.0  # early rows as well as late ones
    assert abs(float(counts[-5:].mean()) - 120.0) < 18.0


def test_a_minibatch_is_drawn_without_replacement() -> None:
    rows = Reservoir(20)
    rows.add(*numbered(20))
    X, y = rows.minibatch(8)
    assert X.shape == (8, 1) and y.shape == (8,) and len(X.unique()) == 8
    assert len(rows.minibatch(50)[0]) == 20
    assert torch.equal(y, 2.0 * X[:, 0]) and not torch.equal(rows.minibatch(8)[1], y)


def test_a_size_is_checked() -> None:
    with pytest.raises(InputError, match="1 or more"):
        Reservoir(0)
