"""CountGP against expectation propagation on all data at once, and its predictions."""

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.sampling import SobolQMCNormalSampler
from torch import Tensor

from bo_stream import CountGP, DirichletClassifier
from bo_stream.errors import UnsupportedError
from bo_stream.likelihoods import (
    Bernoulli,
    Binomial,
    Likelihood,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from bo_stream.scores import prequential
from problems import load_malaria
from tests.bo_stream.surrogates.count_cases import (
    FAMILIES,
    UNIT,
    WITHIN,
    against_oracle,
    close,
    field,
    latent,
    log_binomial,
    log_poisson,
    slice_samples,
    survey,
)

# -- against the oracle --------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fitted_stream_equals_full_batch_ep(family: str) -> None:
    X, k, n, _ = survey(70)
    model = CountGP(X[:40], k[:40], n[:40], bounds=UNIT, surrogate=family)
    model.observe(X[40:], k[40:], n[40:])
    report = model.fit()
    error, nats = against_oracle(model, X, k, n)
    assert error <= WITHIN[family]
    assert report.converged and report.value == pytest.approx(float(model.log_evidence()))
    if family in ("exact", "wiski"):
        assert nats <= 0.05


def by_x(X: Tensor, k: Tensor, n: Tensor) -> Tensor:
    return X[:, 0].argsort()


def by_rate(X: Tensor, k: Tensor, n: Tensor) -> Tensor:
    return (k / n).argsort()


@pytest.mark.parametrize(("order", "passed"), [(by_x, 0.15), (by_rate, 1.0)])
def test_order_matters_little_and_not_after_two_refreshes(order: Any, passed: float) -> None:
    data = survey(80, trials=(1, 12))[:3]
    X, k, n = (part[order(*data)] for part in data)
    model = CountGP(X, k, n, bounds=UNIT, surrogate="exact", likelihood=Binomial(nugget=0.1))
    assert against_oracle(model, X, k, n)[0] <= passed
    model.refresh(2)
    error, nats = against_oracle(model, X, k, n)
    assert error <= 0.005 and nats <= 0.01


def test_cases_in_an_exposure_equal_full_batch_ep() -> None:
    rng = np.random.default_rng(3)
    X, exposure = torch.from_numpy(rng.random((50, 2))), torch.from_numpy(rng.random(50) * 9 + 1)
    k = torch.from_numpy(rng.poisson((exposure * field(X).exp()).numpy())).double()
    kind = Poisson(nugget=0.05)
    model = CountGP(X, k, exposure, bounds=UNIT, surrogate="exact", likelihood=kind)
    model.refresh(3)
    error, nats = against_oracle(model, X, k, exposure, log_poisson)
    assert error <= 0.005 and nats <= 0.01
    wide = NegativeBinomial(shape=1e6, nugget=0.05)  # nearly Poisson
    near = CountGP(X, k, exposure, bounds=UNIT, surrogate="exact", likelihood=wide)
    near.refresh(3)
    close(near.response(X).mean, model.response(X).mean, 1e-3)


def test_measurements_with_outliers() -> None:
    """The fixed point of variational sites, which outliers hardly move; a bound of the evidence."""
    rng = np.random.default_rng(5)
    X = torch.from_numpy(rng.random((80, 2)))
    f = field(X)
    y = f + 0.1 * torch.from_numpy(rng.standard_t(2, 80))
    y[::10] += 4.0
    kind = StudentT(df=3.0, nugget=0.01)
    model = CountGP(X, y, bounds=UNIT, surrogate="exact", likelihood=kind)
    model.refresh(40)
    K = model.model.covar_module(X).to_dense().detach()
    c = model.model.mean_module.constant.detach()
    m, v = c.expand(80), K.diagonal()
    for _ in range(60):
        D = 0.01 * (3.0 + ((y - m) ** 2 + v) / 0.01) / 4.0
        gain = torch.linalg.solve(K + D.diag(), K).mT
        m, v = c + gain @ (y - c), (K - gain @ K).diagonal()
    mean, variance = latent(model, X)
    close(mean, m, 1e-4)
    close(variance, v, 1e-4)
    learned = CountGP(X, y, bounds=UNIT, surrogate="wiski", likelihood=StudentT(df=3.0))
    learned.fit()
    assert 0.05 < learned.nugget**0.5 < 0.2
    assert float((learned.response(X).mean - f).abs().mean()) < 0.1
    one = CountGP(X[:1], y[:1], bounds=UNIT, surrogate="exact", likelihood=kind)
    one.refresh(20)
    prior = CountGP(X[:0], [], bounds=UNIT, surrogate="exact", likelihood=kind)
    prior.model._set_prior_mean(one.model._prior_mean().detach())
    exact = float(prior.predict_counts(X[:1]).log_prob(y[:1]))
    assert exact - 0.5 < float(one.log_evidence()) <= exact
    future = learned.predict_counts(X[:5])
    draws = future.sample(40_000)
    close(draws.quantile(0.9, 0), future.quantiles([0.9])[0], 0.03)


def test_fit_reaches_the_best_nugget() -> None:
    """No nugget nearby has a higher evidence at the fitted hyperparameters."""
    X, k, n, _ = survey(120, trials=(20, 60), seed=1)
    model = CountGP(X, k, n, bounds=UNIT, surrogate="exact")
    model.fit()
    values = []
    for factor in (0.95, 1.0, 1.05):
        kind = Binomial(nugget=factor * model.nugget)
        given: dict[str, Any] = {"surrogate": "exact", "covar_module": model.model.covar_module}
        other = CountGP(X[:0], k[:0], n[:0], bounds=UNIT, likelihood=kind, **given)
        other.observe(X, k, n)
        other.model.mean_module.load_state_dict(model.model.mean_module.state_dict())
        other.refresh(4)
        values.append(float(other.log_evidence()))
    assert values[1] > max(values[0], values[2])
    assert float(model.log_evidence()) == pytest.approx(values[1], abs=0.01)


def test_places_that_differ_by_more_than_chance() -> None:
    """The nugget is found, and intervals of counts at new places hold what they say."""
    X, k, n, _ = survey(300, trials=(40, 60), nugget=0.5, seed=2)
    model = CountGP(X[:150], k[:150], n[:150], bounds=UNIT, surrogate="exact")
    model.fit(30)
    assert 0.3 < model.nugget < 0.8
    low, high = model.predict_counts(X[150:], n[150:]).quantiles([0.05, 0.95])
    inside = ((low <= k[150:]) & (k[150:] <= high)).double().mean()
    assert 0.86 <= float(inside) <= 0.96


# -- predictions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "size"),
    [(Binomial(nugget=0.3), 12.0), (Bernoulli(nugget=0.3), 1.0), (Poisson(nugget=0.3), 3.0)],
)
def test_predictions_agree_with_draws(kind: Likelihood, size: float) -> None:
    X, k, n, f = survey(40)
    y = (k / n * size).round() if size > 1 else (k / n > 0.3).double()
    sizes = None if size == 1.0 else size
    model = CountGP(X, y, sizes, bounds=UNIT, surrogate="exact", likelihood=kind)
    Z = torch.rand(4, 2, dtype=torch.double)
    future = model.predict_counts(Z, sizes)
    draws = future.sample(40_000)
    close(draws.mean(0), future.mean, 0.05)
    most = 1 if isinstance(kind, Bernoulli) else 12 if isinstance(kind, Binomial) else 200
    chances = torch.stack([future.log_prob([k] * 4).exp() for k in range(most + 1)], -1)
    close(chances.sum(-1), torch.ones(4).double(), 1e-6)
    close((draws == 1.0).double().mean(0), chances[:, 1], 0.02)
    reached = future.cdf(torch.ones(4).double())
    close(reached, chances[:, :2].sum(-1), 1e-3)
    for level, ends in zip((0.05, 0.95), future.quantiles([0.05, 0.95]), strict=True):
        below = chances.cumsum(-1).gather(1, ends.long().unsqueeze(1)).squeeze(1)
        assert bool((below >= level - 1e-3).all())
        assert bool((below - chances.gather(1, ends.long().unsqueeze(1)).squeeze(1) < level).all())


def test_responses_here_and_of_the_smooth_surface() -> None:
    X, k, n, _ = survey(60)
    model = CountGP(X, k, n, bounds=UNIT, surrogate="exact")
    here, smooth = model.response(X[:9]), model.response(X[:9], nugget=False)
    assert bool((here.sd > smooth.sd).all())
    g = here.means + here.variances.sqrt() * torch.randn(100_000, 9).double()
    close(g.sigmoid().mean(0), here.mean, 0.01)
    close(g.sigmoid().std(0), here.sd, 0.01)
    close(g.sigmoid().quantile(0.9, 0), here.quantiles([0.9])[0], 0.01)


def test_a_future_outcome_is_believed_with_its_noise() -> None:
    X, k, n, _ = survey(40)
    model = CountGP(X, k, n, bounds=UNIT, surrogate="exact")
    Z = X[:2] * 0.5 + 0.2
    few, many = model.future_noise(Z, 5), model.future_noise(Z, 500)
    assert bool((few > many).all()) and bool((many > model.nugget).all())
    believed = model.believing(Z, 500)
    close(believed.posterior(Z).mean, model.posterior(Z).mean)
    assert bool((believed.posterior(Z).variance < model.posterior(Z).variance).all())
    assert model.response_weights(Z).shape == (2,)


def test_gradients_through_fantasies_are_exact() -> None:
    X, k, n, _ = survey(30)
    model = CountGP(X, k, n, bounds=UNIT, surrogate="exact")
    Z, sampler = (
        torch.rand(6, 2, dtype=torch.double),
        SobolQMCNormalSampler(torch.Size([3]), seed=1),
    )

    def reduction(x: Tensor) -> Tensor:
        return model.fantasize(x, sampler, 40).posterior(Z).variance.sum()

    x = torch.rand(2, 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(reduction, (x,), atol=1e-5)
    assert model.num_observed == 30


def test_joint_predictions_multiply() -> None:
    """The log probability of two outcomes is that of the first, then of the second."""
    X, k, n, _ = survey(42)
    model = CountGP(X[:40], k[:40], n[:40], bounds=UNIT, surrogate="exact")
    joint = model.log_predictive(X[40:], k[40:], n[40:])
    first = model.log_predictive(X[40:41], k[40:41], n[40:41])
    close(first, model.predict_counts(X[40:41], n[40:41]).log_prob(k[40:41])[0])
    model.observe(X[40:41], k[40:41], n[40:41])
    close(joint, first + model.log_predictive(X[41:], k[41:], n[41:]), 0.01)
    assert tuple(model.predictive_score(X[:0], k[:0], n[:0])) == (0.0, 0.0, 0.0)


def test_prequential_scores_are_those_of_counts() -> None:
    """Under a wrong mean the scores say so; with everything right they do not."""
    X, k, n, _ = survey(200, seed=4)
    for wrong in (False, True):
        model = CountGP(X[:80], k[:80], n[:80], bounds=UNIT)
        model.fit(20)
        told = n - k if wrong else k
        batches = zip(*(part[80:].split(20) for part in (X, told, n)), strict=True)
        one = copy.deepcopy(model)
        first = one.log_predictive(X[80:100], told[80:100], n[80:100])
        rows = list(prequential(one, batches))
        assert rows[0].log_density == pytest.approx(float(first))
        assert one.num_observed == 200 and rows[0].behind is wrong
        assert wrong or not rows[-1].behind


@pytest.mark.slow
def test_latent_intervals_hold_what_they_say() -> None:
    """On draws from the prior, with its hyperparameters, 90 % intervals hold 87 to 94 %."""
    inside = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = torch.from_numpy(rng.random((200, 2)))
        n = torch.from_numpy(rng.integers(1, 6, size=200)).double()
        kind = Binomial(nugget=0.2)
        model = CountGP(X[:0], [], bounds=UNIT, surrogate="exact", likelihood=kind)
        K = model.model.covar_module(X).to_dense().detach() + 1e-8 * torch.eye(200)
        f = torch.linalg.cholesky(K) @ torch.from_numpy(rng.standard_normal(200)) - 1.0
        g = f + np.sqrt(0.2) * torch.from_numpy(rng.standard_normal(200))
        k = torch.from_numpy(rng.binomial(n.numpy().astype(int), g.sigmoid().numpy())).double()
        model.observe(X[:150], k[:150], n[:150])
        model.refresh(3)
        m, v = latent(model, X)
        inside.append(((f - m).abs() <= 1.645 * v.sqrt()).double().mean())
    assert 0.87 <= float(torch.stack(inside).mean()) <= 0.94


@pytest.mark.slow
def test_intervals_from_few_counts_are_wide() -> None:
    """On a rough map, with fitted hyperparameters; an RBF kernel without priors has .73."""
    cells = load_malaria(cells=3000)
    X, value, inside = cells.X.double(), cells.Y[:, 0].double(), []
    p = ((value - value.mean()) / value.std() - 1.5).sigmoid()
    for seed in range(8):
        rng = np.random.default_rng(seed)
        sites, test = torch.from_numpy(rng.permutation(len(X))[:1048]).split([48, 1000])
        k = torch.from_numpy(rng.binomial(50, p.numpy())).double()
        model = CountGP(X[sites], k[sites], 50, bounds=UNIT, surrogate="exact")
        model.fit()
        low, high = model.response(X[test], nugget=False).quantiles([0.05, 0.95])
        inside.append(((low <= p[test]) & (p[test] <= high)).double().mean())
    assert float(torch.stack(inside).mean()) >= 0.75


@pytest.mark.slow
def test_it_agrees_with_sampling() -> None:
    """Means and deviations of the latent values, by elliptical slice sampling."""
    X, k, n, _ = survey(15, trials=(1, 8), nugget=0.0, seed=6)
    kind = Binomial(nugget=0.0)
    model = CountGP(X, k, n, bounds=UNIT, surrogate="exact", likelihood=kind)
    model.refresh(4)
    K = model.model.covar_module(X).to_dense().detach().numpy()
    mean = float(model.model.mean_module.constant.detach())
    drawn = slice_samples(K, mean, k.numpy(), n.numpy(), 60_000)[2000:]
    m, v = (value.numpy() for value in latent(model, X))
    assert np.sqrt((((drawn.mean(0) - m) ** 2) / v).mean()) < 0.05
    assert np.abs(drawn.std(0) / np.sqrt(v) - 1.0).max() < 0.05


def test_the_oracle_is_a_density() -> None:
    k = np.arange(8.0)
    total = np.exp(log_binomial(np.full(8, 0.3), k, np.full(8, 7.0))).sum()
    assert total == pytest.approx(1.0)


def test_what_needs_training_data_says_what_to_call() -> None:
    """Loops of BoTorch's and GPyTorch's tutorials."""
    X = torch.rand(4, 2, dtype=torch.double)
    yes = [0, 1, 0, 1]
    for model in (CountGP(X, yes, 2, bounds=UNIT), DirichletClassifier(X, yes, bounds=UNIT)):
        for name in ("train_inputs", "train_targets"):
            with pytest.raises(AttributeError, match="call `fit`"):
                getattr(model, name)
        with pytest.raises(UnsupportedError, match="`posterior`"):
            model.train()(X)


# -- beside transformed labels --------------------------------------------------------------------


def there(name: str) -> pd.DataFrame:
    """A table, if it is there."""
    path = Path(os.environ.get("BO_STREAM_DATA", "data")) / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return pd.read_csv(path)


@pytest.mark.slow
def test_two_classes_are_calibrated_better_than_by_transformed_labels() -> None:
    """Log loss and calibration error of 4,900 labels of Banana, given 400."""
    table = there("banana.csv.gz")
    X, y = (
        torch.from_numpy(table[["x0", "x1"]].to_numpy()),
        torch.from_numpy(table.label.to_numpy()),
    )
    train = torch.from_numpy((table["split"] == "train").to_numpy())
    bounds = torch.stack([X.amin(0) - 0.1, X.amax(0) + 0.1])
    kind = Bernoulli(classes=(0, 1), nugget=0.0)
    sites = CountGP(X[train], y[train], bounds=bounds, likelihood=kind)
    labels = DirichletClassifier(X[train], y[train], bounds=bounds)
    found = []
    for model in (sites, labels):
        model.fit()
        counts = isinstance(model, CountGP)
        p = model.response(X[~train]).mean if counts else model.predict_proba(X[~train])[:, 1]
        told = y[~train] == 1
        loss = -torch.where(told, p, 1.0 - p).log().mean()
        sure, right = torch.maximum(p, 1.0 - p), ((p > 0.5) == told).double()
        bins = ((sure - 0.5) * 20.0).long().clamp_max(9)
        gaps = torch.zeros(10).double().index_add(0, bins, right - sure)
        found.append((float(loss), float(gaps.abs().sum() / len(p))))
    assert found[0][0] <= 0.235 < found[1][0]
    assert found[0][1] <= 0.019 < found[1][1]
