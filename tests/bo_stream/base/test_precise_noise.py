"""Known noise too small for a family: the user is warned, or the values are right."""

import warnings

import pytest
import torch

from bo_stream import HSGP, CaGP, ExactGP, OnlineSGPR
from bo_stream.errors import PrecisionWarning

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def rough(X):
    return torch.sin(15.0 * X[:, :1]) * torch.cos(9.0 * X[:, 1:])


def data(share, n=200):
    g = torch.Generator().manual_seed(1)
    X = torch.rand(n, 2, generator=g, dtype=torch.float64)
    noise = torch.full((n, 1), 0.25 * share, dtype=torch.float64)
    return X, rough(X) + noise.sqrt() * torch.randn(n, 1, generator=g, dtype=torch.float64), noise


def misses(model, X):
    """In standard deviations of the posterior, root mean square."""
    p = model.posterior(X)
    return float(((p.mean - rough(X)).square() / p.variance).mean().sqrt())


@pytest.mark.parametrize("share", [1e-8, 1e-4])
def test_features_that_the_data_exhaust_are_too_few(share):
    """The intervals of the first are too narrow by far, those of the second are right."""
    model = HSGP(*data(share), bounds=BOUNDS)
    T = data(1.0, 100)[0] ** 1.1
    if share == 1e-4:
        with warnings.catch_warnings(action="error", category=PrecisionWarning):
            model.fit()
        assert misses(model, T) < 1.5
    else:
        with pytest.warns(
            PrecisionWarning, match=r"determine .* of the features.*num_features"
        ) as caught:
            model.fit()
        assert caught[0].filename == __file__
        assert misses(model, T) > 2.0


@pytest.mark.parametrize("family", [CaGP, ExactGP])
def test_a_posterior_far_from_its_data_says_so(family):
    """A constant with a kernel whose matrix is singular in doubles, and outcomes off it."""
    g = torch.Generator().manual_seed(0)
    X = torch.rand(60, 1, generator=g, dtype=torch.float64)
    Y = torch.sin(40.0 * X)
    model = family(X, Y, torch.full_like(Y, 1e-15), bounds=BOUNDS[:, :1])
    model.covar_module.base_kernel.lengthscale = 5.0
    with pytest.warns(PrecisionWarning, match="misses its data"):
        model.posterior(X)
    with warnings.catch_warnings(action="error", category=PrecisionWarning):
        family(X, Y, torch.full_like(Y, 1e-4), bounds=BOUNDS[:, :1]).posterior(X)


def test_inducing_points_take_noise_below_rounding_errors():
    X, Y, _ = data(1e-12, 60)
    model = OnlineSGPR(X, Y, torch.full_like(Y, 1e-14), bounds=BOUNDS)
    model.fit()
    assert bool((model.posterior(X).variance > 0.0).all())
