"""Polynomials about a recommendation: used where they are better known, and only there."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.posteriors.gpytorch import GPyTorchPosterior
from torch import Tensor

from acquisitions import ThompsonSampling
from acquisitions.refinement import peaks, refined
from bo_stream import Box, Campaign, WarpedGP

TOP = torch.tensor([0.45, 0.6], dtype=torch.float64)


def bowl(X: Tensor) -> Tensor:
    a, b = (X - TOP).unbind(-1)
    return -100.0 * (a**2 + 3.0 * b**2 + a * b)


def corner(X: Tensor) -> Tensor:
    """Neither curve near the top is a polynomial over a wide window."""
    r = (X - TOP).norm(dim=-1)
    return -20.0 * r + 3.0 * torch.cos(40.0 * r)


def told(f: Callable[[Tensor], Tensor], sd: float, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Values mostly near the top, as a campaign has them."""
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=g, dtype=torch.float64)
    away = 0.05 * torch.randn(n // 2, 2, generator=g, dtype=torch.float64)
    X[: n // 2] = (TOP + 0.02 + away).clamp(0.0, 1.0)
    return X, f(X) + sd * torch.randn(n, generator=g, dtype=torch.float64)


def test_a_smooth_top_is_found_with_the_loss_that_is_expected() -> None:
    losses, expected, radii = [], [], []
    for seed in range(12):
        X, y = told(bowl, 2.0, 2000, seed)
        best = peaks(X, y, TOP + 0.03)[0]
        losses.append(float(bowl(TOP) - bowl(best.x)))
        expected.append(best.loss)
        radii.append(best.radius)
    assert np.median(radii) > 0.2
    assert 0.4 < np.mean(losses) / np.mean(expected) < 2.5


def test_wide_windows_are_dismissed_where_no_polynomial_fits() -> None:
    X, y = told(corner, 0.3, 8000, 0)
    found = peaks(X, y, TOP + 0.01)
    assert found and all(peak.radius < 0.15 for peak in found)
    assert all(float((peak.x - TOP).norm()) < 0.02 for peak in found)


def test_no_values_no_peaks() -> None:
    X, y = told(bowl, 2.0, 100, 0)
    assert peaks(X, y, TOP) == []
    assert peaks(X.repeat(20, 1)[:1].expand(3000, 2), y[:1].expand(3000), TOP) == []


@pytest.mark.parametrize("f, sd, n", [(bowl, 2.0, 2000), (bowl, 2.0, 400), (corner, 0.3, 2000)])
def test_a_recommendation_is_refined_if_that_is_better(
    f: Callable[[Tensor], Tensor], sd: float, n: int
) -> None:
    better, plain = [], []
    for seed in range(2):
        X, y = told(f, sd, n, seed)
        run = Campaign(Box({"a": (0.0, 1.0), "b": (0.0, 1.0)}), "hsgp", goal="maximise", seed=0)
        run.tell(pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}))
        x = torch.from_numpy(run.recommend()[["a", "b"]].to_numpy())
        better.append(float(f(TOP) - f(x[0])))
        plain.append(float(f(TOP) - f(ThompsonSampling(run.model).recommend())))
    assert np.mean(better) < 0.5 * np.mean(plain) if f is bowl else max(better) < 0.05


def test_a_posterior_that_is_not_gaussian_is_left_as_it_is() -> None:
    X, y = told(bowl, 2.0, 2000, 0)
    model = WarpedGP(X[::80], -bowl(X[::80, None]).neg().exp(), bounds=[[0.0, 0.0], [1.0, 1.0]])
    model.fit()
    assert not isinstance(model.posterior(X[:1]), GPyTorchPosterior)
    assert refined(model, TOP, model.bounds, X, y) is None
