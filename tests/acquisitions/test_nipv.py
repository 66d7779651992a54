"""NIPV against what it replaces: fantasies, then the posterior variance at every test point."""

from collections.abc import Callable

import pytest
import torch
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import SingleTaskGP
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.sampling.normal import IIDNormalSampler
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from acquisitions import NIPV
from bo_stream import WISKI, ExactGP
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import BoundsError, InputError, NoiseError, ShapeError, UnsupportedError
from tests.raw import RAW

BOUNDS = torch.tensor([[0.0, -1.0], [2.0, 1.0]], dtype=torch.float64)


def points(n: int, seed: int, *batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    unit = torch.rand(*batch, n, 2, dtype=torch.float64, generator=generator)
    return BOUNDS[0] + unit * (BOUNDS[1] - BOUNDS[0])


def values(X: Tensor, outputs: int = 1) -> Tensor:
    columns = [torch.sin(3.0 * X[..., 0]) + X[..., 1] ** 2, X[..., 0] * X[..., 1]]
    return 5.0 + 3.0 * torch.stack(columns[:outputs], dim=-1)


X, T = points(15, 0), points(12, 1)
Y, YVAR = values(X), 0.1 + X[:, :1] / 10.0


def wiski(*args: Tensor, **kw: object) -> WISKI:
    return WISKI(*args, bounds=BOUNDS, grid_size=12, **{**RAW, **kw})  # type: ignore[arg-type]


def exact(*args: Tensor, **kw: object) -> ExactGP:
    return ExactGP(*args, bounds=BOUNDS, **{**RAW, **kw})  # type: ignore[arg-type]


FAMILIES = pytest.mark.parametrize("family", [wiski, exact], ids=["wiski", "exact"])
INSTANCES: dict[str, Callable[[Callable[..., StreamingGP]], GaussianModel]] = {
    "learned": lambda f: f(X, Y),
    "known": lambda f: f(X, Y, YVAR),
    "scaled": lambda f: f(X, Y, YVAR, likelihood=GaussianLikelihood()),
    "transformed": lambda f: f(
        X, Y, outcome_transform=Standardize(1), input_transform=Normalize(2, bounds=BOUNDS)
    ),
    "folded": lambda f: _asked(f(X[:10], Y[:10])).observe(X[10:], Y[10:]),
    "conditioned": lambda f: f(X[:10], Y[:10]).condition_on_observations(
        X[10:].clone().requires_grad_(), Y[10:]
    ),
    "nothing seen": lambda f: f(X[:0], Y[:0]),
    "two outputs": lambda f: f(X, values(X, 2), outcome_transform=Standardize(2)),
}
MODELS = pytest.mark.parametrize("instance", INSTANCES)


def _asked(model: StreamingGP) -> StreamingGP:
    NIPV(model, T)(X[:1])  # so that there is something to carry over to what is observed next
    return model


def transform_for(model: GaussianModel) -> ScalarizedPosteriorTransform | None:
    if model.num_outputs == 1:
        return None
    return ScalarizedPosteriorTransform(torch.tensor([0.5, -2.0], dtype=torch.float64))


def brute_force(model: GaussianModel, X_new: Tensor, weights: Tensor) -> Tensor:
    """Fantasize, then average the variance over the test points, one at a time."""
    fantasy = model.fantasize(X_new, IIDNormalSampler(torch.Size([1]), seed=0))
    total = torch.zeros((), dtype=torch.float64)
    for t, w in zip(T, weights / weights.sum(), strict=True):
        posterior = fantasy.posterior(t.unsqueeze(0), posterior_transform=transform_for(model))
        total = total + w * posterior.variance.squeeze()
    return -total


@FAMILIES
@MODELS
def test_value_is_the_brute_force_sum(family: Callable[..., StreamingGP], instance: str) -> None:
    model = INSTANCES[instance](family)
    weights = points(len(T), 2)[:, 0]
    acqf = NIPV(model, T, posterior_transform=transform_for(model), weights=weights)
    batch = points(3, 3, 2)
    expected = torch.stack([brute_force(model, x, weights) for x in batch])
    torch.testing.assert_close(acqf(batch), expected, rtol=1e-10, atol=1e-12)


@FAMILIES
@MODELS
def test_gradient_is_that_of_finite_differences(
    family: Callable[..., StreamingGP], instance: str
) -> None:
    model = INSTANCES[instance](family)
    acqf = NIPV(model, T, posterior_transform=transform_for(model), X_pending=points(2, 5))
    # away from the grid's nodes, where the second derivative of the interpolation jumps
    batch = points(2, 4, 3).requires_grad_()
    (gradient,) = torch.autograd.grad(acqf(batch).sum(), batch)
    assert float(gradient.abs().max()) > 1e-4
    h, numerical = 1e-5, torch.zeros_like(gradient)
    with torch.no_grad():
        for i in range(batch[0].numel()):
            step = torch.zeros(batch[0].numel(), dtype=torch.float64)
            step[i] = h
            step = step.reshape(batch.shape[1:])
            difference = (acqf(batch + step) - acqf(batch - step)) / (2.0 * h)
            numerical.view(3, -1)[:, i] = difference
    scale = float(gradient.abs().max())
    torch.testing.assert_close(gradient, numerical, rtol=1e-6, atol=1e-6 * scale)


@FAMILIES
def test_it_drops_in_for_botorchs(family: Callable[..., StreamingGP]) -> None:
    model = INSTANCES["transformed"](family)
    ours, stock = NIPV(model, T), qNegIntegratedPosteriorVariance(model, T)
    for batch in (points(3, 6), points(1, 6, 4), points(2, 6, 3, 4)):
        torch.testing.assert_close(ours(batch), stock(batch), rtol=1e-10, atol=1e-12)
    for pending in (points(2, 7), None):
        ours.set_X_pending(pending)
        stock.set_X_pending(pending)
        torch.testing.assert_close(ours(batch), stock(batch), rtol=1e-10, atol=1e-12)


@FAMILIES
def test_pending_points_count_as_measured(family: Callable[..., StreamingGP]) -> None:
    model, batch, pending = family(X, Y), points(2, 8, 3), points(2, 9)
    joined = torch.cat([batch, pending.expand(3, 2, 2)], -2)
    with_pending = NIPV(model, T, X_pending=pending)
    torch.testing.assert_close(with_pending(batch), NIPV(model, T)(joined), rtol=1e-12, atol=0.0)
    assert bool((with_pending(batch) > NIPV(model, T)(batch) + 1e-4).all())


@FAMILIES
def test_one_object_follows_its_model(family: Callable[..., StreamingGP]) -> None:
    model, batch = family(X[:5], Y[:5]), points(2, 10, 3)
    acqf = NIPV(model, T)
    values_seen = [acqf(batch)]
    for rows in (slice(5, 8), slice(8, 9), slice(9, 15)):
        model.observe(X[rows], Y[rows])
        values_seen.append(acqf(batch))
        fresh = family(X[: rows.stop], Y[: rows.stop])
        torch.testing.assert_close(values_seen[-1], NIPV(fresh, T)(batch), rtol=1e-9, atol=1e-13)
    model.covar_module.base_kernel.lengthscale = 0.4
    fresh.covar_module.base_kernel.lengthscale = 0.4
    values_seen.append(acqf(batch))
    torch.testing.assert_close(values_seen[-1], NIPV(fresh, T)(batch), rtol=1e-9, atol=1e-13)
    jumps = torch.stack(values_seen).diff(dim=0).abs().amin(1)
    assert float(jumps.min()) > 1e-4  # every change of the model did change the value


def test_wiski_never_meets_the_test_points_again() -> None:
    many, Z = points(40_000, 11), points(200, 12)  # their joint covariance would take 12.8 GB
    model = wiski(Z, values(Z))
    acqf, few = NIPV(model, many), NIPV(model, many[:4_000])
    assert float((acqf(X[:3]) - few(X[:3])).abs()) < 0.05 * float(acqf(X[:3]).abs())
    assert len(acqf.current()[1].weights) <= 144


@FAMILIES
def test_weights_are_normalised(family: Callable[..., StreamingGP]) -> None:
    model = family(X, Y)
    weights = torch.zeros(len(T), dtype=torch.float64)
    weights[7] = 123.0
    alone = NIPV(model, T[7:8])(X[:2])
    torch.testing.assert_close(NIPV(model, T, weights=weights)(X[:2]), alone, rtol=1e-10, atol=0.0)


@FAMILIES
def test_float32_in_float32_out(family: Callable[..., StreamingGP]) -> None:
    model = family(X.float(), Y.float(), outcome_transform=Standardize(1))
    reference = family(X.float().double(), Y.float().double(), outcome_transform=Standardize(1))
    batch = points(2, 12, 3).float()
    value = NIPV(model, T.float())(batch)
    assert value.dtype == torch.float32
    expected = NIPV(reference, T.float().double())(batch.double())
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0.0)


def test_the_input_constructor_needs_no_training_data() -> None:
    model = wiski(X, Y)
    assert not hasattr(model, "train_inputs")
    kwargs = get_acqf_input_constructor(NIPV)(
        model=model, training_data=None, bounds=[(0.0, 2.0), (-1.0, 1.0)], num_mc_points=64
    )
    acqf = NIPV(**kwargs)
    assert acqf.mc_points.shape == (64, 2)
    assert bool((acqf.mc_points >= BOUNDS[0]).all() and (acqf.mc_points <= BOUNDS[1]).all())
    assert bool(acqf(X[:2]).isfinite())


def test_what_it_cannot_do_is_refused_at_construction() -> None:
    model, two = wiski(X, Y), wiski(X, values(X, 2))
    with pytest.raises(UnsupportedError, match="qNegIntegratedPosteriorVariance"):
        NIPV(SingleTaskGP(X, Y), T)
    with pytest.raises(UnsupportedError, match="posterior_transform"):
        NIPV(two, T)
    with pytest.raises(UnsupportedError, match="linear"):
        NIPV(wiski(X, Y.exp().clamp_min(0.1), outcome_transform=Log()), T)
    with pytest.raises(ShapeError, match="one per test point"):
        NIPV(model, T, weights=torch.ones(3))
    with pytest.raises(InputError, match="not all zero"):
        NIPV(model, T, weights=torch.zeros(len(T)))
    with pytest.raises(InputError, match="non-negative"):
        NIPV(model, T, weights=torch.ones(len(T)).index_fill(0, torch.tensor([3]), -1.0))
    with pytest.raises(ShapeError, match="at least one test point"):
        NIPV(model, T[:0])


def test_points_and_noise_it_cannot_use_are_refused() -> None:
    acqf = NIPV(wiski(X, Y), T)
    with pytest.raises(BoundsError):
        acqf(X[:2] + 10.0)
    with pytest.raises(BoundsError):
        NIPV(wiski(X, Y), T + 10.0)(X[:2])
    with pytest.raises(NoiseError, match="none so far"):
        NIPV(wiski(X[:0], Y[:0], YVAR[:0]), T)(X[:2])
