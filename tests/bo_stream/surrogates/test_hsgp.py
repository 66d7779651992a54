"""HSGP against dense Gaussian algebra with its own prior, and against the exact GP."""

import copy
import itertools
import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

from bo_stream import HSGP, ExactGP, load
from bo_stream.errors import BoundsError, InputError, NoiseError, StateError, UnsupportedError
from bo_stream.mathematics.hilbert_features.basis import Basis
from bo_stream.mathematics.hilbert_features.density import log_density
from bo_stream.testing.base import close
from bo_stream.testing.oracles import DenseGP

LOW, WIDTH = [-1.0, 0.5, 2.0], [2.0, 1.5, 3.0]
SCALES = [0.9, 0.5, 2.0]


def bounds(dim):
    low, width = torch.tensor(LOW[:dim]).double(), torch.tensor(WIDTH[:dim]).double()
    return torch.stack([low, low + width])


def data(n, dim=3, outputs=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    low, high = bounds(dim)
    X = low + (high - low) * torch.rand(n, dim, generator=generator, dtype=torch.float64)
    phase = torch.arange(outputs).double()
    Y = (X.sum(-1, keepdim=True) + phase).sin() + 0.5
    Y = Y + 0.1 * torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    return X, Y, 0.01 + 0.02 * torch.rand(n, outputs, generator=generator, dtype=torch.float64)


def number(value):
    """In float64: gpytorch's setters round Python numbers to float32."""
    return torch.tensor(value, dtype=torch.float64)


def kernel(dim, kind="rbf"):
    base = RBFKernel(ard_num_dims=dim) if kind == "rbf" else MaternKernel(kind, ard_num_dims=dim)
    scaled = ScaleKernel(base).double()
    base.lengthscale, scaled.outputscale = number(SCALES[:dim]), number(1.7)
    return scaled


def plain(X, Y, Yvar=None, *, features=30, kind="rbf", mean=0.3, **kw):
    """A surrogate in raw units, with hyperparameters that are not the defaults."""
    kw = {"covar_module": kernel(X.shape[-1], kind), **kw}
    kw |= {"input_transform": None, "outcome_transform": None, "num_features": features}
    model = HSGP(X, Y, Yvar, bounds=bounds(X.shape[-1]), **kw)
    if Yvar is None:
        model.likelihood.noise = number(0.02)
    model.mean_module.constant = number(mean)
    return model


def prior(dim, features, kind="rbf"):
    """The prior covariance by the page's formulas, every step spelt out; and the indices."""
    ls = [s / w for s, w in zip(SCALES[:dim], WIDTH[:dim], strict=True)]
    half = [max(0.6, 0.5 + 1.2 * min(s, 1.0)) for s in ls]
    most = range(1, features + 1) if dim == 1 else range(1, 16)

    def frequency(alpha):
        return [math.pi * a / (2.0 * L) for a, L in zip(alpha, half, strict=True)]

    def square(alpha):
        return sum((s * w) ** 2 for s, w in zip(ls, frequency(alpha), strict=True))

    chosen = sorted(itertools.product(most, repeat=dim), key=square)[:features]

    def variance(alpha):
        value, r = 1.7 * math.prod(ls), square(alpha)
        if kind == "rbf":
            return value * (2.0 * math.pi) ** (dim / 2) * math.exp(-r / 2)
        nu, gamma = kind, math.gamma
        value *= 2**dim * math.pi ** (dim / 2) * gamma(nu + dim / 2) * (2 * nu) ** nu / gamma(nu)
        return value * (2 * nu + r) ** -(nu + dim / 2)

    def phi(X):
        U = (X - torch.tensor(LOW[:dim])) / torch.tensor(WIDTH[:dim]).double()
        columns = []
        for alpha in chosen:
            column = torch.ones(len(X)).double()
            for k, w in enumerate(frequency(alpha)):
                column = column * (w * (U[:, k] - 0.5 + half[k])).sin() / math.sqrt(half[k])
            columns.append(column)
        return torch.stack(columns, -1)

    variances = number([variance(alpha) for alpha in chosen])
    return (lambda X, Z: (phi(X) * variances) @ phi(Z).mT), chosen


@pytest.mark.parametrize("noise", ["learned", "known", "scaled"])
@pytest.mark.parametrize(("dim", "kind"), [(1, "rbf"), (3, "rbf"), (2, 0.5), (3, 2.5)])
def test_equals_a_dense_gp_of_its_prior(dim, kind, noise):
    X, Y, Yvar = data(40, dim)
    kw = {"likelihood": GaussianLikelihood()} if noise == "scaled" else {}
    model = plain(X, Y, None if noise == "learned" else Yvar, kind=kind, **kw)
    D = {"learned": number(0.02), "known": Yvar[:, 0], "scaled": 1.3 * Yvar[:, 0]}[noise]
    if noise == "scaled":
        model.likelihood.noise = number(1.3)
    covariance, chosen = prior(dim, 30, kind)
    assert sorted(chosen) == sorted(map(tuple, model.state.basis.alpha.tolist()))
    dense = DenseGP(covariance, X, Y[:, 0], D, number(0.3))
    close(model.log_evidence(), dense.evidence())
    Z = data(7, dim, seed=5)[0]
    mean, cov = dense.posterior(Z)
    posterior = model.posterior(Z)
    close(posterior.mean[:, 0], mean)
    close(posterior.distribution.covariance_matrix, cov)
    assert (posterior.mean - Y.mean()).abs().max() > 0.1


def test_far_outcomes():
    """Sums are taken about the first batch's mean: nothing is lost with outcomes around 1e6."""
    X, Y, _ = data(40)
    near, far = plain(X, Y), plain(X, Y + 1e6, mean=1e6 + 0.3)
    assert float(far.state.origin) > 1e5
    close(far.log_evidence(), near.log_evidence(), 1e-5)
    Z = data(7, seed=5)[0]
    close(far.posterior(Z).mean - 1e6, near.posterior(Z).mean, 1e-6)


@pytest.mark.parametrize("dim", [1, 3])
def test_the_best_mean(dim):
    X, Y, _ = data(30, dim)
    model = plain(X, Y)
    value, best = model._objective(profile_mean=True)
    model.mean_module.constant = best
    close(model.log_evidence(), value)
    (slope,) = torch.autograd.grad(model.log_evidence(), [model.mean_module.raw_constant])
    assert abs(float(slope)) < 1e-7


@pytest.mark.parametrize("kind", ["rbf", 0.5, 1.5, 2.5])
def test_densities_are_those_of_the_kernels(kind):
    """Integrated over all frequencies of one dimension: the kernel itself."""
    k, w = kernel(1, kind), torch.linspace(0.0, 4000.0, 4_000_001).double()
    density = log_density(k, w.unsqueeze(-1), 1).exp()[0]
    for r in (0.0, 0.4, 1.1):
        integral = torch.trapezoid(density * (w * r).cos(), w) / math.pi
        expected = k(torch.zeros(1, 1).double(), torch.full((1, 1), r).double()).to_dense()
        close(integral, expected[0, 0].detach(), 1e-3)


def test_near_the_exact_gp():
    """With enough features, and lengthscales within the bounds' widths."""
    X, Y, _ = data(80, 2)
    model, Z = plain(X, Y, features=400), data(50, 2, seed=5)[0]
    exact = ExactGP(X, Y, covar_module=kernel(2), outcome_transform=None, input_transform=None)
    exact.likelihood.noise, exact.mean_module.constant = number(0.02), number(0.3)
    assert abs(float((model.log_evidence() - exact.log_evidence()).detach())) < 1.5
    assert (model.posterior(Z).mean - exact.posterior(Z).mean).abs().max() < 0.02


# -- features --------------------------------------------------------------------------------------


def test_features_are_those_of_largest_prior_variance():
    scales, low, width = (torch.tensor(t).double() for t in (SCALES, LOW, WIDTH))
    basis = Basis.choose(scales, low, width, 50)
    assert len(set(map(tuple, basis.alpha.tolist()))) == 50
    more = Basis.choose(scales, low, width, 400)
    k = kernel(3)
    chosen, others = (log_density(k, b.frequencies(), 1)[0] for b in (basis, more))
    assert chosen.min() >= others[50:].max() - 1e-9
    close(chosen, others[:50])


def test_equal_lengthscales_choose_the_same_whatever_the_rounding():
    low, width = torch.zeros(4).double(), torch.ones(4).double()
    first = Basis.choose(torch.full((4,), 0.3).double(), low, width, 100)
    for errors in ([0.0, 2e-16, 5e-16, -3e-16], [3e-16, 0.0, -2e-16, 4e-16]):
        scales = 0.3 * (1.0 + number(errors))
        assert len(set(scales.tolist())) > 1
        assert torch.equal(Basis.choose(scales, low, width, 100).alpha, first.alpha)


def test_features_are_chosen_anew_while_points_are_held():
    X, Y, Yvar = data(50)
    model = plain(X, Y, Yvar, opening=50)
    model.covar_module.base_kernel.lengthscale = number([2.0, 0.4, 1.0])
    stale = model.log_evidence()
    assert model.choose_features() is model
    close(model.feature_lengthscales, number([2.0, 0.4, 1.0]), 1e-6)
    fresh = plain(X, Y, Yvar, covar_module=copy.deepcopy(model.covar_module))
    assert abs(float((stale - fresh.log_evidence()).detach())) > 1e-3
    Z = data(7, seed=5)[0]
    close(model.log_evidence(), fresh.log_evidence())
    close(model.posterior(Z).mean, fresh.posterior(Z).mean)
    model.observe(*data(1, seed=8))
    before = model.log_evidence()
    with pytest.raises(StateError, match="51 seen and at most 50 buffered"):
        model.choose_features()
    assert torch.equal(model.log_evidence(), before)


def test_a_fit_chooses_features_and_climbs_on():
    X, Y, _ = data(120, 2)
    model = HSGP(X, Y, bounds=bounds(2), num_features=60)
    start = model.feature_lengthscales
    report = model.fit()
    found = model.covar_module.base_kernel.lengthscale.detach().flatten()
    assert (start / found).log().abs().max() > 0.3
    assert (model.feature_lengthscales / found).log().abs().max() < 0.3
    close(model.make_mll()().detach(), number(report.value), 1e-6)
    fixed = HSGP(X, Y, bounds=bounds(2), num_features=60, opening=100)
    fixed.fit()
    close(fixed.feature_lengthscales, start, 1e-12)


def test_a_fit_of_few_evaluations_chooses_features_all_the_same() -> None:
    X, Y, _ = data(120, 2)
    model = HSGP(X, Y, bounds=bounds(2), num_features=60)
    start = model.feature_lengthscales
    report = model.fit(3)
    assert report.evaluations == 3
    found = model.covar_module.base_kernel.lengthscale.detach().flatten()
    assert (model.feature_lengthscales / start).log().abs().max() > 0.2
    close(model.feature_lengthscales, found, 1e-12)


def test_before_data_features_follow_the_kernel():
    X, Y, _ = data(20)
    model = plain(X[:0], Y[:0])
    model.covar_module.base_kernel.lengthscale = number([2.0, 0.4, 1.0])
    model.observe(X, Y)
    close(model.feature_lengthscales, number([2.0, 0.4, 1.0]), 1e-6)


def test_features_are_saved(tmp_path):
    X, Y, _ = data(100, 2)
    model = HSGP(X, Y, bounds=bounds(2), num_features=40, opening=150)
    model.fit()
    model.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    for m in (model, again):
        m.observe(*data(40, 2, seed=7)[:2])
        m.choose_features()
        m.observe(*data(40, 2, seed=8)[:2])
    assert again.state.basis.same_as(model.state.basis)
    assert torch.equal(again.state.A, model.state.A)
    assert torch.equal(again.log_evidence(), model.log_evidence())


# -- merging ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("scaled", [False, True])
def test_streams_on_the_same_features_merge(outputs, scaled):
    X, Y, Yvar = data(300, outputs=outputs)
    kw = {"lengthscales": SCALES, "covar_module": None}
    kw |= {"likelihood": GaussianLikelihood()} if scaled else {}
    whole = plain(X, Y, Yvar, **kw)
    parts = [plain(*(t[i::3] for t in (X, Y, Yvar)), **kw) for i in range(3)]
    merged = parts[0].merge(parts[1]).merge(parts[2])
    Z = data(7, seed=5)[0]
    assert merged.num_observed == 300
    close(merged.log_evidence(), whole.log_evidence())
    close(merged.posterior(Z).mean, whole.posterior(Z).mean)
    close(merged.posterior(Z).variance, whole.posterior(Z).variance)


@pytest.mark.parametrize(("mine", "others"), [(30, 70), (70, 30), (0, 70), (20, 25)])
def test_streams_on_other_features_merge_while_points_are_held(mine, others):
    X, Y, Yvar = data(mine + others)
    other_kernel = kernel(3)
    other_kernel.base_kernel.lengthscale = number([0.5, 0.6, 1.0])
    first = plain(X[:mine], Y[:mine], Yvar[:mine], opening=50)
    second = plain(X[mine:], Y[mine:], Yvar[mine:], opening=50, covar_module=other_kernel)
    assert not first.state.basis.same_as(second.state.basis)
    kept = (second if others > 50 else first).feature_lengthscales
    merged = first.merge(second)
    close(merged.feature_lengthscales, kept, 1e-12)
    whole = plain(X, Y, Yvar, lengthscales=kept.tolist())
    close(merged.log_evidence(), whole.log_evidence())
    if mine + others <= 50:  # the points of both are at hand
        merged.covar_module.base_kernel.lengthscale = number([0.7, 0.7, 0.7])
        merged.choose_features()
        whole = plain(X, Y, Yvar, covar_module=copy.deepcopy(merged.covar_module))
        close(merged.log_evidence(), whole.log_evidence())


def test_streams_on_other_features_do_not_merge_without_points():
    X, Y, Yvar = data(80)
    first = plain(X, Y, Yvar, opening=20)
    second = plain(X, Y, Yvar, lengthscales=[0.5] * 3, opening=20)
    before = first.log_evidence()
    with pytest.raises(StateError, match="lengthscales"):
        first.merge(second)
    assert torch.equal(first.log_evidence(), before)


# -- refusals --------------------------------------------------------------------------------------


def test_what_is_refused():
    X, Y, Yvar = data(10)
    with pytest.raises(BoundsError, match="bounds"):
        HSGP(X, Y)
    with pytest.raises(BoundsError):
        plain(X, Y).observe(X + 5.0, Y)
    for kw in ({"num_features": 0}, {"num_features": 2.5}, {"opening": -1}, {"opening": True}):
        with pytest.raises(InputError, match=next(iter(kw))):
            HSGP(X, Y, bounds=bounds(3), **kw)
    for scales in ([1.0], [1.0, -1.0, 1.0], [1.0, math.inf, 1.0]):
        with pytest.raises(InputError, match="lengthscales"):
            HSGP(X, Y, bounds=bounds(3), lengthscales=scales)
    partial = RBFKernel(active_dims=(0, 1))
    for bad in (PeriodicKernel(), partial, ScaleKernel(partial), RBFKernel() + RBFKernel()):
        with pytest.raises(UnsupportedError, match="ExactGP"):
            plain(X, Y, covar_module=bad)
    with pytest.raises(NoiseError, match="floor"):
        plain(X, Y, 1e-14 * Yvar)
