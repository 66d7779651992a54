"""A `WarpedGP` after a fit that warps its outcomes: what the contract cannot see before one."""

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.models.model import ModelList
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms import Standardize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.normal import SobolQMCNormalSampler
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Size, Tensor

from bo_stream import ExactGP, WarpedGP, load
from bo_stream.errors import FallbackWarning, InputError, UnsupportedError
from bo_stream.mathematics.warp import unwarped, warped
from bo_stream.scores import marginals, noise_variance, quantiles
from bo_stream.surrogates.warped import WarpedPosterior
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
    """Below the worst outcome, between, and above the best."""
    coefficients = torch.tensor([3.0, 0.4, 1.2, 0.7, -20.0], dtype=torch.float64)
    y = torch.tensor([-200.0, -20.0, 2.9, 3.0, 3.5, 40.0], dtype=torch.float64)
    w = warped(y, coefficients)
    torch.testing.assert_close(unwarped(w, coefficients), y)
    assert (w.diff() > 0).all()


def test_the_evidence_is_of_the_outcomes_before_the_warp(model: WarpedGP) -> None:
    state = model.state
    y = state.y.clone().requires_grad_()
    w = warped(y, state.coefficients)
    (slopes,) = torch.autograd.grad(w.sum(), y)
    with torch.no_grad():
        K = model.covar_module(state.X).to_dense() + model.likelihood.noise * torch.eye(len(w))
        mean = model.mean_module.constant.expand(len(w))
        latent = torch.distributions.MultivariateNormal(mean, K).log_prob(w)
    torch.testing.assert_close(model.log_evidence().detach(), latent + slopes.log().sum())


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
    assert float(made.log_predictive(x[:0], grid[:0].reshape(0, 1))) == 0.0
    assert float(torch.trapezoid(density, grid[::8])) == pytest.approx(1.0, abs=0.01)


def test_outcomes_beyond_the_best_before(model: WarpedGP) -> None:
    """The warp is anchored at them; its scale stays that of the last fit until the next."""
    made, x = copy.deepcopy(model), torch.tensor([[0.4, 0.4]], dtype=torch.float64)
    assert float(steep(x)) > float(steep(points(25)).max()) + 0.1
    made.observe(x, steep(x))
    assert float(made.posterior(x).mean) == pytest.approx(float(steep(x)), rel=1e-4)
    made.fit()
    assert float(made.posterior(x).mean) == pytest.approx(float(steep(x)), rel=1e-4)
    assert float(made.state.coefficients[0]) == float(made.state.Y.max())


def test_a_large_improvement_keeps_predictions_on_the_scale_of_the_outcomes() -> None:
    """The warp is anchored at it: warped outcomes have mean 0 and deviation 1 as after a fit, and
    the posterior that is updated is the one that is built anew.
    """
    X, x = points(12), torch.tensor([[0.4, 0.4]], dtype=torch.float64)
    made = WarpedGP(X, steep(X).clamp_max(-100.0), bounds=UNIT)
    made.fit()
    made.posterior(x)
    assert made.is_warped
    made.observe(x, torch.tensor([[1e3]], dtype=torch.float64))
    targets = warped(made.state.Y[0], made.state.coefficients)
    assert float(targets.mean()) == pytest.approx(0.0, abs=1e-12)
    assert float(targets.std(correction=0)) == pytest.approx(1.0)
    span, Z = 1e3 - float(steep(X).min()), points(100, 5)
    updated = made.posterior(Z)
    assert updated.mean.abs().max() < 10.0 * span and updated.variance.sqrt().max() < 5.0 * span
    made.refresh()
    torch.testing.assert_close(updated.mean, made.posterior(Z).mean, rtol=1e-6, atol=1e-6 * span)


def test_the_order_of_outcomes_between_fits_does_not_matter(model: WarpedGP) -> None:
    one, other = copy.deepcopy(model), copy.deepcopy(model)
    X = torch.cat([torch.tensor([[0.4, 0.4]]).double(), points(3, 5)])
    one.observe(X[:1], steep(X[:1])).observe(X[1:], steep(X[1:]))
    other.observe(X[1:], steep(X[1:])).observe(X[:1], steep(X[:1]))
    Z = points(20, 6)
    torch.testing.assert_close(one.state.warp, other.state.warp)
    torch.testing.assert_close(
        one.posterior(Z).quantile(LEVELS), other.posterior(Z).quantile(LEVELS), rtol=1e-4, atol=1e-4
    )


def with_ties(kind: str, n: int) -> Tensor:
    y = (5.0 * points(n)[:, :1]).sin() + points(n).square().sum(-1, keepdim=True)
    ordered = y.sort(0).values[:, 0]
    return {
        "best": y.clamp_max(ordered[n // 3]),
        "worst": y.clamp_min(ordered[-2]),
        "two": (y > ordered[n // 2]).double(),
        "rounded": y.round(),
        "sentinel": torch.where(y == ordered[n // 2], -1e9, y),
    }[kind]


@pytest.mark.parametrize("n", [2, 3, 16])
@pytest.mark.parametrize("kind", ["best", "worst", "two", "rounded", "sentinel"])
@pytest.mark.parametrize("noise", ["learned", "none"])
def test_tied_outcomes(kind: str, n: int, noise: Any) -> None:
    """Predictions are on the scale of the outcomes, whatever is tied; so are repeated points that
    contradict exactness.
    """
    Z, Y = points(60, 5), with_ties(kind, n)
    span, middle = float(Y.max() - Y.min()) or 1.0, 0.5 * float(Y.max() + Y.min())
    for X in (points(n), points(n)[torch.arange(n) // 2]):
        made = WarpedGP(X, Y, noise=noise, bounds=UNIT)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            assert made.fit().converged
        inner = quantiles(made, Z, [0.05, 0.95])
        assert (inner - middle).abs().max() <= 30.0 * span
        posterior = made.posterior(Z)
        assert (posterior.mean - middle).abs().max() <= 10.0 * span
        assert posterior.variance.max().sqrt() <= 10.0 * span


@pytest.mark.parametrize("y", [0.0, 3.7, -1e9])
def test_equal_outcomes_determine_no_hyperparameters(y: float) -> None:
    """They keep the centre of their priors; an improvement is absorbed and learned."""
    X, x = points(5), points(1, 9)
    made = WarpedGP(X, torch.full((5, 1), y, dtype=torch.float64), bounds=UNIT)
    report = made.fit()
    assert report.converged and not made.is_warped
    assert report.value == pytest.approx(float(made.make_mll()().detach()), abs=1e-6)
    torch.testing.assert_close(made.covar_module.base_kernel.lengthscale, torch.ones(1, 2).double())
    far = made.posterior(torch.tensor([[0.0, 1.0]]).double())
    unit = abs(y) or 1.0
    assert float(far.mean) == pytest.approx(y) and 0.01 < float(far.variance) / unit**2 < 1.0
    made.observe(x, torch.full((1, 1), y + 1.0 + abs(y)).double())
    made.fit()
    assert float(made.posterior(x).mean) > y + 0.5 * (1.0 + abs(y))


@pytest.mark.parametrize("n", [1, 3])
def test_equal_outcomes_take_over_a_warp(model: WarpedGP, n: int) -> None:
    X = points(n)
    made = WarpedGP(X, steep(X[:1]).expand(n, 1), noise="none", bounds=UNIT)
    made.load_state_dict(model.state_dict())
    assert made.is_warped and bool(made.make_mll()().isfinite())
    made.fit()
    torch.testing.assert_close(made.posterior(X[:1]).mean, steep(X[:1]))


def test_contradicted_exactness_is_learned_as_noise() -> None:
    X = points(12).repeat(2, 1)
    Y = steep(X) + torch.randn(24, 1, generator=torch.Generator().manual_seed(1)).double()
    made = WarpedGP(X, Y, noise="none", warp="none", bounds=UNIT)
    with pytest.warns(FallbackWarning, match="not exact") as caught:
        report = made.fit()
    assert caught[0].filename == __file__
    learned = WarpedGP(X, Y, warp="none", bounds=UNIT)
    assert report == learned.fit()
    assert float(made.make_mll()().detach()) == pytest.approx(report.value, abs=1e-6)
    torch.testing.assert_close(made.posterior(X).mean, learned.posterior(X).mean)
    assert made.latent().values.max() < made._rows(made.state).Y.max()  # of the posterior mean


def test_predictions_beyond_the_worst_outcome_are_straight(model: WarpedGP) -> None:
    """A quantile 10 deviations below the worst outcome is ten slopes below, not ten decades."""
    coefficients, worst = model.state.coefficients, steep(points(25)).min()
    w = warped(model.state.Y.min(), coefficients)
    outcomes = model.outcome_map()
    assert outcomes is not None
    below = [float(outcomes.untransform((w - k).reshape(1, 1))[0]) for k in (0.0, 1.0, 10.0)]
    assert below[0] == pytest.approx(float(worst))
    assert worst - below[2] == pytest.approx(10.0 * (worst - below[1]))


def test_tiny_known_noise_is_not_drowned_by_jitter() -> None:
    """A variance of 1e7 over noise of 1e-8: the data are met as in arithmetic of 19 digits."""
    X, scales = points(150, 1), torch.tensor([16.0, 130.0], dtype=torch.float64)
    Y = (3.0 * X).sin().prod(-1, keepdim=True)
    made = WarpedGP(X, Y, torch.full_like(Y, 1e-8), bounds=UNIT, outcome_transform=None)
    made.covar_module.base_kernel.lengthscale, made.covar_module.outputscale = scales, 1e7
    K = kernel_in_extended_precision(X, scales)
    y = Y[:, 0].numpy().astype(np.longdouble)
    exact = K @ solved_in_extended_precision(K + 1e-15 * np.eye(150, dtype=np.longdouble), y)
    found = made.posterior(X).mean[:, 0].detach().numpy()
    assert abs(exact - y).max() < 1e-3
    assert abs(found - exact).max() < 2e-3


def kernel_in_extended_precision(X: Tensor, scales: Tensor) -> Any:
    Z = (X / scales).numpy().astype(np.longdouble)
    r = np.sqrt(5.0 * ((Z[:, None] - Z) ** 2).sum(-1))
    return (1.0 + r + r * r / 3.0) * np.exp(-r)


def solved_in_extended_precision(C: Any, b: Any) -> Any:
    """Gaussian elimination of a positive definite matrix."""
    A = np.column_stack([C, b])
    for j in range(len(A)):
        A[j + 1 :] -= np.outer(A[j + 1 :, j] / A[j, j], A[j])
    x = np.zeros_like(b)
    for j in reversed(range(len(A))):
        x[j] = (A[j, -1] - A[j, :-1] @ x) / A[j, j]
    return x


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e12])
def test_predictions_scale_with_the_outcomes(scale: float) -> None:
    """Without a standardisation, too."""
    X, Z = points(25), points(20, 5)
    found = []
    for a in (1.0, scale):
        made = WarpedGP(X, a * steep(X), bounds=UNIT, outcome_transform=None)
        made.fit()
        assert made.is_warped
        found.append(made.posterior(Z).quantile(LEVELS) / a)
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [ModelListGP, ModelList])
def test_lists_of_warped_surrogates(kind: Any, model: WarpedGP) -> None:
    """Their posterior is that of the members, and acquisition functions read it."""
    X = points(25)
    plain = WarpedGP(X, X.sum(-1, keepdim=True), noise="none", bounds=UNIT)
    plain.fit()
    assert not plain.is_warped
    models, Z = kind(model, plain), points(6, 5).reshape(3, 2, 2).requires_grad_()
    posterior = models.posterior(Z)
    for i, member in enumerate((model, plain)):
        torch.testing.assert_close(posterior.mean[..., [i]], member.posterior(Z).mean)
        torch.testing.assert_close(posterior.variance[..., [i]], member.posterior(Z).variance)
    worth = GenericMCObjective(lambda Y, X=None: Y[..., 0] + Y[..., 1])
    reference = torch.tensor([-100.0, 0.0]).double()
    for acquisition in (
        qLogExpectedImprovement(models, 0.0, objective=worth),
        qLogNoisyExpectedHypervolumeImprovement(models, reference, X, prune_baseline=True),
    ):
        (slope,) = torch.autograd.grad(acquisition(Z).sum(), Z)
        assert slope.isfinite().all() and slope.abs().sum() > 0
    given = models.fantasize(Z, SobolQMCNormalSampler(Size([4]), seed=1))
    assert given.posterior(Z).rsample(Size([2])).shape == (2, 4, 3, 2, 2)


def test_conditioning_a_list_of_warped_surrogates(model: WarpedGP) -> None:
    """As conditioning its members; raw variances have no meaning under a warp."""
    models, X, Z = ModelListGP(model, model), points(3, 5), points(4, 6)
    Y = torch.cat([steep(X), steep(X) - 1.0], -1)
    given = models.condition_on_observations([X, X], Y)
    for i in range(2):
        alone = model.condition_on_observations(X, Y[:, [i]])
        torch.testing.assert_close(given.posterior(Z).mean[:, [i]], alone.posterior(Z).mean)
    with pytest.raises(UnsupportedError, match="warp='none'"):
        models.condition_on_observations([X, X], Y, noise=torch.ones_like(Y))


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


@pytest.mark.parametrize(
    "module",
    [
        {"covar_module": RBFKernel()},
        {"mean_module": ZeroMean()},
        {"likelihood": GaussianLikelihood()},
    ],
)
def test_other_modules_are_refused(module: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="ExactGP"):
        fitted(**module)


def test_noise_of_every_outcome_is_added_in_a_list():
    """BoTorch's lists pass a tensor of noise with the place of each output among all."""
    X = torch.rand(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = X.sum(-1, keepdim=True)
    first, second = WarpedGP(X, Y, bounds="unit"), ExactGP(X, Y.sin(), bounds="unit")
    noise = torch.tensor([[0.1, 0.2]], dtype=torch.float64).expand(3, 2)
    found = ModelListGP(first, second).posterior(X[:3], observation_noise=noise)
    wanted = second.posterior(X[:3], observation_noise=noise[:, 1:])
    torch.testing.assert_close(found.variance[:, 1:], wanted.variance)
