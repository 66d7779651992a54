"""Features of an HSGP: chosen, grown, fitted, saved; and streams on features merged."""

import copy
import math

import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood
from scipy.special import kv

from bo_stream import HSGP, load
from bo_stream.base.fitting import AscentObjective, Coordinates, log_prior
from bo_stream.base.stream import settings_of
from bo_stream.errors import StateError
from bo_stream.mathematics.sines import Basis, MainEffects, log_variances, parts_of
from bo_stream.testing.base import close
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

# -- features --------------------------------------------------------------------------------------


def test_features_are_those_of_largest_prior_variance():
    scales, low, width = (torch.tensor(t).double() for t in (SCALES, LOW, WIDTH))
    basis = Basis.choose(scales, low, width, 50)
    assert len(set(map(tuple, basis.alpha.tolist()))) == 50
    more = Basis.choose(scales, low, width, 400)
    k = kernel(4)
    chosen, others = (log_variances(parts_of(k), b, 1)[0] for b in (basis, more))
    assert chosen.min() >= others[50:].max() - 1e-9
    close(chosen, others[:50])


def test_main_effects_are_sums_of_materns():
    main, nu = MainEffects().double(), 4.5
    main.lengthscale = number(0.3)
    X, Z = torch.rand(5, 2).double(), torch.rand(4, 2).double()
    r = math.sqrt(2 * nu) * (X.unsqueeze(1) - Z).abs() / 0.3
    expected = 2 ** (1 - nu) / math.gamma(nu) * r**nu * torch.tensor(kv(nu, r.numpy()))
    close(main(X, Z).to_dense(), expected.sum(-1))
    close(main(X, diag=True), torch.full((5,), 2.0).double())
    assert ("nu", nu) in settings_of(main)  # which stored checkpoints are compared by


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


@pytest.mark.parametrize("dim", [2, 4])
def test_features_for_lengthscales_of_the_user_stay(dim):
    X, Y, Yvar = data(20, dim)
    model = plain(X, Y, Yvar, lengthscales=[0.5] * dim)
    with pytest.raises(StateError, match="without `lengthscales`"):
        model.choose_features()


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
