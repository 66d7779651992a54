"""The search for maximisers beside BoTorch's."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import (
    LogExpectedImprovement,
    PosteriorMean,
    UpperConfidenceBound,
)
from botorch.acquisition.monte_carlo import qExpectedImprovement, qUpperConfidenceBound
from botorch.acquisition.objective import GenericMCObjective, ScalarizedPosteriorTransform
from botorch.exceptions.warnings import NumericsWarning
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf as botorchs
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Tensor

import acquisitions.optimize
from acquisitions import NIPV, MaxVariance, build, optimize_acqf
from acquisitions.ascent import maximise_in_turn, of_acquisition
from acquisitions.domain import Domain
from bo_stream import HSGP, WISKI, CaGP, ExactGP, NodeWISKI, OnlineSGPR
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.errors import BoundsError, ShapeError
from tests.calls import calls_of

BOX = torch.tensor([[0.0, -1.0], [2.0, 1.0]], dtype=torch.float64)
FAMILIES = [WISKI, HSGP, NodeWISKI, OnlineSGPR, CaGP, ExactGP]
Make = Callable[[GaussianModel, Tensor | None], AcquisitionFunction]
pytestmark = pytest.mark.filterwarnings(f"ignore::{NumericsWarning.__module__}.NumericsWarning")


def drawn(count: int) -> Tensor:
    unit = torch.rand(count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
    return BOX[0] + (BOX[1] - BOX[0]) * unit


X = drawn(30)
Y = 3.0 + torch.sin(3.0 * X).sum(-1, keepdim=True) - X.square().sum(-1, keepdim=True)
PENDING = torch.tensor([[0.5, 0.4], [1.2, -0.3]], dtype=torch.float64)


def surrogate(family: Any = ExactGP, **options: Any) -> GaussianModel:
    model: GaussianModel = family(X, Y, bounds=BOX, **options)
    model.likelihood.noise = 0.05
    return model


def named(name: str) -> Make:
    about = {"best_f": 4.0, "X_baseline": X[:8], "mc_points": drawn(90), "seed": 3}
    return lambda model, pending: build(name, model, X_pending=pending, **about)


def sampler() -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(torch.Size([64]), seed=3)


MANY: dict[str, Make] = {
    **{name: named(name) for name in ("qucb", "qlogei", "qlognei", "nipv", "max_variance")},
    "qei": lambda model, pending: qExpectedImprovement(model, 4.0, sampler(), X_pending=pending),
}
ONE: dict[str, Make] = {
    "ei": named("ei"),
    "logei": lambda model, _: LogExpectedImprovement(model, 4.0),
    "mean": lambda model, _: PosteriorMean(model),
    "ucb": lambda model, _: UpperConfidenceBound(model, 4.0),
}


def check(acqf: AcquisitionFunction, q: int, least: float) -> None:
    """As good as BoTorch's search, and without it."""
    torch.manual_seed(0)
    with calls_of(acquisitions.optimize.searched_by_botorch) as calls:
        points, value = optimize_acqf(acqf, BOX, q)
    assert not calls and points.shape == (q, 2) and value.shape == ()
    assert bool((points >= BOX[0]).all() and (points <= BOX[1]).all())
    assert float(acqf(points.unsqueeze(0))) == pytest.approx(float(value), rel=1e-9)
    torch.manual_seed(0)
    others: Any = botorchs(acqf, BOX, q, num_restarts=4, raw_samples=128)[1]
    assert float(value) > float(others) - least


@pytest.mark.parametrize("pending", [None, PENDING], ids=["alone", "pending"])
@pytest.mark.parametrize("name", MANY)
def test_functions_of_several_points(name: str, pending: Tensor | None) -> None:
    check(MANY[name](surrogate(), pending), 3, 1e-2)


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_point(name: str) -> None:
    check(ONE[name](surrogate(), None), 1, 2e-3)


@pytest.mark.parametrize("name", ["qucb", "qlogei", "nipv"])
@pytest.mark.parametrize("family", FAMILIES)
def test_all_families(family: Any, name: str) -> None:
    check(MANY[name](surrogate(family), None), 2, 2e-2)


@pytest.mark.parametrize("name", MANY)
def test_feasible_maximisers_are_those_of_autograd(name: str) -> None:
    values = {0: torch.linspace(0.0, 2.0, 9)}
    domain = Domain.of(BOX, [(torch.tensor([0, 1]), torch.tensor([-1.0, -1.0]), -1.5)], values)
    found = []
    for by_autograd in (False, True):
        acqf: Any = MANY[name](surrogate(), PENDING)
        if by_autograd:
            acqf.__class__ = type("Unknown", (type(acqf),), {})
        torch.manual_seed(0)
        with calls_of(type(acqf).forward) as calls:
            surface = partial(of_acquisition, acqf, domain.bounds, PENDING)
            x = maximise_in_turn(surface, domain, 1, PENDING, X)
        assert bool(domain.contains(x).all()) and (len(calls) > 3) == by_autograd
        found.append(float(acqf(x.unsqueeze(0))))
    assert found[0] == pytest.approx(found[1], abs=1e-2, rel=1e-2)


def test_seeds_reproduce_the_points() -> None:
    found = []
    for seed in (0, 0, 1):
        acqf = build("qlogei", surrogate(), best_f=4.0, seed=3)
        torch.manual_seed(seed)
        found.append(optimize_acqf(acqf, BOX, 2)[0])
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_in_single_precision() -> None:
    points, value = optimize_acqf(named("qucb")(surrogate(), None), BOX.float(), 2)
    assert points.dtype == value.dtype == torch.float32


class Doubled(qUpperConfidenceBound):
    """Another function."""


FLIPPED = GenericMCObjective(lambda samples, X: -samples[..., 0])
LINEAR = ScalarizedPosteriorTransform(torch.tensor([2.0]).double())
ELSEWHERE: dict[str, tuple[Callable[[], AcquisitionFunction], dict[str, Any]]] = {
    "a subclass": (lambda: Doubled(surrogate(), 4.0, sampler()), {}),
    "another model": (lambda: qUpperConfidenceBound(SingleTaskGP(X, Y), 4.0, sampler()), {}),
    "an objective": (lambda: build("qucb", surrogate(), objective=FLIPPED), {}),
    "a transform": (lambda: build("qucb", surrogate(), posterior_transform=LINEAR), {}),
    "constraints": (
        lambda: build("qlogei", surrogate(), best_f=3.0, constraints=[lambda y: y[..., 0] - 2.0]),
        {},
    ),
    "the lowest": (lambda: UpperConfidenceBound(surrogate(), 4.0, maximize=False), {}),
    "in turn": (lambda: build("qucb", surrogate()), {"sequential": True}),
    "options": (lambda: build("qucb", surrogate()), {"options": {"maxiter": 2}}),
    "features": (lambda: build("qucb", surrogate()), {"fixed_features": {0: 0.5}}),
    "noise": (
        lambda: NIPV(surrogate(), X, noise=lambda Z: 0.01 + 0.0 * Z[..., :1]),
        {},
    ),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_the_rest_is_botorchs(case: str) -> None:
    make, options = ELSEWHERE[case]
    acqf, found = make(), []
    for search in (optimize_acqf, botorchs):
        torch.manual_seed(0)
        result: Any = search(acqf, BOX, 1, num_restarts=2, raw_samples=8, **options)
        found.append(result)
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


def test_an_input_of_no_width_is_left_to_botorch() -> None:
    flat = torch.tensor([[0.0, 0.3], [2.0, 0.3]], dtype=torch.float64)
    points, _ = optimize_acqf(build("qucb", surrogate()), flat, 2, num_restarts=1, raw_samples=4)
    assert bool((points[:, 1] == 0.3).all())


@pytest.mark.parametrize("name", [*ONE, *MANY])
def test_points_that_the_surrogate_refuses_are_not_searched(name: str) -> None:
    make = {**MANY, **ONE}[name]
    with pytest.raises(BoundsError):
        optimize_acqf(make(surrogate(), None), 2.0 * BOX, 1, num_restarts=1, raw_samples=4)
    with pytest.raises(ShapeError):
        optimize_acqf(make(surrogate(), None), BOX[:, :1], 1, num_restarts=1, raw_samples=4)
    if name in MANY:
        with pytest.raises(BoundsError):
            optimize_acqf(make(surrogate(), PENDING + 4.0), BOX, 1, num_restarts=1, raw_samples=4)


def test_a_little_outside_of_the_bounds_the_value_is_that_at_the_bounds() -> None:
    model = ExactGP(X, 3.0 * X[:, :1], bounds=BOX)
    acqf = UpperConfidenceBound(model, 4.0)
    wide = BOX + torch.tensor([[0.0, 0.0], [0.1, 0.0]])
    _, value = optimize_acqf(acqf, wide, 1, num_restarts=2, raw_samples=16)
    best = float(optimize_acqf(acqf, BOX, 1)[1])
    assert float(value) == pytest.approx(best, abs=1e-2)  # extrapolated, it is .27 larger


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_outcomes_in_any_unit(unit: float) -> None:
    model = ExactGP(X, unit * Y, bounds=BOX)
    for name in ("qucb", "qlogei", "qlognei", "max_variance"):
        acqf = build(name, model, best_f=4.0 * unit, X_baseline=X[:8], seed=3)
        with calls_of(acquisitions.optimize.searched_by_botorch) as calls:
            optimize_acqf(acqf, BOX, 2)
        assert not calls


def test_points_that_are_known_exactly() -> None:
    model = ExactGP(X, Y, torch.full_like(Y, 1e-9), bounds=BOX)
    with calls_of(acquisitions.optimize.searched_by_botorch) as calls:
        for name in ("ei", "qlogei", "nipv"):
            acqf = build(name, model, best_f=float(Y.max()), mc_points=drawn(90), seed=3)
            assert float(optimize_acqf(acqf, BOX, 1)[1].isfinite())
    assert not calls


def test_of_several_outcomes_it_is_botorchs() -> None:
    two = WISKI(X, torch.cat([Y, Y], -1), bounds=BOX)
    points, _ = optimize_acqf(MaxVariance(two), BOX, 1, num_restarts=1, raw_samples=4)
    assert points.shape == (1, 2)
