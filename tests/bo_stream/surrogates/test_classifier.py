"""DirichletClassifier: its posterior, order, late classes, merging, forgetting, families."""

import copy

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood
from torch import Size

from bo_stream import HSGP, WISKI, DirichletClassifier
from bo_stream.errors import DtypeError, InputError, StateError, UnsupportedError
from bo_stream.mathematics.labels import LabelTargets
from bo_stream.testing.base import assert_same_state, snapshot
from tests.bo_stream.surrogates.dirichlet_cases import (
    BOX,
    FAMILIES,
    SMALL,
    assert_alike,
    built,
    close,
    data,
    varied,
)

EPS = (0.01, 0.3)


# -- what the labels mean ------------------------------------------------------------------------


@pytest.mark.parametrize("eps", EPS)
def test_targets_are_those_of_gpytorch(eps: float) -> None:
    y = data()[1]
    theirs = DirichletClassificationLikelihood(y, alpha_epsilon=eps, dtype=torch.float64)
    named = y.unsqueeze(-1) == torch.arange(3)
    targets, noises = LabelTargets(eps).regressions(named, torch.zeros(1, dtype=torch.float64))
    close(targets, theirs.transformed_targets.mT, 1e-14)
    close(noises, theirs.noise.mT, 1e-14)


@pytest.mark.parametrize("family", FAMILIES)
def test_equals_dense_regressions(family: str) -> None:
    """One Gaussian process a class under the family's own prior."""
    (X, y), Z, eps = data(), data(5, seed=4)[0], 0.3
    model = varied(built(family, X, y, alpha_epsilon=eps))
    prior = varied(built(family, X[:0], y[:0], classes=[0, 1, 2], alpha_epsilon=eps))
    within = 1e-7 if family == "wiski on many nodes" else 1e-8  # a truncated prior
    means = model.model.mean_module.constant.detach()
    evidence, both = torch.zeros(()), torch.cat([X, Z])
    for k in range(3):
        f = prior.posterior(both, output_indices=[k])
        K = f.distribution.covariance_matrix
        alpha = (y == k).double() + eps
        d = (1.0 / alpha + 1.0).log()
        e = alpha.log() - d / 2.0 - means[k]
        C, G = K[:60, :60] + d.diag(), K[60:, :60]
        normal = torch.distributions.MultivariateNormal(torch.zeros_like(e), C)
        evidence = evidence + normal.log_prob(e)
        mean, variance = (part[:, k] for part in model.latent(Z))
        close(mean, means[k] + G @ torch.linalg.solve(C, e), within)
        close(variance, (K[60:, 60:] - G @ torch.linalg.solve(C, G.mT)).diagonal(), within)
    close(model.log_evidence(), evidence, within)


def test_probabilities_are_mean_softmaxes_of_the_latent_functions() -> None:
    model, Z = varied(built("wiski", *data())), data(4, seed=2)[0]
    p = model.predict_proba(Z, num_samples=2**14)
    mean, variance = model.latent(Z)
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(200_000, 4, 3, generator=generator, dtype=torch.float64)
    close(p, torch.softmax(mean + variance.sqrt() * draws, -1).mean(0), 5e-3)
    close(p.sum(-1), torch.ones(4, dtype=torch.float64), 1e-12)
    assert torch.equal(p, model.predict_proba(Z, num_samples=2**14))
    assert model.predict(Z).tolist() == mean.argmax(-1).tolist()
    assert model.predict_proba(Z[:0]).shape == (0, 3)


def test_a_class_that_nothing_speaks_for_is_some_other_class() -> None:
    X, y = data(0)
    model = built("wiski", X, y, classes=["a", "b", "c", "d"])
    Z = data(2)[0]
    close(model.predict_proba(Z, 4096), torch.full((2, 4), 0.25, dtype=torch.float64), 1e-2)
    close(
        model.latent(Z)[0],
        torch.full((2, 4), LabelTargets(0.01).other[0], dtype=torch.float64),
        1e-12,
    )


def test_learns_what_there_is_to_learn() -> None:
    (X, y), (Z, truth) = data(200), data(300, seed=5)
    for family in ("wiski", "hsgp"):
        model = built(family, X, y)
        before = float(model.log_evidence())
        model.fit()
        assert float(model.log_evidence()) > before + 50.0
        assert float((model.predict(Z) == truth).double().mean()) > 0.93
        assert len(set(model.model.covar_module.outputscale.tolist())) == 3


# -- order, late classes, another concentration, merging, forgetting -----------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_order_and_batches_do_not_matter(family: str) -> None:
    X, y = data()
    whole = built(family, X, y)
    for order in (y.argsort(descending=True), torch.randperm(60)):
        first = order[:7]
        model = built(family, X[first], y[first], classes=[0, 1, 2])
        for part in order[7:].split(11):
            model.observe(X[part], y[part])
        assert_alike(varied(model), varied(whole), 1e-9)


@pytest.mark.parametrize(
    ("family", "fitted"), [(f, False) for f in FAMILIES] + [(f, True) for f in SMALL]
)
def test_a_late_class_equals_one_known_from_the_start(family: str, fitted: bool) -> None:
    X, y = data()
    early, late = y < 2, y == 2
    model = built(family, X[early], y[early])
    known = built(family, X[early], y[early], classes=[0, 1, 2])
    assert model.classes == [0, 1]
    if fitted:
        model.fit(10)
        if family == "hsgp":
            features = model.model.basis.lengthscales
            varied(model).model.choose_features()
            assert not torch.equal(features, model.model.basis.lengthscales)
        for one in (known.model, known.absent):
            one._replace(state=one.state.along(model.model.state, one.num_observed))
    for one in (model, known):
        one.observe(X[late], y[late])
    assert model.classes == [0, 1, 2] and model.num_observed == 60
    for one in (model, known):
        varied(one).model._set_prior_mean(torch.tensor([-1.0, -2.0, -3.0], dtype=torch.float64))
    assert_alike(model, known)
    assert_alike(copy.deepcopy(model).observe(X[:9], y[:9]), known.observe(X[:9], y[:9]))


def test_hyperparameters_stay_when_a_class_turns_up() -> None:
    X, y = data()
    early = y < 2
    model = built("wiski", X[early], y[early])
    model.fit(5)
    before = {name: p.detach().clone() for name, p in model.model.named_parameters()}
    model.observe(X, y)
    for name, parameter in model.model.named_parameters():
        close(parameter.reshape(3, -1)[:2], before[name].reshape(2, -1), 1e-14)
    assert float(model.model.mean_module.constant[2]) == pytest.approx(LabelTargets(0.01).other[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_merged_streams_are_one(family: str) -> None:
    """With classes in common, classes of one's own, and one that has seen nothing."""
    X, y = data()
    a, b = torch.arange(60) < 25, torch.arange(60) >= 25
    a, b = a & (y != 2), b | (y == 2)
    first, second = built(family, X[a], y[a]), built(family, X[b], y[b])
    there = snapshot(second)
    assert_alike(varied(first.merge(second)), varied(built(family, X, y)))
    assert_same_state(there, snapshot(second))
    blank = built(family, X[:0], y[:0], classes=[1])
    assert_alike(blank.merge(built(family, X, y)), built(family, X, y))


def test_what_does_not_fit_is_not_merged() -> None:
    X, y = data()
    model = built("wiski", X, y)
    before = snapshot(model)
    others = (
        built("hsgp", X, y),
        built("wiski", X, y, grid_size=12),
        built("wiski", X, y, input_transform=None),
    )
    for other in others:
        with pytest.raises(StateError):
            model.merge(other)
    with pytest.raises(DtypeError):
        model.merge(built("wiski", X, [str(label) for label in y.tolist()]))
    with pytest.raises(StateError):
        model.merge(model.model)
    assert_same_state(before, snapshot(model))


@pytest.mark.parametrize("family", SMALL)
def test_forgotten_labels_count_for_less(family: str) -> None:
    """Forgetting half of what was told twice is being told once, also for a late class."""
    X, y = data()
    early = y < 2
    twice = built(family, X[early], y[early]).observe(X[early], y[early]).forget(0.5)
    once = built(family, X[early], y[early])
    Z = data(5, seed=3)[0]
    for model in (twice, once):
        varied(model.observe(X[~early], y[~early]))
    for a, b in zip(twice.latent(Z), once.latent(Z), strict=True):
        close(a, b, 1e-9)
    with pytest.raises(InputError):
        twice.forget(0.0)


@pytest.mark.parametrize("named", [False, True])
def test_labels_all_alike_teach_nothing(named: bool) -> None:
    """Hyperparameters wait for what tells of them, and are found then as from the start."""
    X, y = data(40)
    y, alone = (y == 2).long(), y != 2
    model = built("wiski", X[alone], y[alone], classes=[0, 1] if named else None)
    before = {name: p.detach().clone() for name, p in model.model.named_parameters()}
    assert model.fit().evaluations == 0
    assert all(torch.equal(p, before[name]) for name, p in model.model.named_parameters())
    assert model.class_counts == ({0: int(alone.sum()), 1: 0} if named else {0: int(alone.sum())})
    model.observe(X[~alone], y[~alone])
    whole = built("wiski", X, y)
    ends = [one.fit().value for one in (model, whole)]
    assert ends[0] == pytest.approx(ends[1], abs=0.05)
    three = built("wiski", X, y, classes=[0, 1, 5])
    rows = [p.detach().clone() for p in three.model.parameters()]
    three.fit(3)
    for parameter, old in zip(three.model.parameters(), rows, strict=True):
        assert torch.equal(parameter[2], old[2]) and not torch.equal(parameter[1], old[1])


# -- other families ------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["node_wiski", "exact"])
def test_families_without_sums_need_all_classes(family: str) -> None:
    X, y = data()
    make = {"surrogate": family, "bounds": BOX}
    model = DirichletClassifier(X[y < 2], y[y < 2], classes=[0, 1, 2], **make)
    model.observe(X[y == 2], y[y == 2])
    exact = DirichletClassifier(X, y, surrogate="exact", bounds=BOX)
    Z = data(5, seed=3)[0]
    close(varied(model).latent(Z)[0], varied(exact).latent(Z)[0], 1e-4)
    two, before = DirichletClassifier(X[y < 2], y[y < 2], **make), None
    before = snapshot(two)
    with pytest.raises(UnsupportedError, match="classes"):
        two.observe(X, y)
    with pytest.raises(UnsupportedError):
        two.merge(model)
    with pytest.raises(UnsupportedError):
        two.forget(0.5)
    assert_same_state(before, snapshot(two))


def test_families_of_one_output_are_refused() -> None:
    with pytest.raises(UnsupportedError):
        DirichletClassifier(*data(), surrogate="cagp", bounds=BOX)


def test_the_family_follows_from_the_number_of_inputs() -> None:
    X, y = data()
    assert isinstance(DirichletClassifier(X, y, bounds=BOX, grid_size=9).model, WISKI)
    wide = torch.cat([X, X], -1)
    bounds = torch.cat([BOX, BOX], -1)
    model = DirichletClassifier(wide, y, bounds=bounds, num_features=20)
    assert isinstance(model.model, HSGP)
    by_class = DirichletClassifier(wide, y, bounds=bounds, surrogate=HSGP, num_features=20)
    assert torch.equal(by_class.predict_proba(wide), model.predict_proba(wide))


def test_a_kernel_of_ones_own() -> None:
    X, y = data()
    kernel = ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale = 0.2
    model = built("wiski", X, y, covar_module=kernel)
    assert model.model.covar_module.base_kernel.lengthscale.shape == (3, 1, 2)
    assert model.model.covar_module.base_kernel.nu == 1.5
    model.model.covar_module.base_kernel.lengthscale = 0.5
    assert float(kernel.base_kernel.lengthscale[0, 0]) == pytest.approx(0.2)
    late = model.observe(X[:1], [7])
    lengthscales = late.model.covar_module.base_kernel.lengthscale[:, 0, 1].tolist()
    assert lengthscales == pytest.approx([0.5, 0.5, 0.5, 0.2])
    with pytest.raises(UnsupportedError, match="batch"):
        built("wiski", X, y, covar_module=ScaleKernel(RBFKernel(), batch_shape=Size([3])))


def test_no_points_have_labels_of_the_same_kind() -> None:
    X = torch.rand(4, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    unit = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    words = DirichletClassifier(X, ["a", "b", "a", "b"], bounds=unit)
    assert words.predict(X[:0]) == [] and len(words.predict(X)) == 4
    numbers = DirichletClassifier(X, torch.tensor([0, 1, 0, 1]), bounds=unit).predict(X[:0])
    assert isinstance(numbers, torch.Tensor) and numbers.shape == (0,)
    with pytest.raises(InputError, match="max_evals"):
        DirichletClassifier(X, ["a"] * 4, bounds=unit).fit(0)
