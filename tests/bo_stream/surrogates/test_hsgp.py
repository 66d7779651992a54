"""HSGP against dense Gaussian algebra with its own prior, and against the exact GP."""

import itertools
import math

import pytest
import torch
from gpytorch.kernels import PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

from bo_stream import HSGP, ExactGP
from bo_stream.errors import BoundsError, InputError, NoiseError, UnsupportedError
from bo_stream.mathematics.sines import Spectrum, best_on_grid
from bo_stream.testing.base import close
from bo_stream.testing.oracles import DenseGP
from tests.bo_stream.surrogates.hsgp_cases import (
    LOW,
    SCALES,
    WIDTH,
    bounds,
    data,
    kernel,
    number,
    plain,
)


def matern(nu, d, r):
    """The spectral density of a Matern kernel with unit lengthscale at squared frequency r."""
    gamma = math.gamma
    value = 2**d * math.pi ** (d / 2) * gamma(nu + d / 2) * (2 * nu) ** nu / gamma(nu)
    return value * (2 * nu + r) ** -(nu + d / 2)


def prior(dim, features, kind="rbf", main=False):
    """The prior covariance by the page's formulas, every step spelt out; and the indices."""
    ls = [s / w for s, w in zip(SCALES[:dim], WIDTH[:dim], strict=True)]
    half = [0.75 if dim <= 3 else max(0.6, 0.5 + 1.2 * min(s, 1.0)) for s in ls]
    most = range(1, features + 1) if dim == 1 else range(1, 16 if dim < 4 else 9)

    def frequency(alpha):
        return [math.pi * a / (2.0 * L) for a, L in zip(alpha, half, strict=True)]

    def square(alpha):
        return sum((s * w) ** 2 for s, w in zip(ls, frequency(alpha), strict=True))

    chosen = sorted(itertools.product(most, repeat=dim), key=square)[:features]

    def variance(alpha):
        value, r = 1.7 * math.prod(ls), square(alpha)
        if kind == "rbf":
            return value * (2.0 * math.pi) ** (dim / 2) * math.exp(-r / 2)
        return value * matern(kind, dim, r)

    def unit(X):
        return (X - torch.tensor(LOW[:dim])) / torch.tensor(WIDTH[:dim]).double()

    def sine(X, k, a):
        w = math.pi * a / (2.0 * half[k])
        return (w * (unit(X)[:, k] - 0.5 + half[k])).sin() / math.sqrt(half[k])

    def phi(X):
        columns = []
        for alpha in chosen:
            column = torch.ones(len(X)).double()
            for k, a in enumerate(alpha):
                column = column * sine(X, k, a)
            columns.append(column)
        if main:
            columns += [sine(X, k, a) for k in range(dim) for a in range(1, 37)]
        return torch.stack(columns, -1)

    variances = [variance(alpha) for alpha in chosen]
    if main:  # each in the units of its own input
        for width in WIDTH[:dim]:
            scale = 0.3 / width
            squares = [(scale * math.pi * a / 1.5) ** 2 for a in range(1, 37)]
            variances += [0.6 * scale * matern(4.5, 1, r) for r in squares]
    variances = number(variances)
    return (lambda X, Z: (phi(X) * variances) @ phi(Z).mT), chosen


@pytest.mark.parametrize("noise", ["learned", "known", "scaled"])
@pytest.mark.parametrize(
    ("dim", "kind", "main"),
    [(1, "rbf", False), (3, "rbf", False), (2, 0.5, True), (3, 2.5, True), (4, 2.5, False)],
)
def test_equals_a_dense_gp_of_its_prior(dim, kind, main, noise):
    X, Y, Yvar = data(40, dim)
    kw = {"likelihood": GaussianLikelihood()} if noise == "scaled" else {}
    model = plain(X, Y, None if noise == "learned" else Yvar, kind=kind, main=main, **kw)
    D = {"learned": number(0.02), "known": Yvar[:, 0], "scaled": 1.3 * Yvar[:, 0]}[noise]
    if noise == "scaled":
        model.likelihood.noise = number(1.3)
    covariance, chosen = prior(dim, 30, kind, main)
    assert sorted(chosen) == sorted(map(tuple, model.basis.joint.tolist()))
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


def test_many_points_of_hardly_any_noise():
    """Rounding errors of the sums, divided by the noise, exceed the prior's precision."""
    X = torch.rand(30_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = (5.0 * X).sin().sum(-1, keepdim=True)
    unit = number([[0.0] * 3, [1.0] * 3])
    model = HSGP(X, Y, torch.full_like(Y, 2e-12) * Y.var(), bounds=unit)
    model.covar_module.kernels[0].base_kernel.lengthscale = number([2.0] * 3)
    assert (model.posterior(X[:50]).mean - Y[:50]).abs().max() < 1e-6
    assert model.log_evidence() > 1e5


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
    spectrum = Spectrum(math.inf if kind == "rbf" else kind, w.square().unsqueeze(-1), number(0.0))
    density = spectrum.logs(*(number([[x]]).log() for x in (SCALES[0], 1.7)))[0].exp()
    for r in (0.0, 0.4, 1.1):
        integral = torch.trapezoid(density * (w * r).cos(), w) / math.pi
        expected = k(torch.zeros(1, 1).double(), torch.full((1, 1), r).double()).to_dense()
        close(integral, expected[0, 0].detach(), 1e-3)


@pytest.mark.parametrize("main", [False, True])
def test_near_the_exact_gp(main):
    """With enough features, and lengthscales that are short beside the distance of the walls."""
    X, Y, _ = data(80, 2)
    own = kernel(2, 2.5, main)
    base = own.kernels[0].base_kernel if main else own.base_kernel
    base.lengthscale = number([0.4, 0.3])
    model, Z = plain(X, Y, features=400, covar_module=own), data(50, 2, seed=5)[0]
    exact = ExactGP(X, Y, covar_module=own, outcome_transform=None, input_transform=None)
    exact.likelihood.noise, exact.mean_module.constant = number(0.02), number(0.3)
    assert abs(float((model.log_evidence() - exact.log_evidence()).detach())) < 1.5
    assert (model.posterior(Z).mean - exact.posterior(Z).mean).abs().max() < 0.05


# -- draws and their maximisers --------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_best_points_of_a_grid(dim):
    """Those of all values on it, with different values of the first input."""
    X, Y, _ = data(60, dim)
    model = plain(X, Y, features=80, main=dim > 1)
    torch.manual_seed(1)
    draws = model.process().path(torch.Size([40]))
    low, high = bounds(dim)
    found = best_on_grid(model.basis, draws.weights[:, 0], bounds(dim), per_axis=12, starts=3)
    axis = (torch.arange(12, dtype=torch.float64) + 0.5) / 12
    everywhere = low + (high - low) * torch.cartesian_prod(*[axis] * dim).view(-1, dim)
    layers = draws(everywhere)[:, 0].view(40, 12, -1).amax(-1)
    close(draws(found)[:, 0], layers.topk(3).values, 1e-5)  # in float32
    assert (found[..., 0].diff(dim=1) != 0.0).all()


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
