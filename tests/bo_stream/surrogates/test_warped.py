"""A `WarpedGP` after a fit that warps its outcomes: what the contract cannot see before one."""

import copy
from pathlib import Path

import pytest
import torch
from botorch.models.transforms import Standardize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Size, Tensor

from bo_stream import ExactGP, WarpedGP, load
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.mathematics.warped.warp import WarpedPosterior, log_slopes, unwarped, warped
from bo_stream.scores import marginals, noise_variance, quantiles
from bo_stream.testing import oracles

UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
LEVELS = torch.tensor([0.025, 0.5, 0.975], dtype=torch.float64)


def points(n: int, seed: int = 0) -> Tensor:
    return torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def steep(X: Tensor) -> Tensor:
    """Outcomes that fall by orders of magnitude away from the optimum."""
    return 50.0 - 30.0 * (6.0 * (X - 0.4).square().sum(-1, keepdim=True)).exp()


def fitted(n: int = 25, **options: object) -> WarpedGP:
    X = points(n)
    model = WarpedGP(X, steep(X), bounds=UNIT, **options)  # type: ignore[arg-type]
    model.fit()
    return model


@pytest.fixture(scope="module")
def model() -> WarpedGP:
    made = fitted(noise="none")
    assert made.is_warped
    return made


def test_the_warp_and_its_inverse() -> None:
    """Below the worst outcome, between, and above the best, with the slopes of autograd."""
    coefficients = torch.tensor([3.0, 0.4, 1.2, 0.7, -20.0], dtype=torch.float64)
    y = torch.tensor([-200.0, -20.0, 2.9, 3.0, 3.5, 40.0], dtype=torch.float64, requires_grad=True)
    w = warped(y, coefficients)
    torch.testing.assert_close(unwarped(w, coefficients), y)
    assert (w.diff() > 0).all()
    (slopes,) = torch.autograd.grad(w.sum(), y)
    torch.testing.assert_close(log_slopes(y, coefficients), slopes.log().sum())


def test_evidence_decides_whether_to_warp(model: WarpedGP) -> None:
    """Gaussian outcomes stay as they are; a warp that is refused stays out."""
    X = points(40)
    Y = (5.0 * X).sin().sum(-1, keepdim=True)
    noise = 0.3 * torch.randn(40, 1, generator=torch.Generator().manual_seed(1)).double()
    plain = WarpedGP(X, Y + noise, bounds=UNIT)
    plain.fit()
    assert not plain.is_warped and type(plain.posterior(X)) is GPyTorchPosterior
    straight = WarpedGP(X, X.sum(-1, keepdim=True), noise="none", bounds=UNIT)
    straight.fit()
    assert not straight.is_warped and not fitted(warp="none").is_warped
    worse = WarpedGP(points(25), steep(points(25)), noise="none", warp="none", bounds=UNIT)
    assert model.fit().value > worse.fit().value + 5.0


def test_the_fit_maximises_the_objective(model: WarpedGP) -> None:
    """The reported value is the objective, whose gradient vanishes in every parameter."""
    for made in (copy.deepcopy(model), fitted(), fitted(warp="none")):
        report, mll = made.fit(), made.make_mll()
        assert report.value == pytest.approx(float(mll().detach()), abs=1e-6)
        learned = [p for p in made.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(mll(), learned)
        assert max(float(g.abs().max()) for g in gradients) < 0.1


def test_exact_evaluations_are_interpolated(model: WarpedGP) -> None:
    X = points(25)
    posterior = model.posterior(X)
    torch.testing.assert_close(posterior.mean, steep(X), rtol=1e-3, atol=1e-3)
    Z = points(200, 5)
    assert (model.posterior(Z).mean - steep(Z)).abs().median() < 1.0


def test_a_warped_posterior_is_in_raw_units(model: WarpedGP) -> None:
    """Quantiles, mean and variance are those of its samples."""
    posterior = model.posterior(points(4, 5))
    assert isinstance(posterior, WarpedPosterior)
    torch.manual_seed(0)
    draws = posterior.rsample(Size([20_000]))
    assert draws.shape == (20_000, 4, 1)
    seen = draws.quantile(LEVELS, 0)
    width = (seen[2] - seen[0]).squeeze(-1)
    exact = posterior.quantile(LEVELS)
    assert ((exact - seen).abs().squeeze(-1) < 0.05 * width).all()
    torch.testing.assert_close(posterior.median, exact[1])
    error = (posterior.mean - draws.mean(0)).abs() / (draws.std(0) / 20_000**0.5)
    assert (error < 5.0).all()
    torch.testing.assert_close(posterior.variance, draws.var(0), rtol=0.2, atol=0.0)


def test_predictions_cover_what_they_promise(model: WarpedGP) -> None:
    """Scores in raw units; mean and standard deviation are those of the posterior."""
    Z = points(400, 6)
    low, high = quantiles(model, Z, [0.025, 0.975])
    inside = ((steep(Z)[:, 0] >= low) & (steep(Z)[:, 0] <= high)).double().mean()
    assert 0.88 <= float(inside) <= 1.0
    mean, variance = marginals(model, Z)
    posterior = model.posterior(Z)
    torch.testing.assert_close(mean, posterior.mean[:, 0])
    torch.testing.assert_close(variance, posterior.variance[:, 0])
    with pytest.raises(UnsupportedError, match="linear"):
        noise_variance(model)
    with pytest.raises(InputError, match="levels"):
        quantiles(model, Z, [0.0])


def test_quantiles_without_a_warp() -> None:
    made = ExactGP(points(12), points(12).sum(-1, keepdim=True), outcome_transform=Standardize(1))
    Z = points(3, 5)
    posterior = made.posterior(Z, observation_noise=True)
    expected = posterior.mean + 1.959964 * posterior.variance.sqrt()
    found = quantiles(made, Z, [0.975], noise=True)
    torch.testing.assert_close(found[0], expected[:, 0], rtol=1e-6, atol=1e-6)


def test_the_density_of_new_data_integrates_to_one() -> None:
    made, x = fitted(), points(1, 5)
    inner = made.posterior(x, observation_noise=True).quantile(torch.tensor([1e-6, 1.0 - 1e-6]))
    low, high = inner.reshape(-1).tolist()
    grid = torch.linspace(low, high, 4001, dtype=torch.float64)
    density = torch.stack([made.log_predictive(x, y.reshape(1, 1)).exp() for y in grid[::8]])
    assert float(torch.trapezoid(density, grid[::8])) == pytest.approx(1.0, abs=0.01)


def test_outcomes_beyond_the_best_before(model: WarpedGP) -> None:
    """They anchor the warp, whose scale stays that of the last fit until the next."""
    made, x = copy.deepcopy(model), torch.tensor([[0.4, 0.4]], dtype=torch.float64)
    assert float(steep(x)) > float(steep(points(25)).max()) + 0.1
    made.observe(x, steep(x))
    assert float(made.posterior(x).mean) == pytest.approx(float(steep(x)), rel=1e-4)
    made.fit()
    assert float(made.posterior(x).mean) == pytest.approx(float(steep(x)), rel=1e-4)
    assert float(made.state.warp[0]) == float(made.state.Y.max())


def test_fantasies_are_conditioned_on_in_the_latent_space(model: WarpedGP) -> None:
    Z, test = points(2, 7), points(3, 8)
    sampler = SobolQMCNormalSampler(Size([4]), seed=3)
    given = model.fantasize(Z, sampler)
    Y = sampler(model.posterior(Z, observation_noise=True))
    joint = model.process().at(torch.cat([Z, test]))
    transform = model.outcome_map()
    assert transform is not None
    for i in range(4):
        mean, cov = oracles.condition(
            joint.mean[0],
            joint.covariance(joint)[0],
            transform(Y[i])[0][:, 0],
            model.typical_noise(),
        )
        latent = given.posterior(test).latent
        torch.testing.assert_close(latent.mean[i, :, 0], mean, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(latent.variance[i, :, 0], cov.diagonal(), rtol=1e-3, atol=1e-7)


def test_units_do_not_matter(model: WarpedGP) -> None:
    """Another standardisation changes no prediction; neither do the units of the data."""
    Z = points(5, 9)
    before = model.posterior(Z).quantile(LEVELS)
    made = copy.deepcopy(model).restandardise(torch.tensor([[-900.0], [400.0]]).double())
    torch.testing.assert_close(made.posterior(Z).quantile(LEVELS), before, rtol=1e-6, atol=1e-6)
    X = points(25)
    scaled = WarpedGP(X, 1e3 * steep(X) - 7e4, noise="none", bounds=UNIT)
    scaled.fit()
    again = (scaled.posterior(Z).quantile(LEVELS) + 7e4) / 1e3
    torch.testing.assert_close(again, before, rtol=1e-2, atol=1e-2)


def test_a_warped_surrogate_comes_back(model: WarpedGP, tmp_path: Path) -> None:
    """From a file, and goes on to the last bit."""
    model.save(tmp_path / "model.pt")
    again, made = load(tmp_path / "model.pt"), copy.deepcopy(model)
    X = points(3, 11)
    for m in (made, again):
        m.observe(X, steep(X))
        m.fit()
    assert torch.equal(again.posterior(X).mean, made.posterior(X).mean)
    assert torch.equal(again.state.warp, made.state.warp)


def test_known_noise_is_not_warped() -> None:
    X = points(25)
    made = WarpedGP(X, steep(X), torch.full((25, 1), 4.0).double(), bounds=UNIT)
    made.fit()
    assert not made.is_warped


@pytest.mark.parametrize("options", [{"noise": "some"}, {"warp": "yes"}])
def test_unknown_options(options: dict[str, str]) -> None:
    with pytest.raises(InputError, match="one of"):
        fitted(**options)
