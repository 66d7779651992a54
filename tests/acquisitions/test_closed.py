"""Acquisition functions in closed form beside BoTorch's own classes."""

import math

import pytest
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import ExpectedImprovement
from botorch.acquisition.logei import TAU_RELU, qLogExpectedImprovement
from botorch.acquisition.monte_carlo import qUpperConfidenceBound
from botorch.acquisition.objective import (
    GenericMCObjective,
    IdentityMCObjective,
    ScalarizedPosteriorTransform,
)
from botorch.exceptions.warnings import NumericsWarning
from botorch.models.transforms import Log, Standardize
from botorch.models.transforms.input import Log10, Normalize
from botorch.sampling.normal import IIDNormalSampler, SobolQMCNormalSampler
from gpytorch.kernels import MaternKernel, ScaleKernel
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

import acquisitions.closed
from acquisitions import build
from acquisitions.closed import (
    ClosedExpectedImprovement,
    ClosedLogExpectedImprovement,
    ClosedUpperConfidenceBound,
)
from bo_stream import HSGP, WISKI, ExactGP
from bo_stream.base.gaussian_model import GaussianModel
from tests.calls import calls_of

CLOSED = {
    "qucb": ClosedUpperConfidenceBound,
    "ei": ClosedExpectedImprovement,
    "qlogei": ClosedLogExpectedImprovement,
}
BOUNDS = torch.tensor([[-1.0, 2.0], [1.0, 3.0]], dtype=torch.float64)
LOW, WIDTH = BOUNDS[0], BOUNDS[1] - BOUNDS[0]
DRAWN = torch.Generator().manual_seed(0)
X = LOW + WIDTH * torch.rand(40, 2, dtype=torch.float64, generator=DRAWN)
Y = 5.0 + 3.0 * torch.sin(4.0 * X).sum(-1, keepdim=True)
BEST = 9.0
PENDING = LOW + WIDTH * torch.tensor([[0.2, 0.3], [0.7, 0.1]], dtype=torch.float64)
FAMILIES = {
    "matrix": lambda **kw: WISKI(
        X, Y, bounds=BOUNDS, grid_size=12, covar_module=ScaleKernel(MaternKernel(nu=2.5)), **kw
    ),
    "rows": lambda **kw: WISKI(X, Y, bounds=BOUNDS, grid_size=[12, 14], **kw),
    "features": lambda **kw: WISKI(X, Y, bounds=BOUNDS, grid_size=[22, 25], opening=0, **kw),
    "eigenbasis": lambda **kw: WISKI(X, Y, bounds=BOUNDS, grid_size=66, opening=0, **kw),
    "few on many nodes": lambda **kw: WISKI(X, Y, bounds=BOUNDS, grid_size=66, **kw),
    "hsgp": lambda **kw: HSGP(X, Y, bounds=BOUNDS, main_effects=False, **kw),
}
pytestmark = pytest.mark.filterwarnings(f"ignore::{NumericsWarning.__module__}.NumericsWarning")


def surrogate(family: str, **kw) -> GaussianModel:
    model = FAMILIES[family](**kw)
    model.covar_module.base_kernel.lengthscale = 0.4
    model.likelihood.noise = 0.05
    return model


def points(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    Z = torch.rand(*shape, 2, dtype=torch.float64, generator=generator)
    return (LOW + WIDTH * Z).to(dtype)


def plain(name: str, model: GaussianModel, X_pending: Tensor | None = None) -> AcquisitionFunction:
    """BoTorch's class, given what `build` is given."""
    sampler = SobolQMCNormalSampler(torch.Size([128]), seed=3)
    if name == "ei":
        return ExpectedImprovement(model, BEST)
    if name == "qucb":
        return qUpperConfidenceBound(model, 4.0, sampler=sampler, X_pending=X_pending)
    scale = float(getattr(model, "outcome_transform", Standardize(1)).stdvs)
    given = {"sampler": sampler, "X_pending": X_pending, "tau_relu": TAU_RELU * scale}
    return qLogExpectedImprovement(model, BEST, **given)


def both(name: str, model: GaussianModel, X_pending: Tensor | None = None) -> list:
    given = {"best_f": BEST, "X_pending": X_pending, "seed": 3}
    closed = build(name, model, **given)
    assert type(closed) is CLOSED[name]
    return [closed, plain(name, model, X_pending)]


def value_and_gradient(acqf: AcquisitionFunction, Z: Tensor) -> tuple[Tensor, Tensor]:
    Z = Z.clone().requires_grad_(True)
    value = acqf(Z)
    weights = 1.0 + torch.arange(value.numel()).to(value).view_as(value)
    (gradient,) = torch.autograd.grad((weights * value).sum(), Z)
    return value.detach(), gradient


def check_same(acqfs: list, Z: Tensor, rtol: float = 1e-8) -> None:
    (value, gradient), (value_b, gradient_b) = (value_and_gradient(a, Z) for a in acqfs)
    assert value.dtype == value_b.dtype and gradient.dtype == gradient_b.dtype
    torch.testing.assert_close(value, value_b, rtol=rtol, atol=0.0)
    size = float(gradient_b.abs().max())
    assert size > 1e-6  # or the comparison says nothing
    torch.testing.assert_close(gradient, gradient_b, rtol=rtol, atol=rtol * size)
    with torch.no_grad():
        torch.testing.assert_close(acqfs[0](Z), value, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_values_and_gradients_are_botorchs(family: str) -> None:
    model = surrogate(family)
    with calls_of(acquisitions.closed._value) as calls:
        for name, q, pending in (("qucb", 1, PENDING), ("qlogei", 3, None), ("ei", 1, None)):
            check_same(both(name, model, pending), points(6, q))
    assert len(calls) == 6


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 4, 3)])
@pytest.mark.parametrize("name", ["qucb", "qlogei"])
def test_batches_of_any_shape(name: str, shape: tuple[int, ...]) -> None:
    model = surrogate("matrix")
    check_same(both(name, model), points(*shape))


@pytest.mark.parametrize("family", FAMILIES)
def test_many_batches_without_gradients(family: str) -> None:
    """As the raw samples of `optimize_acqf`."""
    closed, botorchs = both("qucb", surrogate(family))
    Z = points(700, 3)
    with torch.no_grad():
        torch.testing.assert_close(closed(Z), botorchs(Z), rtol=1e-9, atol=0.0)


def test_moments_of_several_outputs_are_not_offered() -> None:
    two = WISKI(X, torch.cat([Y, Y], -1), bounds=BOUNDS, grid_size=12)
    assert not two.process().has_moments


@pytest.mark.parametrize("name", ["qucb", "qlogei"])
def test_families_without_moments_have_botorchs_values(name: str) -> None:
    """Also an exact process that is conditioned on the latest data."""
    model = ExactGP(X, Y, bounds=BOUNDS)
    for _ in range(2):
        assert not model.process().has_moments
        check_same([build(name, model, best_f=BEST, seed=3), plain(name, model)], points(5, 1))
        model.observe(X[:2] + 0.01, Y[:2])


@pytest.mark.parametrize("family", FAMILIES)
def test_what_changes_between_calls_is_followed(family: str) -> None:
    """Another q, pending points set later, data, an outcome transform learned again."""
    model = surrogate(family)
    acqfs = both("qlogei", model)
    for q in (2, 3, 2):
        check_same(acqfs, points(4, q))
    for acqf in acqfs:
        acqf.set_X_pending(PENDING)
    check_same(acqfs, points(4, 2))
    model.observe(points(5), torch.full((5, 1), 8.0).double())
    check_same(acqfs, points(4, 2))
    model.restandardise(Y[:20] + 1.0)
    check_same(acqfs, points(4, 2))


@pytest.mark.parametrize("name", CLOSED)
def test_in_single_precision_within_its_rounding(name: str) -> None:
    model = surrogate("rows")
    Z = points(6, 1 if name == "ei" else 3, dtype=torch.float32)
    check_same(both(name, model, None), Z[:, :1] if name == "ei" else Z, rtol=2e-3)


@pytest.mark.parametrize("name", ["qucb", "qlogei"])
def test_points_that_coincide(name: str) -> None:
    Z = points(4, 3)
    Z[:, 1] = Z[:, 0]
    Z[0, 2] = Z[0, 0]
    closed, botorchs = both(name, surrogate("matrix"))
    with pytest.warns(NumericalWarning):
        value, gradient = value_and_gradient(closed, Z)
    rounding = 1e-4  # decides which of the singular covariances get the jitter
    torch.testing.assert_close(value, botorchs(Z), rtol=rounding, atol=0.0)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize(
    "transforms",
    [
        {"outcome_transform": None},
        {"input_transform": None},
        {"input_transform": Normalize(2, bounds=BOUNDS + torch.tensor([[-0.5], [0.5]]).double())},
    ],
)
def test_other_units(transforms: dict) -> None:
    check_same(both("qlogei", surrogate("matrix", **transforms)), points(4, 2))


def test_through_an_input_transform_that_bends() -> None:
    bent = surrogate("matrix", input_transform=Log10(indices=[1]))
    check_same(both("qucb", bent), points(4, 2))


def test_gradients_can_be_taken_twice_from_one_value() -> None:
    acqf = build("qucb", surrogate("matrix"), seed=0)
    Z = points(4, 2).requires_grad_(True)
    value = acqf(Z).sum()
    first, second = (torch.autograd.grad(value, Z, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    "given",
    [
        {"objective": IdentityMCObjective()},
        {"objective": GenericMCObjective(lambda samples, X: -samples[..., 0])},
        {"posterior_transform": ScalarizedPosteriorTransform(torch.tensor([2.0]).double())},
    ],
)
def test_further_arguments_get_botorchs_class(given: dict) -> None:
    assert type(build("qucb", surrogate("matrix"), **given)) is qUpperConfidenceBound


def test_models_without_the_closed_form_get_botorchs_class() -> None:
    two = WISKI(X, torch.cat([Y, Y], -1), bounds=BOUNDS)
    scalar = ScalarizedPosteriorTransform(torch.ones(2).double())
    assert type(build("qucb", two, posterior_transform=scalar)) is qUpperConfidenceBound

    sampler = SobolQMCNormalSampler(torch.Size([2]), seed=0)
    for model in (
        ExactGP(X, Y, bounds=BOUNDS),
        surrogate("matrix").fantasize(PENDING, sampler),
        WISKI(X, Y.exp(), bounds=BOUNDS, outcome_transform=Log()),
    ):
        assert type(build("qucb", model)) is qUpperConfidenceBound
    assert type(build("ei", model, best_f=0.0)) is ExpectedImprovement
    several = torch.tensor([BEST, 7.0]).double()
    assert type(build("qlogei", surrogate("matrix"), best_f=several)) is qLogExpectedImprovement


def test_expected_improvement_of_any_family_is_botorchs() -> None:
    exact = ExactGP(X, Y, bounds=BOUNDS)
    fantasies = exact.fantasize(PENDING, SobolQMCNormalSampler(torch.Size([2]), seed=0))
    check_same(both("ei", exact), points(6, 1))
    check_same(both("ei", fantasies), points(6, 1, 1))


@pytest.mark.parametrize("family", [ExactGP, WISKI])
@pytest.mark.parametrize("name", ["qucb", "ei", "qlogei", "qlognei"])
def test_values_in_any_unit(family: type, name: str) -> None:
    """Divided by the unit they are the same, to the last bit for powers of two."""
    found = []
    for unit in (1.0, 2.0**-33, 2.0**33):
        model = family(X, unit * Y, bounds=BOUNDS)
        given = {"best_f": unit * BEST, "X_baseline": X[:9], "seed": 3}
        value, gradient = value_and_gradient(build(name, model, **given), points(6, 1))
        log = name.startswith("qlog")
        found.append((value - math.log(unit), gradient) if log else (value / unit, gradient / unit))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-9, atol=1e-11)


def test_many_points_and_families_without_moments_have_botorchs_values() -> None:
    many = surrogate("matrix"), points(1, 70)
    exact = ExactGP(X, Y, bounds=BOUNDS), points(2, 2)
    for model, Z in (many, exact):
        sampler = SobolQMCNormalSampler(torch.Size([128]), seed=3)
        check_same([ClosedUpperConfidenceBound(model, 4.0, sampler), plain("qucb", model)], Z)
    iid = ClosedUpperConfidenceBound(many[0], 4.0, IIDNormalSampler(torch.Size([64]), seed=0))
    assert iid(points(2, 2)).shape == (2,)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", CLOSED)
def test_second_derivatives(name: str, family: str) -> None:
    """Against differences of gradients."""
    function = build(name, surrogate(family), best_f=BEST, beta=4.0)
    assert type(function) is CLOSED[name]
    q = 1 if name == "ei" else 2
    Z, direction = points(3, q), points(3, q)

    def gradient(Z: Tensor) -> Tensor:
        Z = Z.clone().requires_grad_()
        return torch.autograd.grad(function(Z).sum(), Z)[0]

    product = torch.autograd.functional.hvp(lambda Z: function(Z).sum(), Z, direction)[1]
    h = 1e-6
    wanted = (gradient(Z + h * direction) - gradient(Z - h * direction)) / (2.0 * h)
    assert torch.allclose(product, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))
    assert wanted.abs().max() > 0.0
