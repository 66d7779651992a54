"""BALD over a classifier, against its definition and over a pool."""

import pytest
import torch
from botorch.optim import optimize_acqf
from torch import Tensor

from acquisitions import BALD, select_from_pool
from bo_stream import WISKI, CountGP, DirichletClassifier
from bo_stream.errors import UnsupportedError
from bo_stream.likelihoods import Bernoulli

BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def points(n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 2, generator=generator, dtype=torch.float64)


def classifier(n: int = 60, surrogate: str = "wiski", **kw: object) -> DirichletClassifier:
    """Three stripes, learned."""
    X = points(n, 0)
    y = (3.0 * X[:, 0]).long().clamp_max(2)
    kw = {"grid_size": 10} | kw if surrogate == "wiski" else kw
    model = DirichletClassifier(X, y, bounds=BOX, surrogate=surrogate, **kw)
    model.fit(30)
    return model


def draws(model: DirichletClassifier, X: Tensor) -> Tensor:
    """Random probabilities, ``S x n x C``."""
    mean, variance = model.latent(X)
    generator = torch.Generator().manual_seed(1)
    Z = torch.randn(100_000, *mean.shape, generator=generator, dtype=torch.float64)
    return torch.softmax(mean + variance.sqrt() * Z, -1)


def entropy(p: Tensor) -> Tensor:
    return -(p * p.log()).sum(-1)


def test_values_are_those_defined() -> None:
    model, X = classifier(), points(6, 3)
    p = draws(model, X)
    total, left = entropy(p.mean(0)), entropy(p).mean(0)
    at = X.unsqueeze(-2)
    got = BALD(model, num_samples=4096)(at).detach()
    torch.testing.assert_close(got, total - left, rtol=0.02, atol=5e-3)
    assert torch.equal(got, BALD(model, num_samples=4096)(at).detach())
    assert bool((total - left > 0.0).all())


def test_bald_avoids_where_labels_are_known_to_mix() -> None:
    """Noise in one half, few labels in the other: BALD is large in the second, the entropy not."""
    generator = torch.Generator().manual_seed(0)
    noisy = points(400, 1) * torch.tensor([0.4, 1.0])
    clear = torch.tensor([[0.7, 0.2], [0.7, 0.8]], dtype=torch.float64)
    y = torch.randint(2, (400,), generator=generator)
    X, labels = torch.cat([noisy, clear]), torch.cat([y, torch.tensor([0, 1])])
    model = DirichletClassifier(X, labels, bounds=BOX, grid_size=12)
    model.model.covar_module.base_kernel.lengthscale = 0.2
    model.model.covar_module.outputscale = 4.0
    pool = torch.tensor([[0.2, 0.5], [0.95, 0.5]], dtype=torch.float64)
    assert float(entropy(draws(model, pool).mean(0))[0]) > 0.5
    in_noise, unseen = BALD(model)(pool.unsqueeze(-2)).tolist()
    assert unseen > 5.0 * in_noise


@pytest.mark.parametrize("surrogate", ["wiski", "node_wiski"])
def test_a_batch_spreads(surrogate: str) -> None:
    """A pending label tells of its neighbours, which are not chosen then."""
    model = classifier(surrogate=surrogate)
    before = {k: v.clone() for k, v in model.state_dict().items() if isinstance(v, Tensor)}
    best = points(200, 5)[BALD(model)(points(200, 5).unsqueeze(-2)).argmax()]
    near = best + 1e-4 * points(5, 6)
    pool = torch.cat([near, points(50, 7)])
    alone = BALD(model)(pool.unsqueeze(-2))
    chosen, values = select_from_pool(BALD(model), pool, q=5)
    assert int((alone.topk(6).indices < 5).sum()) == 5 and int((chosen < 5).sum()) < 5
    assert bool((values.diff() < 0.0).all()) and len(set(chosen.tolist())) == 5
    acqf = BALD(model)
    alone = acqf(best.reshape(1, 1, 2))
    acqf.set_X_pending(near[:1])
    assert float(acqf(best.reshape(1, 1, 2))) < 0.9 * float(alone)
    acqf.set_X_pending(None)
    assert torch.equal(acqf(best.reshape(1, 1, 2)), alone)
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in before.items())


def test_is_optimised_with_exact_gradients() -> None:
    model = classifier()
    acqf = BALD(model, num_samples=64)
    X = points(3, 8).unsqueeze(-2).requires_grad_()
    (gradient,) = torch.autograd.grad(acqf(X).sum(), X)
    step = 1e-6 * torch.ones_like(X[..., :1]) * torch.tensor([1.0, 0.0])
    with torch.no_grad():
        slope = (acqf(X + step) - acqf(X - step)) / 2e-6
    torch.testing.assert_close(gradient[:, 0, 0], slope, rtol=1e-4, atol=1e-6)
    torch.manual_seed(0)
    best, value = optimize_acqf(acqf, BOX, q=1, num_restarts=4, raw_samples=128)
    assert float(value) >= float(acqf(points(300, 9).unsqueeze(-2)).max()) - 1e-3
    pair, _ = optimize_acqf(acqf, BOX, q=2, num_restarts=2, raw_samples=32, sequential=True)
    assert float((pair[0] - pair[1]).norm()) > 0.05


@pytest.mark.slow
def test_labels_chosen_by_bald_teach_more_than_random_ones() -> None:
    truth, pool, Z = lambda X: (X.sum(-1) > 1.0).long(), points(300, 11), points(500, 12)
    rates = []
    for clever in (True, False):
        model = DirichletClassifier(pool[:8], truth(pool[:8]), bounds=BOX, grid_size=10)
        generator = torch.Generator().manual_seed(3)
        for _ in range(10):
            model.fit(10)
            if clever:
                chosen = select_from_pool(BALD(model, num_samples=64), pool, q=2)[0]
            else:
                chosen = torch.randperm(300, generator=generator)[:2]
            model.observe(pool[chosen], truth(pool[chosen]))
        model.fit()
        rates.append(float((model.predict(Z) == truth(Z)).double().mean()))
    assert rates[0] > 0.95 and rates[0] > rates[1]


def test_other_models_are_refused() -> None:
    X = points(5, 0)
    with pytest.raises(UnsupportedError):
        BALD(WISKI(X, X[:, :1], bounds=BOX))


def test_two_classes_by_expectation_propagation() -> None:
    """Both are computed from the one logit; pending points are believed."""
    X, at = points(60, 0), points(6, 3)
    labels = ["wet" if x > 0.5 else "dry" for x in X[:, 0]]
    kind = Bernoulli(classes=("dry", "wet"), nugget=0.0)
    model = CountGP(X, labels, bounds=BOX, likelihood=kind)
    model.fit(30)
    smooth = model.response(at, nugget=False)
    generator = torch.Generator().manual_seed(1)
    Z = torch.randn(100_000, 6, generator=generator, dtype=torch.float64)
    p = (smooth.means + smooth.variances.sqrt() * Z).sigmoid()
    p = torch.stack([1.0 - p, p], -1)
    total, left = entropy(p.mean(0)), torch.special.entr(p).sum(-1).mean(0)
    got = BALD(model, num_samples=4096)(at.unsqueeze(-2)).detach()
    torch.testing.assert_close(got, total - left, rtol=0.02, atol=5e-3)
    pending = BALD(model, X_pending=at[:1])(at.unsqueeze(-2)).detach()
    assert float(pending[0]) < float(BALD(model)(at[:1].unsqueeze(-2)))
    assert bool(((smooth.mean > 0.5) == (at[:, 0] > 0.5)).all())
    with pytest.raises(UnsupportedError):
        BALD(CountGP(X, torch.ones(60), 5, bounds=BOX))  # type: ignore[arg-type]
