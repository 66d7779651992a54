"""The toys of VIPS and OIPS: their data, and the rivals that know all inputs."""

import numpy as np
import pytest
import torch

from experiments.growth.toys import EXACT, SMALLER, compared, drawn, known, wave


def test_streams_of_the_vips_papers_program() -> None:
    rng = np.random.RandomState(42)
    x = 12.0 * rng.rand(1000, 1)
    y = np.sin(2.0 * x) + np.cos(5.0 * x) + rng.randn(1000, 1)
    split, order = drawn("four stages", 42), np.argsort(x[:, 0])
    assert np.allclose(split.X, x[order]) and np.allclose(split.Y, y[order])
    growing, late = drawn("growing domain", 0), drawn("late outliers", 0)
    assert (growing.X.diff(dim=0) >= 0.0).all() and len(drawn("uniform domain", 0).X) == 150
    assert late.X[:1000].min() >= 4.5 and late.X[1000:].min() < 4.5 < 7.0 < late.X[1000:].max()
    assert torch.allclose(growing.Y, torch.from_numpy(wave(growing.X.numpy())), atol=1.0)


def test_rivals_spread_over_the_range_or_follow_the_density() -> None:
    X = 10.0 * torch.rand(400, 1, generator=torch.Generator().manual_seed(0)).double() ** 3
    grid, means = known("grid", X.numpy(), 9), known("k-means", X.numpy(), 9)
    assert grid.shape == means.shape == (9, 1)
    assert torch.equal(grid[[0, -1], 0], torch.stack([X.min(), X.max()]))
    assert (means < 2.0).sum() > (grid < 2.0).sum()


def test_rivals_have_the_size_of_the_first_policy() -> None:
    rows = compared(SMALLER["toy"][0] | {"batches": 3}, "uneven", 0)
    first, rival = (row for row in rows if row["batch"] == 2)
    assert rival["points"] == first["points"] and rival["policy"] == "k-means"


def test_an_exact_gp_and_one_as_large_as_the_data_agree() -> None:
    toy = SMALLER["toy"][0] | {"batches": 2, "learned": True, "noise": 0.3}
    toy |= {"policy": [{"name": "FixedSize", "m": 150}, {"name": EXACT}]}
    sparse, exact = (row for row in compared(toy, "uniform domain", 0) if row["batch"] == 1)
    assert sparse["rmse"] == pytest.approx(exact["rmse"], rel=0.02) and np.isnan(exact["points"])
