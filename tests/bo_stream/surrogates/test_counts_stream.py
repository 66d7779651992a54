"""CountGP as a stream: saved, merged, forgotten, refused, under stress."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from bo_stream import CountGP, load
from bo_stream.errors import InputError, NoiseError, ShapeError, StateError, UnsupportedError
from bo_stream.likelihoods import (
    Bernoulli,
    Binomial,
    Likelihood,
    Poisson,
    StudentT,
)
from bo_stream.testing.wholeness import interrupted, lines_of
from tests.bo_stream.surrogates.count_cases import (
    UNIT,
    assert_alike,
    close,
    field,
    latent,
    survey,
)


def let_go(model: CountGP) -> int:
    """Number of outcomes whose targets are kept, but which are not held."""
    return int(model.counts.contents.kept.count)


# -- the stream ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["exact", "wiski"])
def test_it_is_saved_and_continues(family: str, tmp_path: Any) -> None:
    X, k, n, _ = survey(90)
    opening = 5 if family in ("wiski", "hsgp") else 4096
    model = CountGP(X[:80], k[:80], n[:80], bounds=UNIT, surrogate=family, opening=opening)
    model.save(tmp_path / "model.pt")
    again, copied = load(tmp_path / "model.pt"), copy.deepcopy(model)
    for one in (model, again, copied):
        one.observe(X[80:], k[80:], n[80:])
        one.refresh(1)
    assert_alike(again, model)
    assert_alike(copied, model)


@pytest.mark.parametrize("family", ["wiski", "hsgp"])
def test_outcomes_beyond_the_opening_stay_in_the_sums(family: str) -> None:
    X, k, n, _ = survey(140)
    kind = Binomial(nugget=0.2)
    every = CountGP(X, k, n, bounds=UNIT, surrogate=family, likelihood=kind)
    some = CountGP(X, k, n, bounds=UNIT, surrogate=family, likelihood=kind, opening=60)
    assert some.num_observed == 140 and let_go(some) == 68
    assert_alike(some, every, 0.02)  # the same targets; evidence as of arrival
    for one in (some, every):
        one.refresh(3)
    assert some.model.num_observed == 140
    gap = (latent(some, X)[0] - latent(every, X)[0]) / latent(every, X)[1].sqrt()
    assert float(gap.square().mean().sqrt()) < 0.05
    some.fit(20)


def test_features_stay_once_outcomes_are_not_held() -> None:
    """In more than three inputs they are chosen from the data of the opening."""
    rng = np.random.default_rng(0)
    X, box = torch.from_numpy(rng.random((120, 4))), torch.tensor([[0.0] * 4, [1.0] * 4])
    k = torch.from_numpy(rng.binomial(9, (2.0 * X[:, 0] - 1.0).sigmoid().numpy())).double()
    model = CountGP(X[:20], k[:20], 9, bounds=box, opening=20, num_features=64)
    model.fit(20)
    model.observe(X[20:], k[20:], 9)
    kernel = model.model.covar_module.base_kernel
    kernel.lengthscale = 0.3 * kernel.lengthscale.detach()
    model.refresh()
    model.fit(20)
    assert let_go(model) == 100 and model.model.num_observed == 120
    assert float((model.response(X).mean - (2.0 * X[:, 0] - 1.0).sigmoid()).abs().mean()) < 0.15


def test_streams_merge() -> None:
    X, k, n, _ = survey(100)
    kind = Binomial(nugget=0.2)
    common: dict[str, Any] = {"bounds": UNIT, "likelihood": kind, "opening": 20}
    one = CountGP(X[:60], k[:60], n[:60], **common)
    two = CountGP(X[60:], k[60:], n[60:], **common)
    both = CountGP(X, k, n, bounds=UNIT, likelihood=kind)
    one.merge(two)
    assert one.num_observed == one.model.num_observed == 100
    assert let_go(one) == 80
    both.model._set_prior_mean(one.model._prior_mean().detach())
    for model in (one, both):
        model.refresh(4)
    gap = (latent(one, X)[0] - latent(both, X)[0]) / latent(both, X)[1].sqrt()
    assert float(gap.square().mean().sqrt()) < 0.1
    with pytest.raises(StateError, match="CountGP"):
        one.merge(CountGP(X[:0], k[:0], n[:0], bounds=UNIT))


def test_what_is_forgotten_returns_to_the_prior() -> None:
    X, k, n, _ = survey(60)
    model = CountGP(X, k, n, bounds=UNIT)
    before = latent(model, X)[1]
    more = model.log_evidence() - model.model.log_evidence()  # than that of the targets
    model.forget(0.5)
    close(model.log_evidence() - model.model.log_evidence(), 0.5 * more)
    assert bool((latent(model, X)[1] > before).all())
    model.observe(X[:5], k[:5], n[:5]).refresh(2)
    assert model.model.effective_observations == pytest.approx(35.0)
    with pytest.raises(UnsupportedError):
        CountGP(X, k, n, bounds=UNIT, surrogate="exact").forget(0.5)


@pytest.mark.parametrize("factor", [0.0, 1.5, "0.5", None, True])
def test_weights_of_the_past_that_are_no_shares_are_refused(factor: Any) -> None:
    X, k, n, _ = survey(20)
    model = CountGP(X, k, n, bounds=UNIT)
    with pytest.raises(InputError, match="factor"):
        model.forget(factor)
    assert len(model.counts.contents.held) == 20


def test_families_that_depend_on_order_take_one_pass() -> None:
    X, k, n, _ = survey(60)
    model = CountGP(X, k, n, bounds=UNIT, surrogate="online_sgpr")
    reference = CountGP(X, k, n, bounds=UNIT, surrogate="exact")
    close(model.response(X).mean, reference.response(X).mean, 0.05)
    with pytest.raises(UnsupportedError, match="one pass"):
        model.refresh()
    model.fit(10)


# -- refusals and stress -------------------------------------------------------------------------


def test_labels_of_two_classes_are_read_and_saved(tmp_path: Any) -> None:
    X, k, n, _ = survey(50)
    yes = k / n > 0.3
    kind = Bernoulli(classes=("no", "yes"), nugget=0.0)
    named = CountGP(X, ["yes" if y else "no" for y in yes], bounds=UNIT, likelihood=kind)
    named.save(tmp_path / "model.pt")
    plain = CountGP(X, yes.double(), bounds=UNIT, likelihood=Bernoulli(nugget=0.0))
    again = load(tmp_path / "model.pt")
    assert again.likelihood == kind
    assert_alike(again, plain, 1e-9)
    with pytest.raises(InputError, match="'maybe'"):
        named.observe(X[:1], ["maybe"])
    with pytest.raises(InputError):
        Bernoulli(classes=("no", "no"))


X3 = torch.linspace(0.1, 0.9, 6, dtype=torch.double).reshape(3, 2)


@pytest.mark.parametrize(
    ("k", "n", "kind", "message"),
    [
        ([3, 8, 1], [5, 5, 5], Binomial(), "8 of 5 in row 1"),
        ([3, -1, 1], [5, 5, 5], Binomial(), "0 or more"),
        ([3, 0.5, 1], [5, 5, 5], Binomial(), "whole numbers"),
        ([0, 0, 1], [5, 0, 5], Binomial(), "trials above 0"),
        ([0, 0, 1], [5, 2.5, 5], Binomial(), "whole numbers of trials"),
        ([0, 2, 1], None, Bernoulli(), "positives"),
        ([0, 0, 1], [5, 0, 5], Poisson(), "exposure above 0"),
        ([0, float("nan"), 1], 5, Poisson(), "finite"),
        ([0, 1], 5, Binomial(), "one for each point"),
    ],
)
def test_impossible_outcomes_are_refused(k: Any, n: Any, kind: Likelihood, message: str) -> None:
    model = CountGP(X3[:0], [], bounds=UNIT, likelihood=kind)
    with pytest.raises((InputError, ShapeError), match=message):
        model.observe(X3, k, n)
    assert model.num_observed == 0
    with pytest.raises(InputError):
        type(kind)(nugget=-1.0)
    with pytest.raises(InputError, match="such as"):
        CountGP(X3[:0], [], bounds=UNIT, likelihood=type(kind))  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["exact", "wiski"])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_all_zero_or_all_positive(family: str, share: float) -> None:
    """Hyperparameters are kept, because the mean would run away."""
    X, _, n, _ = survey(60)
    model = CountGP(X, share * n, n, bounds=UNIT, surrogate=family)
    before = copy.deepcopy(model.model.covar_module.state_dict())
    with pytest.warns(UserWarning, match="keep their values"):
        model.fit()
    after = model.model.covar_module.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert bool(((model.response(X).mean - share).abs() < 0.01).all())


@pytest.mark.parametrize("family", ["exact", "hsgp"])
def test_a_million_trials_and_many_rows_at_one_place(family: str) -> None:
    X, _, n, f = survey(100)
    n, p = torch.full_like(n, 1e6), f.sigmoid()
    model = CountGP(X, (n * p).round(), n, bounds=UNIT, surrogate=family)
    model.fit(30)
    close(model.response(X).mean, p, 1e-3)
    same, trials = X[:1].expand(300, 2), torch.full((300,), 20.0).double()
    k = torch.from_numpy(np.random.default_rng(0).binomial(20, 0.3, 300)).double()
    one = CountGP(same, k, trials, bounds=UNIT, surrogate=family)
    assert one.refresh(4) < 1e-3
    close(one.response(X[:1], nugget=False).mean, (k.sum() / 6000).reshape(1), 0.02)


@pytest.mark.parametrize("surrogate", ["wiski", "exact", "online_sgpr"])
def test_one_with_counts_takes_hyperparameters_and_nugget(surrogate: str) -> None:
    """Its targets are those it would choose under them."""
    X, k, n, _ = survey(60)
    old = CountGP(X[:40], k[:40], n[:40], bounds=UNIT, surrogate=surrogate)
    old.fit(10)
    new = CountGP(X, k, n, bounds=UNIT, surrogate=surrogate)
    new.load_state_dict(old.state_dict())
    assert new.num_observed == 60 and new.nugget == old.nugget
    for name, value in old.model.named_parameters():
        assert torch.equal(new.model.get_parameter(name), value)
    if new.refreshable:
        kept = new.response(X).mean
        assert new.refresh(1) < 0.5
        close(new.response(X).mean, kept, 0.05)
    before = new.response(X).mean
    new.load_state_dict(new.state_dict())  # what it has already
    assert torch.equal(new.response(X).mean, before)
    new.load_state_dict({"model.mean_module.raw_constant": torch.tensor(0.2)}, strict=False)
    assert float(new.model.mean_module.constant) == pytest.approx(0.2)
    assert new.num_observed == 60


def test_a_damaged_nugget_is_refused() -> None:
    X, k, n, _ = survey(30)
    model = CountGP(X, k, n, bounds=UNIT)
    mean = model.response(X).mean
    for nugget in (-1.0, math.nan, math.inf):
        with pytest.raises(StateError):
            model.load_state_dict({"counts.nugget": torch.tensor(nugget)}, strict=False)
    assert torch.equal(model.response(X).mean, mean)


def test_a_saved_state_is_loaded_into_one_built_alike() -> None:
    X, k, n, _ = survey(100)
    model = CountGP(X, k, n, bounds=UNIT, opening=20)
    model.fit(10)
    other = CountGP(X[:0], [], bounds=UNIT, opening=20)
    other.load_state_dict(model.state_dict())
    assert_alike(other, model)
    copied = {name: value.clone() for name, value in model.state_dict().items()}
    again = CountGP(X[:0], [], bounds=UNIT, opening=20)
    again.load_state_dict(copied)
    assert_alike(again, model)
    with pytest.raises(StateError, match="Poisson"):
        CountGP(X[:0], [], bounds=UNIT, likelihood=Poisson()).load_state_dict(model.state_dict())


def test_the_state_is_not_cast() -> None:
    X, k, n, _ = survey(90)
    model = CountGP(X, k, n, bounds=UNIT, opening=10)
    before = copy.deepcopy(model)
    assert model.float().posterior(X[:3].float()).mean.dtype == torch.float32
    single = CountGP(X.float(), k, n, bounds=UNIT)
    single.fit(10)
    model.double()
    assert_alike(model, before)
    model.refresh(1)


def test_a_failed_change_leaves_everything_as_it_was() -> None:
    """The grid refuses noise of 1e-15 in the second block, after the first was absorbed."""
    X, k, n, _ = survey(180)
    kind = Binomial(nugget=0.0)
    for first in (0, 40):
        model = CountGP(X[:first], k[:first], n[:first], bounds=UNIT, likelihood=kind, opening=20)
        before = copy.deepcopy(model)
        many, half = n.clone(), k.clone()
        many[-1], half[-1] = 4e15, 2e15
        with pytest.raises(NoiseError):
            model.observe(X[first:], half[first:], many[first:])
        assert model.num_observed == model.model.num_observed == first
        assert let_go(model) == 0
        assert_alike(model, before)


# -- one map, however the outcomes came ------------------------------------------------------------


def outcomes_of(kind: Likelihood, X: torch.Tensor) -> tuple[Any, Any, torch.Tensor]:
    """Outcomes, their sizes, and the latent values; each place differs from the surface."""
    rng, f = np.random.default_rng(1), field(X)
    g = f + np.sqrt(0.5) * torch.from_numpy(rng.standard_normal(len(X)))
    if isinstance(kind, StudentT):
        return f + 0.8 * torch.from_numpy(rng.standard_t(4, len(X))), None, f
    n = torch.from_numpy(rng.integers(10, 30, len(X))).double()
    if isinstance(kind, Poisson):
        return torch.from_numpy(rng.poisson((n * g.exp()).numpy())).double(), n, f
    return torch.from_numpy(rng.binomial(n.int().numpy(), g.sigmoid().numpy())).double(), n, f


@pytest.mark.parametrize(
    ("kind", "family", "options"),
    [
        (Binomial(), "hsgp", {"num_features": 24}),
        (StudentT(), "hsgp", {"num_features": 24}),
        pytest.param(Poisson(), "wiski", {"grid_size": 8}, marks=pytest.mark.slow),
        pytest.param(Binomial(), "node_wiski", {"cap": 30}, marks=pytest.mark.slow),
    ],
)
def test_a_large_table_at_once_or_in_parts(kind: Likelihood, family: str, options: Any) -> None:
    """Later outcomes are absorbed under a nugget that the opening ones have told."""
    X = torch.from_numpy(np.random.default_rng(2).random((600, 2)))
    k, n, f = outcomes_of(kind, X)
    common: dict[str, Any] = {"likelihood": kind, "surrogate": family, "bounds": UNIT, **options}

    def built(*ends: int, fit: int = 0) -> CountGP:
        model = CountGP(X[:0], [], opening=100, **common)
        for a, b in zip((0, *ends), (*ends, len(X)), strict=True):
            model.observe(X[a:b], k[a:b], None if n is None else n[a:b])
            if b == fit:
                model.fit()
        return model

    once = CountGP(X, k, n, opening=100, **common)
    m, v = latent(once, X)
    assert float(((f - m).abs() <= 1.645 * v.sqrt()).double().mean()) >= 0.8
    for other in (built(100, fit=100), built(1, 60, 500)):
        mean, variance = latent(other, X)
        assert float(((mean - m).square() / v).mean().sqrt()) < 0.3
        apart = (variance / v).sqrt().log().abs()  # nodes are other points in other batches
        assert float(apart.mean() if family == "node_wiski" else apart.max()) < 0.2
        assert other.nugget == pytest.approx(once.nugget, rel=0.2)


@pytest.mark.parametrize("opening", [0, 100])
def test_a_large_table_that_is_sorted(opening: int) -> None:
    """By outcome: the first ones, all zero, would tell nothing of the others."""
    X = torch.from_numpy(np.random.default_rng(2).random((600, 2)))
    k, n, f = outcomes_of(Poisson(), X)
    rows = k.argsort(stable=True)
    options: dict[str, Any] = {"surrogate": "hsgp", "num_features": 24, "opening": opening}
    model = CountGP(X[rows], k[rows], n[rows], likelihood=Poisson(), bounds=UNIT, **options)
    m, v = latent(model, X)
    assert float(((f - m).abs() <= 1.645 * v.sqrt()).double().mean()) >= 0.8
    empty = CountGP(X[:0], [], likelihood=Poisson(), bounds=UNIT, **options)
    empty.model.load_state_dict(dict(model.model.named_parameters()), strict=False)
    assert empty.merge(model).nugget == model.nugget


@pytest.mark.parametrize("kind", [Binomial(), StudentT()])
def test_outcomes_one_by_one_start_from_all_of_them(kind: Likelihood) -> None:
    """Without a fit: prior mean and nugget are not those of the first outcome."""
    X, _, _, _ = survey(72, seed=3)
    k, n, _ = outcomes_of(kind, X)
    common: dict[str, Any] = {"likelihood": kind, "surrogate": "exact", "bounds": UNIT}
    once, single = CountGP(X, k, n, **common), CountGP(X[:0], [], **common)
    for i in range(len(X)):
        single.observe(X[i : i + 1], k[i : i + 1], None if n is None else n[i : i + 1])
    assert single.nugget == once.nugget
    close(single.model._prior_mean(), once.model._prior_mean())
    Z = torch.cat([X, torch.rand(50, 2, dtype=torch.double)])
    m, v = latent(once, Z)
    assert float(((latent(single, Z)[0] - m).square() / v).mean().sqrt()) < 0.3  # of one pass
    single.model._set_prior_mean(m[:1] + 1.0)  # set by hand, it stays
    single.observe(X[:1], k[:1], None if n is None else n[:1])
    close(single.model._prior_mean(), m[:1] + 1.0)


def test_an_observe_that_is_interrupted_in_its_fit_changes_nothing() -> None:
    X, k, n, _ = survey(110)
    options: dict[str, Any] = {"opening": 20, "surrogate": "hsgp", "num_features": 12}
    model = CountGP(X[:20], k[:20], n[:20], bounds=UNIT, **options)
    before, after = copy.deepcopy(model), copy.deepcopy(model)
    total = lines_of(lambda: after.observe(X[20:], k[20:], n[20:]))
    assert let_go(after) == 90
    assert not torch.equal(after.model._prior_mean(), before.model._prior_mean())
    for share in (0.3, 0.6, 0.9):
        interrupted(lambda: model.observe(X[20:], k[20:], n[20:]), int(share * total))
        assert_alike(model, before, 1e-9)
        assert let_go(model) == 0 and model.num_observed == 20
