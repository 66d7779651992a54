"""`forget`: exponential forgetting, against dense Gaussian algebra with weights (MATHS 2.2)."""

import math

import pytest
import torch
from botorch.models.transforms import Standardize
from gpytorch.likelihoods import GaussianLikelihood

from bo_stream import HSGP, WISKI, load, surrogate
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.growth import FixedSize
from bo_stream.testing.base import close

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
FAMILIES = {
    "wiski": {"grid_size": 9},
    "wiski on many nodes": {"grid_size": 24},
    "hsgp": {"num_features": 40},
}
OTHERS = {
    "exact": {},
    "cagp": {},
    "online_sgpr": {"growth": FixedSize(8)},
    "svdgp": {"window": 10, "covar_basis": 8},
}
SMALL = ["wiski", "hsgp"]
FACTOR, AGES = 0.8, (2, 1, 1, 0)


def data(n=40, seed=0, outputs=1):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    Y = (4.0 * X.sum(-1, keepdim=True) + torch.arange(outputs)).sin()
    Y = Y + 0.2 * torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    return X, Y, 0.02 + 0.1 * torch.rand(n, outputs, generator=generator, dtype=torch.float64)


def built(family, X, Y, Yvar=None, **kw):
    """A surrogate in raw units."""
    kw = {"input_transform": None, "outcome_transform": None, **kw}
    options = (FAMILIES | OTHERS)[family]
    return surrogate(family.split()[0], X, Y, Yvar, bounds=BOUNDS, **options, **kw)


def dense(covariance, X, y, d, v, mean, Z):
    """Posterior at Z and evidence with each observation's likelihood to the power ``v``."""
    K = covariance(torch.cat([X, Z]), torch.cat([X, Z]))
    n, C = len(X), K[: len(X), : len(X)] + torch.diag(d / v)
    G = torch.linalg.solve(C, K[:n, n:]).mT
    e = y - mean
    normal = torch.distributions.MultivariateNormal(torch.zeros_like(y), C)
    powers = (2 * math.pi * d / v).log() - v * (2 * math.pi * d).log()
    evidence = normal.log_prob(e) + 0.5 * powers.sum()
    return mean + G @ e, K[n:, n:] - G @ K[:n, n:], evidence


def prior_of(family, noise):
    """The covariance function of a family's own prior, from a surrogate that has seen nothing."""
    X, Y, Yvar = data(0)
    empty = built(family, X, Y, None if noise == "learned" else Yvar, **likelihood(noise))
    return lambda A, B: empty.posterior(A).distribution.covariance_matrix.detach()


def likelihood(noise):
    return {"likelihood": GaussianLikelihood()} if noise == "scaled" else {}


@pytest.mark.parametrize("noise", ["learned", "scaled"])
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_a_dense_gp_with_weights(family, noise):
    """Also where posteriors are asked for in between, and after more data."""
    X, Y, Yvar = data()
    parts = list(zip(X.split(10), Y.split(10), Yvar.split(10), strict=True))
    known, Z = noise != "learned", data(6, seed=7)[0]
    model = built(family, X[:0], Y[:0], Yvar[:0] if known else None, **likelihood(noise))
    for i, (x, y, d) in enumerate(parts):
        model.observe(x, y, d if known else None)
        model.posterior(Z)
        if i in (0, 2):
            assert model.forget(FACTOR) is model
    v = FACTOR ** torch.tensor(AGES).double().repeat_interleave(10)
    s2 = 1.0 if noise == "known" else model.likelihood.noise.item()
    d = s2 * (Yvar[:, 0] if known else torch.ones(40).double())
    mean, cov, evidence = dense(
        prior_of(family, noise), X, Y[:, 0], d, v, model.mean_module.constant.detach(), Z
    )
    posterior = model.posterior(Z)
    close(posterior.mean[:, 0], mean, 1e-7)
    close(posterior.distribution.covariance_matrix, cov, 1e-7)
    close(model.log_evidence(), evidence, 1e-7)
    assert model.num_observed == 40
    assert abs(model.effective_observations - float(v.sum())) < 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients(family):
    X, Y, Yvar = data()
    model = built(family, X, Y, Yvar, likelihood=GaussianLikelihood()).forget(FACTOR)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(model.log_evidence(), parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        kept, ends = parameter.data.clone(), []
        for step in (1e-5, -1e-5):
            parameter.data = kept + step
            ends.append(model.log_evidence().detach())
        parameter.data = kept
        close((ends[0] - ends[1]) / 2e-5, gradient.sum(), 1e-5)


@pytest.mark.parametrize("family", SMALL)
def test_what_is_forgotten_teaches_nothing(family):
    """The noise is learned from what is left, not from points whose residuals are forgotten."""
    X, Y, _ = data(60)
    model = built(family, X, Y, covar_module=None)
    for _ in range(60):
        model.forget(0.5)
    model.observe(*data(30, seed=3)[:2])
    model.fit()
    alone = built(family, *data(30, seed=3)[:2])
    alone.fit()
    close(model.likelihood.noise, alone.likelihood.noise, 1e-2)
    close(model.posterior(X[:5]).mean, alone.posterior(X[:5]).mean, 1e-2)


@pytest.mark.parametrize("family", SMALL)
def test_forgetting_everything_leaves_the_prior(family):
    """No subnormal numbers on the way, and finite results."""
    X, Y, Yvar = data(20)
    model, Z = built(family, X, Y, Yvar), data(6, seed=7)[0]
    for _ in range(1050):
        model.forget(0.5)
    for sums in (model.state.A, model.state.b):
        assert not bool(((sums != 0.0) & (sums.abs() < 1e-290)).any())
    prior = built(family, X[:0], Y[:0], Yvar[:0])
    close(model.posterior(Z).mean, prior.posterior(Z).mean)
    close(model.posterior(Z).variance, prior.posterior(Z).variance)
    assert model.effective_observations < 1e-190
    assert model.observe(X, Y, Yvar).log_evidence().isfinite()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_factor_of_one_changes_nothing(family):
    X, Y, Yvar = data()
    model = built(family, X, Y, Yvar)
    before = {k: v.clone() for k, v in model.state_dict().items() if torch.is_tensor(v)}
    model.forget(1)
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value), name


@pytest.mark.parametrize("noise", ["known", pytest.param("learned", marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_forgetting_and_new_units(family, noise):
    """In either order."""
    X, Y, Yvar = data()
    Yvar, Z = None if noise == "learned" else Yvar, data(6, seed=7)[0]
    first, second = (built(family, X, 3 * Y, Yvar, outcome_transform=Standardize(1)) for _ in "12")
    first.forget(FACTOR).restandardise(5.0 * Y + 2.0)
    second.restandardise(5.0 * Y + 2.0).forget(FACTOR)
    close(first.posterior(Z).mean, second.posterior(Z).mean)
    close(first.log_evidence(), second.log_evidence())


@pytest.mark.parametrize("family", FAMILIES)
def test_forgetting_and_merging(family):
    """Streams that forget by themselves add up."""
    batches = [data(25, seed=s) for s in (0, 1)]
    first, second = (built(family, *batch).forget(FACTOR) for batch in batches)
    both = built(family, *(torch.cat(pair) for pair in zip(*batches, strict=True))).forget(FACTOR)
    first.merge(second)
    Z = data(6, seed=7)[0]
    assert first.effective_observations == pytest.approx(40.0)
    close(first.posterior(Z).mean, both.posterior(Z).mean)
    close(first.log_evidence(), both.log_evidence())


def test_features_chosen_after_forgetting():
    """Points held for a choice of features are forgotten with the sums."""
    X, Y, Yvar = data()
    for noise in (None, Yvar):
        model = built("hsgp", X[:20], Y[:20], None if noise is None else noise[:20]).forget(FACTOR)
        model.observe(X[20:], Y[20:], None if noise is None else noise[20:])
        before, mean = model.log_evidence(), model.posterior(X[:5]).mean
        model.choose_features()
        close(model.log_evidence(), before)
        close(model.posterior(X[:5]).mean, mean)


@pytest.mark.parametrize("family", FAMILIES)
def test_saved(family, tmp_path):
    X, Y, Yvar = data()
    model = built(family, X, Y, Yvar).forget(FACTOR)
    model.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    for m in (model, again):
        m.forget(0.9).observe(*data(5, seed=3))
    assert again.effective_observations == model.effective_observations
    assert torch.equal(again.log_evidence(), model.log_evidence())


@pytest.mark.parametrize("factor", [0.0, -0.5, 1.0001, math.nan, math.inf, "0.5", None, True])
def test_other_factors_are_refused(factor):
    X, Y, Yvar = data()
    for family in ("wiski", "exact"):
        model = built(family, X, Y, Yvar)
        before = model.log_evidence()
        with pytest.raises(InputError, match="factor"):
            model.forget(factor)
        assert torch.equal(model.log_evidence(), before)


@pytest.mark.parametrize("family", OTHERS)
def test_other_families_refuse(family):
    X, Y, _ = data(12)
    model = built(family, X, Y)
    before = {k: v.clone() for k, v in model.state_dict().items() if torch.is_tensor(v)}
    with pytest.raises(UnsupportedError, match="HSGP"):
        model.forget(0.9)
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value), name
    assert model.effective_observations == 12.0


@pytest.mark.parametrize("family", [WISKI, pytest.param(HSGP, marks=pytest.mark.slow)])
def test_a_drifting_function_is_followed(family):
    """A wave that moves: less than half the error of the same surrogate without forgetting."""
    generator = torch.Generator().manual_seed(0)
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    options = {"grid_size": 30} if family is WISKI else {"num_features": 30}

    def at(X, step):
        return (6.0 * X + 0.04 * step).sin()

    def batch(step, n):
        X = torch.rand(n, 1, generator=generator, dtype=torch.float64)
        return X, at(X, step) + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)

    models = [
        family(*batch(0, 20), bounds=bounds, outcome_transform=None, **options) for _ in range(2)
    ]
    errors, Z = [[], []], torch.linspace(0.0, 1.0, 50).double().unsqueeze(-1)
    for step in range(1, 60):
        news = batch(step, 5)
        models[1].forget(0.9)
        for model, seen in zip(models, errors, strict=True):
            model.observe(*news)
            if step % 20 == 0:
                model.fit(10)
            if step > 30:
                seen.append((model.posterior(Z).mean - at(Z, step)).square().mean().sqrt())
    kept, forgetting = (float(torch.stack(seen).mean()) for seen in errors)
    assert forgetting < 0.5 * kept, (kept, forgetting)
