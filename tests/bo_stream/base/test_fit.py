"""Fits: several starts, a second look, every evaluation counted, interruptions, resuming."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models.transforms import Standardize
from gpytorch.constraints import Interval
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy.optimize import minimize
from torch import Tensor

from bo_stream import SVDGP, WISKI, CaGP, ExactGP, NodeWISKI, OnlineSGPR
from bo_stream.base.fitting import Coordinates, fit_model, log_prior, profiled_mean
from bo_stream.errors import StateError
from bo_stream.testing.wholeness import interrupted, lines_of
from problems import synthetic
from tests.raw import RAW

BOX = torch.tensor([[0.0] * 3, [1.0] * 3]).double()


def levy(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    torch.manual_seed(100 * seed + 100)
    X = torch.rand(n, 3).double()
    return X, synthetic("levy", dim=3, seed=seed)(X)


def exact(X: Tensor, Y: Tensor, **kw: Any) -> ExactGP:
    return ExactGP(X, Y, bounds=BOX, outcome_transform=Standardize(1), **kw)


def waves(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, generator=generator).double()
    return X, (6.0 * X).sin() + 0.2 * torch.randn(n, 1, generator=generator).double()


def wiski(n: int, **kw: Any) -> WISKI:
    X, Y = waves(n)
    return WISKI(X, Y, bounds=BOX[:, :1], grid_size=20, outcome_transform=Standardize(1), **kw)


def spied(model: Any, seen: Callable[[float], None]) -> Any:
    """The model, telling each value of its objective plus log priors, in no closed form."""
    inner, model._rows_of_fit = model._objective, lambda: (None, None)

    def objective(profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        value, mean = inner(profile_mean=profile_mean)
        seen(float((value + log_prior(model)).detach()))
        return value, mean

    model._objective = objective
    return model


def value_of(model: Any) -> float:
    """Objective plus log priors at the hyperparameters and the mean of now."""
    return float((model._objective(profile_mean=False)[0] + log_prior(model)).detach())


def scipy_ends_at(model: Any) -> float:
    """Where L-BFGS-B gets from where the model is."""
    skip = profiled_mean(model)
    coordinates = Coordinates(model, skip)

    def negative(u: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.from_numpy(u.copy())
        coordinates.set(at)
        value = model._objective(profile_mean=skip)[0] + log_prior(model)
        return -float(value.detach()), -coordinates.gradient(value, at).numpy()

    bounds = list(zip(coordinates.lower.tolist(), coordinates.upper.tolist(), strict=True))
    start = coordinates.get().numpy()
    found = minimize(negative, start, jac=True, bounds=bounds, method="L-BFGS-B")
    return -float(found.fun)


# -- modes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, pytest.param(5, marks=pytest.mark.slow)])
def test_the_first_fit_is_not_caught_in_a_poor_mode(seed: int) -> None:
    X, Y = levy(100, seed)
    model = exact(X, Y)
    reached = scipy_ends_at(exact(X, Y))
    report = model.fit()
    assert report.converged
    assert report.value > reached - 0.1
    assert scipy_ends_at(copy.deepcopy(model)) < report.value + 0.05


def test_far_starts_again_once_the_data_have_grown() -> None:
    X, Y = levy(60)
    model = exact(X[:10], Y[:10])
    counts = [model.fit().evaluations]
    for end in (13, 39, 40, 41, 60):
        start = model.num_observed
        model.observe(X[start:end], Y[start:end])
        counts.append(model.fit().evaluations)
    assert counts[0] > 40 and counts[3] > 40
    assert max(counts[1], counts[2], counts[4], counts[5]) < 40


def test_a_restart_far_from_a_bad_mode_finds_the_better_one() -> None:
    """Much noise was right for the first few data; with more, another mode is."""
    X, Y = waves(80)
    model = ExactGP(X[:4], Y[:4], outcome_transform=Standardize(1), input_transform=None)
    model.fit()
    model.covar_module.base_kernel.lengthscale = 300.0
    model.covar_module.outputscale = 1e-3
    model.likelihood.noise = 1.0
    model.observe(X[4:], Y[4:])
    fresh = ExactGP(
        X, Y, outcome_transform=copy.deepcopy(model.outcome_transform), input_transform=None
    )
    assert model.fit().value > fresh.fit().value - 0.02


@pytest.mark.parametrize("trust", [0.1, 0.5])
def test_no_far_starts_under_trust(trust: float) -> None:
    X, Y = levy(40)
    model = exact(X, Y)
    coordinates = Coordinates(model, skip_mean=True)
    start, places = coordinates.get(), []
    spied(model, lambda _: places.append(coordinates.get()))
    report = fit_model(model, None, trust)
    assert len(places) == report.evaluations
    assert max(float((u - start).abs().max()) for u in places) <= trust + 1e-6
    explored = model.stream.contents.fits.explored
    assert not len(explored) or float(explored[0]) == 0.0


def test_cagp_explores_too() -> None:
    X, Y = levy(60)
    model = CaGP(X, Y, bounds=BOX, outcome_transform=Standardize(1), input_transform=None)
    assert abs(model.fit().value - exact(X, Y).fit().value) < 0.1


# -- what a report says ----------------------------------------------------------------------------


def test_every_evaluation_is_counted() -> None:
    X, Y = levy(80)
    values: list[float] = []
    model = spied(exact(X[:12], Y[:12]), values.append)
    for end in (12, 14, 20, 48, 49, 50, 80):
        start = model.num_observed
        model.observe(X[start:end], Y[start:end])
        values.clear()
        report = model.fit()
        assert report.evaluations == len(values)
        assert report.value == max(values)
        assert abs(value_of(model) - report.value) < 1e-9 * (1 + abs(report.value))


def test_the_limit_holds_for_all_starts_together() -> None:
    X, Y = levy(30)
    for most in (1, 2, 3, 10, 25, 50, 70):
        values: list[float] = []
        report = spied(exact(X, Y), values.append).fit(most)
        assert report.evaluations == len(values) <= most
        assert report.value == max(values) >= values[0]


def test_small_budgets_are_not_spent_on_far_starts() -> None:
    X, Y = levy(30)
    model = exact(X, Y)
    model.fit(8)
    assert model.fit().evaluations > 40  # they are still to come


# -- what is refused -------------------------------------------------------------------------------


def state_of(model: Any) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in model.state_dict().items() if isinstance(v, Tensor)}


@pytest.mark.parametrize("free", [True, False])
def test_an_evidence_that_overflows_is_refused(free: bool) -> None:
    X = torch.rand(10, 1).double()
    Yvar = torch.full_like(X, 1e-9)
    model = WISKI(X, 1e150 * X, Yvar, bounds=BOX[:, :1], grid_size=12, **RAW)
    for p in model.parameters():
        p.requires_grad_(free)
    before = state_of(model)
    with pytest.raises(StateError, match="Standardize"):
        model.fit()
    after = state_of(model)
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert not model.training


# -- interruptions ---------------------------------------------------------------------------------


def unfitted() -> Any:
    X, Y = waves(9)
    return ExactGP(X, Y, bounds=BOX[:, :1], outcome_transform=Standardize(1))


def on_a_grid() -> Any:
    return wiski(8)


def warm() -> Any:
    X, Y = waves(14)
    model = ExactGP(X[:12], Y[:12], bounds=BOX[:, :1], outcome_transform=Standardize(1))
    model.fit()
    return model.observe(X[12:], Y[12:])


@pytest.mark.parametrize("make", [unfitted, warm])
def test_an_interrupted_fit_keeps_the_best_point_seen(make: Callable[[], Any]) -> None:
    """At the beginning and the end, where most is written, and at some lines between."""
    fresh = make()
    total = lines_of(partial(copy.deepcopy(fresh).fit, 24))
    start, raw = value_of(fresh), [p.detach().clone() for p in fresh.parameters()]
    between = random.Random(0).sample(range(40, total - 70), 4)
    for at in [*range(1, 40, 12), *sorted(between), *range(total - 70, total - 2, 22)]:
        model, values = copy.deepcopy(fresh), list[float]()
        interrupted(partial(spied(model, values.append).fit, 24), at)
        del model._objective
        now = value_of(model)
        untouched = all(torch.equal(p, q) for p, q in zip(model.parameters(), raw, strict=True))
        assert untouched or min(abs(now - v) for v in values) < 1e-8, at
        assert now >= max([start, *values[:-1]]) - 1e-8, at  # the last may not be booked yet
        assert all(p.grad is None for p in model.parameters()), at
        assert not model.training, at
        assert bool(model.posterior(torch.rand(2, 1).double()).mean.isfinite().all()), at
        curvature = model.stream.contents.fits.curvature
        assert curvature.shape in ((0, 0), (3, 3)) and bool(curvature.isfinite().all()), at
    assert model.fit().value > now - 1e-8


@pytest.mark.parametrize("family", [ExactGP, WISKI, NodeWISKI, OnlineSGPR, SVDGP, CaGP])
@pytest.mark.parametrize("n", [1, 10, 25])
def test_replicates_at_one_place_say_little_of_others(family: Any, n: int) -> None:
    """At the place the deviation is about a standard error, and elsewhere it is larger."""
    generator = torch.Generator().manual_seed(n)
    X, Y = torch.full((n, 2), 0.3).double(), 10.0 + torch.randn(n, 1, generator=generator).double()
    model = family(X, Y, bounds=BOX[:, :2])
    for _ in range(2):
        model.fit()
    with torch.no_grad():
        at, far = model.posterior(torch.tensor([[0.3, 0.3], [0.95, 0.95]])).variance.sqrt()
    standard_error = float(Y.std()) / n**0.5 if n > 1 else 0.0
    assert 0.4 * standard_error < float(at) < max(1.1 * standard_error, 0.1)
    assert float(far) > max(1.1 * float(at), 0.6 * standard_error)


# -- resuming --------------------------------------------------------------------------------------


def test_other_hyperparameters_than_those_the_curvature_is_of() -> None:
    """A kernel with more of them than the last fit had: a cold start, and no error."""
    X, Y = waves(20)
    model = ExactGP(X, Y, outcome_transform=Standardize(1), input_transform=None)
    model.fit()
    model.covar_module = ScaleKernel(RBFKernel()) + ScaleKernel(
        RBFKernel(lengthscale_constraint=Interval(0.01, 0.2))
    )
    model.double()
    report = model.fit()
    assert report.converged and report.value >= value_of(model) - 1e-8
