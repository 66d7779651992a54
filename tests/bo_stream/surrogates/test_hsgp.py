"""HSGP against dense Gaussian algebra with its own prior, and against the exact GP."""

import copy
import itertools
import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

from bo_stream import HSGP, ExactGP, load
from bo_stream.base.fitting import AscentObjective, Coordinates, log_prior
from bo_stream.errors import BoundsError, InputError, NoiseError, StateError, UnsupportedError
from bo_stream.mathematics.hilbert_features.basis import Basis
from bo_stream.mathematics.hilbert_features.density import Spectrum, components_of
from bo_stream.mathematics.hilbert_features.kernel import MainEffects
from bo_stream.mathematics.hilbert_features.maximise import grid_maximisers, polished
from bo_stream.testing.base import close
from bo_stream.testing.oracles import DenseGP

LOW, WIDTH = [-1.0, 0.5, 2.0, 0.0], [2.0, 1.5, 3.0, 1.0]
SCALES = [0.9, 0.5, 2.0, 0.6]


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


def kernel(dim, kind="rbf", main=False):
    base = RBFKernel(ard_num_dims=dim) if kind == "rbf" else MaternKernel(kind, ard_num_dims=dim)
    scaled = ScaleKernel(base).double()
    base.lengthscale, scaled.outputscale = number(SCALES[:dim]), number(1.7)
    if not main:
        return scaled
    alone = ScaleKernel(MainEffects(1.5)).double()
    alone.base_kernel.lengthscale, alone.outputscale = number(0.3), number(0.6)
    return scaled + alone


def plain(X, Y, Yvar=None, *, features=30, kind="rbf", main=False, mean=0.3, **kw):
    """A surrogate in raw units, with hyperparameters that are not the defaults."""
    kw = {"covar_module": kernel(X.shape[-1], kind, main), **kw}
    kw |= {"input_transform": None, "outcome_transform": None, "num_features": features}
    model = HSGP(X, Y, Yvar, bounds=bounds(X.shape[-1]), **kw)
    if Yvar is None:
        model.likelihood.noise = number(0.02)
    model.mean_module.constant = number(mean)
    return model


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
            variances += [0.6 * scale * matern(1.5, 1, r) for r in squares]
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
    spectrum = Spectrum(math.inf if kind == "rbf" else kind, w.square().unsqueeze(-1))
    density = spectrum.logs(*(number([x]).log() for x in (SCALES[0], 1.7))).exp()
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


# -- features --------------------------------------------------------------------------------------


def test_features_are_those_of_largest_prior_variance():
    scales, low, width = (torch.tensor(t).double() for t in (SCALES, LOW, WIDTH))
    basis = Basis.choose(scales, low, width, 50)
    assert len(set(map(tuple, basis.alpha.tolist()))) == 50
    more = Basis.choose(scales, low, width, 400)
    k = kernel(4)
    chosen, others = (components_of(k).log_variances(b, 1)[0] for b in (basis, more))
    assert chosen.min() >= others[50:].max() - 1e-9
    close(chosen, others[:50])


def test_equal_lengthscales_choose_the_same_whatever_the_rounding():
    low, width = torch.zeros(4).double(), torch.ones(4).double()
    first = Basis.choose(torch.full((4,), 0.3).double(), low, width, 100)
    for errors in ([0.0, 2e-16, 5e-16, -3e-16], [3e-16, 0.0, -2e-16, 4e-16]):
        scales = 0.3 * (1.0 + number(errors))
        assert len(set(scales.tolist())) > 1
        assert torch.equal(Basis.choose(scales, low, width, 100).alpha, first.alpha)


@pytest.mark.parametrize("dim", [3, 4])
def test_features_are_chosen_anew(dim):
    """From the sums alone for three inputs, from the points held for four."""
    X, Y, Yvar = data(50, dim)
    scales = number([2.0, 0.4, 1.0, 0.8][:dim])
    model = plain(X, Y, Yvar, opening=50 if dim == 4 else 0)
    model.covar_module.base_kernel.lengthscale = scales
    stale = model.log_evidence()
    assert model.choose_features() is model
    close(model.basis.lengthscales, scales, 1e-6)
    fresh = plain(X, Y, Yvar, covar_module=copy.deepcopy(model.covar_module))
    assert abs(float((stale - fresh.log_evidence()).detach())) > 1e-3
    Z = data(7, dim, seed=5)[0]
    close(model.log_evidence(), fresh.log_evidence())
    close(model.posterior(Z).mean, fresh.posterior(Z).mean)
    if dim == 4:
        model.observe(*data(1, dim, seed=8))
        before = model.log_evidence()
        with pytest.raises(StateError, match="51 seen and at most 50 buffered"):
            model.choose_features()
        assert torch.equal(model.log_evidence(), before)


def test_features_grow_with_the_data():
    """Chosen from the sums: as if there had been as many from the start."""
    X, Y, _ = data(310, 2)
    model = plain(X[:299], Y[:299], features="auto", kind=0.5)
    counts = []
    for i in range(299, 310, 3):
        assert model.posterior(X[:1]).variance > 0.0  # a process to be updated, or not
        counts.append(len(model.basis.joint))
        model.observe(X[i : i + 3], Y[i : i + 3])
    assert counts == [128, 256, 256, 256]
    whole, Z = plain(X, Y, features=256, kind=0.5), data(7, 2, seed=5)[0]
    close(model.log_evidence(), whole.log_evidence())
    close(model.posterior(Z).variance, whole.posterior(Z).variance)


@pytest.mark.parametrize("dim", [2, 4])
def test_a_fit_chooses_features_and_climbs_on(dim):
    X, Y, _ = data(120, dim)
    model = HSGP(X, Y, bounds=bounds(dim), num_features=60, main_effects=False)
    start = model.basis.lengthscales
    report = model.fit()
    found = model.covar_module.base_kernel.lengthscale.detach().flatten()
    assert (start / found).log().abs().max() > 0.3
    assert (model.basis.lengthscales / found).log().abs().max() < 0.3
    close(model.make_mll()().detach(), number(report.value), 1e-6)
    held = {"opening": 100} if dim == 4 else {"lengthscales": start.tolist()}
    fixed = HSGP(X, Y, bounds=bounds(dim), num_features=60, main_effects=False, **held)
    fixed.fit()
    close(fixed.basis.lengthscales, start, 1e-12)


def test_a_fit_of_few_evaluations_chooses_features_all_the_same() -> None:
    X, Y, _ = data(120, 2)
    model = HSGP(X, Y, bounds=bounds(2), num_features=60, main_effects=False)
    start = model.basis.lengthscales
    model.covar_module.base_kernel.lengthscale = number([2.0, 2.0])
    report = model.fit(3)
    assert report.evaluations == 3
    found = model.covar_module.base_kernel.lengthscale.detach().flatten()
    assert (model.basis.lengthscales / start).log().abs().max() > 0.2
    close(model.basis.lengthscales, found, 1e-12)


def test_a_fit_keeps_lengthscales_to_what_the_features_resolve() -> None:
    """White noise pulls them to zero; MATHS 12.1."""
    X = data(60, 2)[0]
    Y = torch.randn(60, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    model = HSGP(X, Y, bounds=bounds(2), num_features=128)
    model.likelihood.noise = number(1e-4)
    model.likelihood.raw_noise.requires_grad_(False)
    model.fit(30)
    joint, main = (k.base_kernel.lengthscale.flatten() for k in model.covar_module.kernels)
    highest = model.basis.joint.amax(0)
    assert (joint >= 0.999 * 0.8 * 2.65 * 0.75 / highest).all() and joint.min() < 0.3
    assert (main >= 0.999 * 0.8 * 2.65 * 0.75 / 36).all()


@pytest.mark.parametrize("noise", ["learned", "known", "scaled"])
@pytest.mark.parametrize(("dim", "outputs", "shared"), [(1, 1, 0), (2, 2, 0), (2, 2, 1), (4, 1, 0)])
def test_a_fit_climbs_the_objective_by_its_gradient(dim, outputs, shared, noise):
    """The closed form against autograd through the evidence and the priors."""
    X, Y, Yvar = data(40, dim, outputs)
    kw = {"likelihood": GaussianLikelihood()} if noise == "scaled" else {}
    kw |= {"covar_module": kernel(dim)} if shared else {}  # by both outputs
    options = {"bounds": bounds(dim), "num_features": 20, "outcome_transform": None}
    model = HSGP(X, Y, None if noise == "learned" else Yvar, **options, **kw)
    coordinates = Coordinates(model, skip_mean=True)
    closed = model._prepare_fit(coordinates, profile_mean=True)
    slow = AscentObjective(lambda: _with_priors(model), coordinates)
    for shift in (0.0, 0.3):
        u = coordinates.get() + shift
        value, gradient, mean = closed(u)
        expected = slow.evaluate(u)
        assert float(value) == pytest.approx(expected.value, abs=1e-5)
        close(gradient, expected.gradient, 1e-6)
        close(mean, expected.mean)


def _with_priors(model):
    value, mean = model._objective(profile_mean=True)
    return value + log_prior(model), mean


def test_before_data_features_follow_the_kernel():
    X, Y, _ = data(20)
    model = plain(X[:0], Y[:0])
    model.covar_module.base_kernel.lengthscale = number([2.0, 0.4, 1.0])
    model.observe(X, Y)
    close(model.basis.lengthscales, number([2.0, 0.4, 1.0]), 1e-6)


@pytest.mark.parametrize("dim", [2, 4])
def test_features_are_saved(dim, tmp_path):
    X, Y, _ = data(100, dim)
    model = HSGP(X, Y, bounds=bounds(dim), num_features=40, opening=150)
    model.fit(20)
    model.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    for m in (model, again):
        m.observe(*data(40, dim, seed=7)[:2])
        m.choose_features()
        m.observe(*data(40, dim, seed=8)[:2])
    assert again.basis.same_as(model.basis)
    assert torch.equal(again.state.A, model.state.A)
    assert torch.equal(again.log_evidence(), model.log_evidence())


# -- merging ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("scaled", [False, True])
def test_streams_on_the_same_features_merge(outputs, scaled):
    X, Y, Yvar = data(300, 4, outputs)
    kw = {"lengthscales": SCALES, "covar_module": None}
    kw |= {"likelihood": GaussianLikelihood()} if scaled else {}
    whole = plain(X, Y, Yvar, **kw)
    parts = [plain(*(t[i::3] for t in (X, Y, Yvar)), **kw) for i in range(3)]
    merged = parts[0].merge(parts[1]).merge(parts[2])
    Z = data(7, 4, seed=5)[0]
    assert merged.num_observed == 300
    close(merged.log_evidence(), whole.log_evidence())
    close(merged.posterior(Z).mean, whole.posterior(Z).mean)
    close(merged.posterior(Z).variance, whole.posterior(Z).variance)


@pytest.mark.parametrize(("mine", "others"), [(30, 70), (70, 30), (0, 70), (20, 25)])
def test_streams_on_other_features_merge_while_points_are_held(mine, others):
    X, Y, Yvar = data(mine + others, 4)
    other_kernel = kernel(4)
    other_kernel.base_kernel.lengthscale = number([0.5, 0.6, 1.0, 0.8])
    first = plain(X[:mine], Y[:mine], Yvar[:mine], opening=50)
    second = plain(X[mine:], Y[mine:], Yvar[mine:], opening=50, covar_module=other_kernel)
    assert not first.basis.same_as(second.basis)
    kept = (second if others > 50 else first).basis.lengthscales
    merged = first.merge(second)
    close(merged.basis.lengthscales, kept, 1e-12)
    whole = plain(X, Y, Yvar, lengthscales=kept.tolist())
    close(merged.log_evidence(), whole.log_evidence())
    if mine + others <= 50:  # the points of both are at hand
        merged.covar_module.base_kernel.lengthscale = number([0.7, 0.7, 0.7, 0.7])
        merged.choose_features()
        whole = plain(X, Y, Yvar, covar_module=copy.deepcopy(merged.covar_module))
        close(merged.log_evidence(), whole.log_evidence())


def test_streams_on_other_features_do_not_merge_without_points():
    X, Y, Yvar = data(80, 4)
    first = plain(X, Y, Yvar, opening=20)
    second = plain(X, Y, Yvar, lengthscales=[0.5] * 4, opening=20)
    before = first.log_evidence()
    with pytest.raises(StateError, match="lengthscales"):
        first.merge(second)
    assert torch.equal(first.log_evidence(), before)


@pytest.mark.parametrize("noise", ["learned", "known"])
def test_streams_of_few_inputs_merge_whatever_their_features(noise):
    X, Y, Yvar = data(100, 2)
    Yvar = None if noise == "learned" else Yvar
    parts = [slice(0, 30), slice(30, 100)]
    models = [
        plain(X[part], Y[part], None if Yvar is None else Yvar[part], features=count, main=True)
        for part, count in zip(parts, (50, 50), strict=True)
    ]
    models[1].covar_module.kernels[0].base_kernel.lengthscale = number([0.5, 0.6])
    models[1].choose_features()
    assert not models[0].basis.same_as(models[1].basis)
    merged = models[0].merge(models[1])
    assert merged.basis.same_as(models[1].basis)
    whole = plain(X, Y, Yvar, features=50, main=True, lengthscales=[0.5, 0.6])
    close(merged.log_evidence(), whole.log_evidence())


# -- draws and their maximisers --------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2])
def test_draws_have_the_posterior_s_moments(outputs):
    """Before and after the covariance has been formed and updated."""
    X, Y, _ = data(40, 2, outputs)
    kw = {"covar_module": None} if outputs > 1 else {"main": True}
    model, Z = plain(X, Y, **kw), data(3, 2, seed=5)[0]
    for _ in range(2):
        torch.manual_seed(0)
        draws = model.process().path(torch.Size([40_000]))
        values = draws(Z)
        assert draws.weights.shape == (40_000, outputs, len(model.basis.alpha))
        joint = model.process().at(Z)
        cov = joint.covariance(joint)
        spread = cov.diagonal(dim1=-2, dim2=-1).sqrt()
        assert ((values.mean(0) - joint.mean) / spread).abs().max() < 0.03
        for found, expected in zip(values.unbind(1), cov, strict=True):
            assert (found.T.cov() - expected).abs().max() < 0.05 * expected.abs().max()
        model.observe(X[:2] + 0.01, Y[:2])


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_maximisers_are_the_highest_of_many_points(dim):
    X, Y, _ = data(60, dim)
    model = plain(X, Y, features=80, main=dim > 1)
    process = model.process()
    torch.manual_seed(1)
    draws = process.path(torch.Size([40]))
    best, values = grid_maximisers(process.basis, draws.weights[:, 0])
    low, high = bounds(dim)
    assert (best >= low).all() and (best <= high).all()
    close(draws(best)[:, 0].diagonal(), values + process.mean)
    others = draws(others_at(dim))[:, 0]
    assert (
        (values + process.mean - others.amax(-1)) > -0.02 * others.std(-1)
    ).float().mean() >= 0.9
    mean = process.mean_path
    best, value = grid_maximisers(process.basis, mean.weights, per_axis=40, steps=12, starts=8)
    inside = ((best > low) & (best < high)).squeeze(0)
    best.requires_grad_()
    (slope,) = torch.autograd.grad(mean(best).sum(), best)
    assert (slope[0, inside].abs() < 1e-6 * Y.std()).all()
    assert float(value) + float(process.mean) >= float(mean(others_at(dim)).max())


def others_at(dim):
    """Points all over the bounds."""
    low, high = bounds(dim)
    return low + (high - low) * torch.rand(20_000, dim, dtype=torch.float64)


def test_a_step_never_descends():
    """Also from minima, at walls and in many inputs."""
    X, Y, _ = data(60, 4)
    process = plain(X, Y, features=80).process()
    torch.manual_seed(0)
    W = process.path(torch.Size([50])).weights[:, 0]
    starts = data(50, 4, seed=9)[0]
    starts[:20, 0], starts[10:30, 3] = LOW[0], LOW[3] + WIDTH[3]
    before = (process.basis.features(starts) * W).sum(-1)
    ends, values = polished(process.basis, W, starts, steps=20, largest=0.1)
    close(values, (process.basis.features(ends) * W).sum(-1))
    assert (values >= before).all() and (values > before + 0.01).float().mean() > 0.9
    low, high = bounds(4)
    assert (ends >= low).all() and (ends <= high).all()
    inside = (ends > low) & (ends < high)
    ends.requires_grad_()
    (slopes,) = torch.autograd.grad((process.basis.features(ends) * W).sum(), ends)
    assert (slopes[inside].abs() < 1e-6).float().mean() > 0.85 and inside.sum() > 20


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
