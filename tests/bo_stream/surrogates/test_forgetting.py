"""`forget`: what is forgotten teaches nothing, and a drifting function is followed."""

import pytest
import torch

from bo_stream import HSGP, WISKI, surrogate
from bo_stream.testing.base import close

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
FAMILIES = {
    "wiski": {"grid_size": 9},
    "hsgp": {"num_features": 40},
}
FACTOR = 0.8


def data(n=40, seed=0, outputs=1):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    Y = (4.0 * X.sum(-1, keepdim=True) + torch.arange(outputs)).sin()
    Y = Y + 0.2 * torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    return X, Y, 0.02 + 0.1 * torch.rand(n, outputs, generator=generator, dtype=torch.float64)


def built(family, X, Y, Yvar=None, **kw):
    """A surrogate in raw units."""
    kw = {"input_transform": None, "outcome_transform": None, **kw}
    options = FAMILIES[family]
    return surrogate(family, X, Y, Yvar, bounds=BOUNDS, **options, **kw)


@pytest.mark.parametrize("family", FAMILIES)
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
