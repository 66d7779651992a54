"""Data in their own units, with bounds and nothing else, are learned from like scaled ones."""

import warnings

import pytest
import torch
from botorch.acquisition.analytic import ExpectedImprovement, LogExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.transforms.outcome import ChainedOutcomeTransform, Standardize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.normal import SobolQMCNormalSampler
from linear_operator.operators import DiagLinearOperator
from linear_operator.utils.warnings import NumericalWarning

from acquisitions import NIPV
from bo_stream import WISKI, ExactGP
from bo_stream.base.gaussian_model import ScaleFreeNormal
from bo_stream.errors import InputError, NoiseError
from bo_stream.surrogates.registry import FAMILIES, surrogate

BOUNDS = torch.tensor([[20.0, 1e-4], [900.0, 0.1]], dtype=torch.double)


def data(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A smooth function of two inputs of very different scales, with values in the hundreds."""
    generator = torch.Generator().manual_seed(seed)
    U = torch.rand(n, 2, generator=generator, dtype=torch.double)
    Y = 1000.0 * (5.0 * U[:, :1]).sin() + 500.0 * (7.0 * U[:, 1:]).cos()
    return BOUNDS[0] + U * (BOUNDS[1] - BOUNDS[0]), Y


@pytest.mark.parametrize(
    "name", [pytest.param(f, marks=[pytest.mark.slow] * ("projected" in f)) for f in FAMILIES]
)
def test_bounds_suffice(name: str) -> None:
    model = surrogate(name, *data(60, 0), bounds=BOUNDS)
    model.fit(40)
    X, Y = data(500, 1)
    with torch.no_grad():
        errors = model.posterior(X).mean - Y
    assert float(1.0 - errors.square().mean() / Y.var()) > 0.99


UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)


def small(n: int = 30, outputs: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=generator, dtype=torch.double)
    return X, torch.stack([(4.0 * X[:, 0] + k).sin() + X[:, 1] for k in range(outputs)], -1)


def test_outputs_in_different_units() -> None:
    """One in 1e-12, one in 1e12, in samples of points so close that their covariance is singular
    and under a transform to one output.
    """
    X, Y = small(outputs=2)
    units, Z = torch.tensor([2.0**-40, 2.0**40]).double(), X[:1] + 1e-9 * X[:20]
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    found = []
    for unit in (torch.ones(2).double(), units):
        model = ExactGP(X, unit * Y, bounds=UNIT)
        total = ScalarizedPosteriorTransform(unit[0] / unit)  # in the unit of the first
        parts = []
        for posterior, one in (
            (model.posterior(Z), unit),
            (model.posterior(X, [1]), unit[1]),
            (model.posterior(X, posterior_transform=total), unit[0]),
        ):
            parts += [posterior.mean / one, posterior.variance.sqrt() / one]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)  # jitter
            parts.append(sampler(model.posterior(Z)) / unit)
        parts.append(NIPV(model, X, posterior_transform=total)(X[:1]) / unit[0] ** 2)
        found.append(parts)
    torch.testing.assert_close(*found, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("value", [0.0, 3e-9, -5e7])
def test_equal_outcomes_have_their_size_as_unit(name: str, value: float) -> None:
    """What is not seen to vary is expected to vary by its size, or by 1 if it is zero."""
    X = torch.rand(6, 11, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.double).expand(2, 11)
    X, bounds = (X, bounds) if name == "trust_region" else (X[:, :2], bounds[:, :2])
    model = surrogate(name, X, torch.full((6, 1), value, dtype=torch.double), bounds=bounds)
    posterior, size = model.posterior(1.0 - X), abs(value) or 1.0
    assert float(model.outcome_transform.stdvs) == pytest.approx(size)
    assert bool(((posterior.mean - value).abs() < 1e-6 * size).all())
    assert bool((posterior.variance.sqrt() <= 1.1 * size).all())
    assert bool((posterior.variance > 0.0).all())


def test_a_standardize_with_limits_of_its_own() -> None:
    """Outputs that it leaves alone stay so, and so does one that varies less than it asks for."""
    X, Y = small(outputs=2)
    chosen = ExactGP(X, 1e-10 * Y, bounds=UNIT, outcome_transform=Standardize(2, outputs=[1]))
    torch.testing.assert_close(chosen.outcome_transform.stdvs[0, 1], 1e-10 * Y[:, 1].std())
    assert float(chosen.outcome_transform.stdvs[0, 0]) == 1.0
    coarse = ExactGP(X, Y, bounds=UNIT, outcome_transform=Standardize(2, min_stdv=10.0))
    assert bool((coarse.outcome_transform.stdvs == 1.0).all())
    chain = ChainedOutcomeTransform(first=Standardize(2), then=Standardize(2))
    found = ExactGP(X, 1e-10 * Y, bounds=UNIT, outcome_transform=chain).outcome_transform
    torch.testing.assert_close(found["first"].stdvs, 1e-10 * Y.std(0, keepdim=True))


def test_no_variance_at_all_is_no_nan() -> None:
    """A covariance that rounding has made zero: quantiles and improvements are finite."""
    mean, zero = torch.ones(3).double(), torch.zeros(3).double()
    posterior = GPyTorchPosterior(ScaleFreeNormal(mean, DiagLinearOperator(zero)))
    assert bool((posterior.variance > 0.0).all())
    assert bool(posterior.quantile(torch.tensor([0.1]).double()).isfinite().all())

    class Certain(ExactGP):
        def posterior(self, X: torch.Tensor, **kwargs: object) -> GPyTorchPosterior:
            like = 0.0 * X.sum(-1)
            return GPyTorchPosterior(ScaleFreeNormal(like, DiagLinearOperator(like)))

    X, Y = small()
    at = X[:2].unsqueeze(-2).requires_grad_()
    for kind in (ExpectedImprovement, LogExpectedImprovement):
        value = kind(Certain(X, Y, bounds=UNIT), 0.0)(at)
        assert bool(value.isfinite().all())
        assert bool(torch.autograd.grad(value.sum(), at)[0].isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("known", [False, True])
def test_outcomes_whose_squares_overflow_are_refused(dtype: torch.dtype, known: bool) -> None:
    X, Y = (t.to(dtype) for t in small())
    Yvar, huge = torch.full_like(Y, 0.01) if known else None, torch.full_like(Y, 1e17)
    huge = huge if dtype == torch.float32 else huge * 1e183
    model = WISKI(X, Y, Yvar, bounds=UNIT)
    before = model.state_dict()
    calls = [
        lambda: WISKI(X, huge, Yvar, bounds=UNIT),
        lambda: model.observe(X, huge, Yvar),
        lambda: model.condition_on_observations(X, huge),
        lambda: model.log_predictive(X, huge, Yvar),
        lambda: model.restandardise(huge),
    ]
    if known:
        calls.append(lambda: model.observe(X, Y, huge.square()))
    for call in calls:
        with pytest.raises((InputError, NoiseError), match="at most"):
            call()
    after = model.state_dict()
    tensors = {name: value for name, value in before.items() if isinstance(value, torch.Tensor)}
    assert all(torch.equal(after[name], value) for name, value in tensors.items())
    with pytest.raises(InputError, match="vary by at least"):
        WISKI(X, Y * (1e-20 if dtype == torch.float32 else 1e-200), bounds=UNIT)
