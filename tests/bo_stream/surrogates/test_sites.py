"""Sites of a batch."""

import torch

from bo_stream.likelihoods import Binomial
from bo_stream.testing.base import close


def test_very_precise_outcomes_determine_their_sites() -> None:
    """Beside imprecise ones, under a correlated prior."""
    n = torch.tensor([1e9, 20.0, 3e8, 1.0], dtype=torch.double)
    y = (n * torch.tensor([0.3, 0.5, 0.9, 0.0], dtype=torch.double)).round()
    lags = torch.arange(4.0, dtype=torch.double)
    S = torch.exp(-(lags - lags.unsqueeze(-1)).abs())
    sites = Binomial().batch_sites(torch.zeros(4, dtype=torch.double), S, y, n)
    precise = n > 1e3
    close(sites.target[precise], (y / n).logit()[precise], 1e-6)
    close(sites.l2[precise] / n[precise], (y / n * (1.0 - y / n))[precise], 1e-3)
