"""Scores along a stream, and the difference between two methods over paired runs."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from bo_stream import ExactGP
from bo_stream.errors import InputError
from bo_stream.scores import ends_in_common, outcome_distribution, paired_bootstrap, prequential

RAW: dict[str, None] = {"input_transform": None, "outcome_transform": None}


def data(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X, (6.0 * X).sin().sum(-1, keepdim=True) + 0.1 * noise


@pytest.mark.parametrize("known", [False, True])
def test_every_batch_is_scored_before_it_is_learned(known: bool) -> None:
    X, Y = data(20)
    noise = [torch.full_like(Y, 0.01)] if known else []
    parts = (X, Y, *noise)
    model = ExactGP(*(part[:5] for part in parts), **RAW)
    rows = list(prequential(model, zip(*(part[5:].split(4) for part in parts), strict=True)))
    losses, squares = [], []
    for k, row in zip(range(5, 20, 4), rows, strict=True):
        before = ExactGP(*(part[:k] for part in parts), **RAW)
        batch = slice(k, k + 4)
        loss = -float(before.log_predictive(*(part[batch] for part in parts)))
        squares += (before.posterior(X[batch]).mean - Y[batch]).square().flatten().tolist()
        losses.append(loss)
        assert row.count == min(k + 4, 20) - 5
        assert row.log_density == pytest.approx(-loss, rel=1e-6)
        assert row.mean_loss == pytest.approx(sum(losses) / row.count, rel=1e-6)
        assert row.rmse == pytest.approx(math.sqrt(np.mean(squares)), rel=1e-6)
    assert rows[-1].squared_error == pytest.approx(np.mean(squares[-3:]), rel=1e-6)
    assert model.num_observed == 20


def test_another_way_of_learning_may_be_given() -> None:
    X, Y = data(8)
    model, seen = ExactGP(X[:4], Y[:4], **RAW), []
    rows = prequential(
        model, zip(X[4:].split(2), Y[4:].split(2), strict=True), lambda x, y: seen.append(x)
    )
    assert next(rows).count == 2 and len(seen) == 1 and model.num_observed == 4


def test_the_interval_of_a_difference_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(60):
        shared = 5.0 * generator.normal(size=15)  # what pairing removes
        drawn = paired_bootstrap(shared + 0.3 + 0.1 * generator.normal(size=15), shared)
        assert drawn.low <= drawn.median <= drawn.high and drawn.pairs == 15
        hits += drawn.low <= 0.3 <= drawn.high
    assert 51 <= hits <= 60


def test_the_interval_is_reproducible_and_needs_three_pairs() -> None:
    a, b = [3.0, 4.0, 7.0, 1.0], [1.0, 2.0, 3.0, 1.5]
    assert paired_bootstrap(a, b) == paired_bootstrap(np.array(a), torch.tensor(b))
    two = paired_bootstrap(a[:2], b[:2])
    assert two.median == 2.0 and math.isnan(two.low) and math.isnan(two.high)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1.0, 2.0], [1.0], r"\(2,\) and \(1,\)"),
        ([], [], "at least 1"),
        ([[1.0]], [[1.0]], "flat"),
        ([1.0, math.nan], [1.0, 2.0], "finite"),
    ],
)
def test_what_cannot_be_paired_is_refused(a: list[float], b: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        paired_bootstrap(a, b)


def test_runs_end_where_both_have_been() -> None:
    first = pd.Series(range(40), index=range(40), dtype=float)
    second = pd.Series(1.0, index=range(10, 30))
    assert ends_in_common(first, second) == (28.5, 1.0)  # steps 28 and 29: a tenth of twenty
    assert ends_in_common(first, second, tenth=False) == (29.0, 1.0)
    assert ends_in_common(first, pd.Series(1.0, index=range(50, 60))) is None


def test_a_distribution_stays_what_it_was() -> None:
    X, Y = data(12)
    model = ExactGP(X[:8], Y[:8], **RAW)
    places = X[4:8].clone()
    expected = outcome_distribution(model, places).variance
    found = outcome_distribution(model, places)
    places.copy_(X[8:])
    model.observe(X[8:], Y[8:])
    torch.testing.assert_close(pickle.loads(pickle.dumps(found)).variance, expected)
