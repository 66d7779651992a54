"""Sites of a batch, and scipy's distributions of outcomes."""

import pytest
import torch

from bo_stream.likelihoods import Binomial, Likelihood, NegativeBinomial, Poisson, StudentT
from bo_stream.surrogates.counts import batch_sites
from bo_stream.testing.base import close


def test_very_precise_outcomes_determine_their_sites() -> None:
    """Beside imprecise ones, under a correlated prior."""
    n = torch.tensor([1e9, 20.0, 3e8, 1.0], dtype=torch.double)
    y = (n * torch.tensor([0.3, 0.5, 0.9, 0.0], dtype=torch.double)).round()
    lags = torch.arange(4.0, dtype=torch.double)
    S = torch.exp(-(lags - lags.unsqueeze(-1)).abs())
    sites = batch_sites(Binomial(), torch.zeros(4, dtype=torch.double), S, y, n)
    precise = n > 1e3
    close(sites.target[precise], (y / n).logit()[precise], 1e-6)
    close(sites.l2[precise] / n[precise], (y / n * (1.0 - y / n))[precise], 1e-3)


@pytest.mark.parametrize(
    "kind", [Binomial(), Poisson(), NegativeBinomial(shape=2.5), StudentT(df=3.0)]
)
def test_densities_are_those_of_scipy(kind: Likelihood) -> None:
    """And slope and curvature are their derivatives."""
    size = torch.tensor([7.0, 40.0, 3.0], dtype=torch.double)
    y = torch.tensor([2.0, 40.0, 0.0], dtype=torch.double)
    g = torch.tensor([-1.3, 2.0, 0.4], dtype=torch.double, requires_grad=True)
    ours, theirs = kind.log_density(g, y, size), kind.distribution(g, size)
    log = theirs.logpmf if kind.whole else theirs.logpdf
    close(ours.detach(), torch.from_numpy(log(y.numpy())), 1e-12)
    (slope,) = torch.autograd.grad(ours.sum(), g, create_graph=True)
    close(slope.detach(), kind.slope(g, y, size).detach(), 1e-12)
    if kind.whole:
        (bend,) = torch.autograd.grad(slope.sum(), g)
        close(-bend, kind.curvature(g, y, size).detach(), 1e-12)
    close(kind.cdf(g, y, size), torch.from_numpy(theirs.cdf(y.numpy())), 1e-14)
