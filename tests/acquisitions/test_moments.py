"""Acquisition functions of moments beside BoTorch's classes."""

from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition.analytic import (
    ExpectedImprovement,
    LogExpectedImprovement,
    UpperConfidenceBound,
)
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.monte_carlo import qExpectedImprovement, qUpperConfidenceBound
from botorch.exceptions.warnings import NumericsWarning
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Tensor

from acquisitions import NIPV, MaxVariance
from acquisitions.moments import (
    Criterion,
    Entropy,
    IntegratedVariance,
    LogImprovement,
    UpperBound,
    factor,
    log_gain,
)
from bo_stream import ExactGP

BOX = torch.tensor([[0.0, -1.0], [2.0, 1.0]], dtype=torch.float64)
pytestmark = pytest.mark.filterwarnings(f"ignore::{NumericsWarning.__module__}.NumericsWarning")


def drawn(*shape: int) -> Tensor:
    unit = torch.rand(
        *shape, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))
    )
    return BOX[0] + (BOX[1] - BOX[0]) * unit


X = drawn(12)
Y = 3.0 + 2.0 * torch.sin(3.0 * X).sum(-1, keepdim=True)
HELD, TESTS = drawn(17), drawn(50)


def surrogate() -> ExactGP:
    model = ExactGP(X, Y, bounds=BOX)
    model.covar_module.base_kernel.lengthscale = 0.3
    model.likelihood.noise = 0.05
    return model


def sampler() -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(torch.Size([64]), seed=3)


def value_and_gradient(
    criterion: Criterion, Z: Tensor, before: Tensor, after: Tensor, sums: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Of sets of points, by the model's joint posterior and autograd of its moments."""
    model, Z = surrogate(), Z.clone().requires_grad_()
    fixed = [points.expand(len(Z), *points.shape) for points in (before, after)]
    joint: Any = model.posterior(
        torch.cat([fixed[0], Z, fixed[1], TESTS.expand(len(Z), -1, -1)], 1)
    )
    p = joint.mean.shape[1] - len(TESTS)
    mean, C = joint.mean[:, :p, 0], joint.distribution.covariance_matrix
    across = C[:, :p, p:]
    G, C = across @ across.mT / len(TESTS), C[:, :p, :p]
    arrays = [t.detach().numpy() for t in (mean, C, G)]
    value, bars = criterion.value(*arrays[: 2 + sums])
    bars = [torch.from_numpy(bar) for bar in bars if bar is not None]
    (slopes,) = torch.autograd.grad([mean, C, G][: len(bars)], Z, bars)
    return value, slopes.numpy()


def base_of(acqf: Any, Z: Tensor) -> np.ndarray:
    acqf(Z[:1])
    z: np.ndarray = acqf.sampler.base_samples.numpy()
    return z.reshape(len(z), -1)


def check(acqf: Any, criterion: Criterion, Z: Tensor, before: Tensor, after: Tensor) -> None:
    wanted = acqf(Z.requires_grad_())
    (slopes,) = torch.autograd.grad(wanted.sum(), Z)
    sums = isinstance(criterion, IntegratedVariance)
    value, found = value_and_gradient(criterion, Z.detach(), before, after, sums)
    np.testing.assert_allclose(value, wanted.detach().numpy(), rtol=1e-10, atol=1e-10)
    size = float(slopes.abs().max())
    assert size > 1e-6
    np.testing.assert_allclose(found, slopes.numpy(), rtol=1e-7, atol=1e-7 * size)


@pytest.mark.parametrize("held", [0, 2])
@pytest.mark.parametrize("q", [1, 3])
def test_sampled_functions_are_botorchs(q: int, held: int) -> None:
    model, after, Z = surrogate(), HELD[:held], drawn(5, q)
    about: dict[str, Any] = {"sampler": sampler(), "X_pending": after if held else None}
    upper = qUpperConfidenceBound(model, 4.0, **about)
    check(upper, UpperBound(base_of(upper, Z), 4.0), Z, X[:0], after)
    log = qLogExpectedImprovement(model, 4.5, tau_relu=1e-3, **about)
    check(log, LogImprovement(base_of(log, Z), 4.5, width=1e-3), Z, X[:0], after)
    plain = qExpectedImprovement(model, 4.5, **about)
    narrow = LogImprovement(base_of(plain, Z), 4.5, width=1e-7, spread=1e-7)
    value = np.exp(value_and_gradient(narrow, Z.detach(), X[:0], after)[0])
    np.testing.assert_allclose(value, plain(Z).detach().numpy(), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize("cached", [True, False])
def test_noisy_improvement_is_botorchs(cached: bool, incremental: bool) -> None:
    model, Z = surrogate(), drawn(5, 2)
    about: dict[str, Any] = {"sampler": sampler(), "X_pending": HELD[:2], "cache_root": cached}
    noisy = qLogNoisyExpectedImprovement(
        model, X[:4], prune_baseline=False, incremental=incremental, tau_relu=1e-3, **about
    )
    known = noisy.X_baseline
    criterion = LogImprovement(base_of(noisy, Z), 0.0, len(known), width=1e-3)
    check(noisy, criterion, Z, known, HELD[:0] if incremental else HELD[:2])


@pytest.mark.parametrize("make", [UpperConfidenceBound, LogExpectedImprovement])
def test_functions_of_one_point_are_botorchs(make: type) -> None:
    of_one, Z = make(surrogate(), 4.0), drawn(6, 1)
    none = np.empty((0, 1))
    of = UpperBound(none, 4.0) if make is UpperConfidenceBound else LogImprovement(none, 4.0)
    check(of_one, of, Z, X[:0], X[:0])
    value = value_and_gradient(LogImprovement(none, 4.0), Z, X[:0], X[:0])[0]
    wanted = ExpectedImprovement(surrogate(), 4.0)(Z)
    np.testing.assert_allclose(np.exp(value), wanted.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("held", [0, 2])
def test_functions_of_the_covariance_are_those_of_this_package(held: int) -> None:
    model, after = surrogate(), HELD[:held]
    scale, noise = float(model.outcome_transform.stdvs), float(model.typical_noise())
    about: dict[str, Any] = {"X_pending": after if held else None}
    entropy = MaxVariance(model, **about)
    check(entropy, Entropy(noise, scale), drawn(5, 3), X[:0], after)
    nipv = NIPV(model, TESTS, **about)
    total = float(nipv.current()[1].total) * scale**2
    check(nipv, IntegratedVariance(noise * scale**2, total), drawn(5, 3), X[:0], after)


@pytest.mark.parametrize(
    "criterion",
    [
        UpperBound(np.random.default_rng(0).standard_normal((40, 5)), 4.0),
        LogImprovement(
            np.random.default_rng(0).standard_normal((40, 5)), 3.0, width=1e-9, spread=1e-9
        ),
        LogImprovement(
            np.random.default_rng(0).standard_normal((40, 5)), known=2, width=1e-9, spread=1e-9
        ),
        Entropy(0.1),
        IntegratedVariance(0.1, 1.0),
    ],
    ids=lambda criterion: type(criterion).__name__,
)
def test_extended_sets_have_their_values(criterion: Criterion) -> None:
    """One point more, beside the value of the whole set."""
    generator = np.random.default_rng(1)
    mean, A, B = 3.0 + generator.random(9), generator.random((9, 12)), generator.random((9, 12))
    C, G = A @ A.T, B @ B.T
    chosen = np.array([[0, 1, 5, 2], [3, 1, 8, 7]])
    found = criterion.extended(chosen, mean, C, G)
    for row, value in zip(chosen, found, strict=True):
        for c in set(range(9)) - set(row):
            rows = np.array([*row, c])
            moments = (part[np.ix_(rows, rows)][None] for part in (C, G))
            wanted = criterion.value(mean[rows][None], *moments)[0][0]
            np.testing.assert_allclose(value[c], wanted, rtol=1e-6)


def test_the_gain_far_below_and_above() -> None:
    u = np.array([-1e6, -2e4, -9e3, -40.0, -3.0, 0.0, 2.0, 50.0])
    with np.errstate(over="raise", invalid="raise"):
        found, ratio = log_gain(u)
    far = -0.5 * u**2 - 0.5 * np.log(2.0 * np.pi) - 2.0 * np.log(np.maximum(-u, 1e-9))
    np.testing.assert_allclose(found[:3], far[:3], rtol=1e-9)
    np.testing.assert_allclose(
        np.exp(found[4:]), [0.000382154, 0.398942280, 2.00849070, 50.0], rtol=1e-6
    )
    step = 1e-4 * np.maximum(1.0, np.abs(u))
    slopes = (log_gain(u + step)[0] - log_gain(u - step)[0]) / (2.0 * step)
    np.testing.assert_allclose(ratio[:3], -u[:3], rtol=1e-6)
    np.testing.assert_allclose(ratio, slopes, rtol=1e-4)


def test_factors_of_points_that_coincide() -> None:
    C = np.ones((2, 3, 3)) * 1e12
    C[1] += np.diag([1e12, 2e12, 3e12])
    L = factor(C)
    np.testing.assert_allclose(L @ L.transpose(0, 2, 1), C, rtol=1e-6)
    assert (factor(np.zeros((1, 2, 2))) < 1e-100).all()
