"""Shortfalls of log densities, added up over a stream."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from bo_stream.base.fitting import Surprise, shortfall


def test_shortfall_is_that_of_the_log_density():
    """Against the expectation of the log density under the prediction, which is its entropy."""
    torch.manual_seed(0)
    A = torch.randn(5, 5, dtype=torch.float64)
    dist = MultivariateNormal(torch.randn(5).double(), A @ A.mT + torch.eye(5).double())
    y = dist.sample((3,))
    for row in y:
        w = torch.linalg.solve_triangular(
            dist.scale_tril, (row - dist.mean).unsqueeze(-1), upper=False
        )
        nats, variance = shortfall(w)
        torch.testing.assert_close(nats, -dist.entropy() - dist.log_prob(row))
        assert float(variance) == 2.5


def test_variance_is_what_a_right_model_has():
    torch.manual_seed(0)
    nats = torch.stack([shortfall(torch.randn(6).double())[0] for _ in range(4000)])
    assert float(nats.mean()) == pytest.approx(0.0, abs=0.1)
    assert float(nats.var()) == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize(("scale", "behind"), [(1.0, False), (0.5, False), (1.5, True)])
def test_only_a_model_too_sure_of_itself_is_behind(scale, behind):
    torch.manual_seed(0)
    seen = Surprise()
    for _ in range(30):
        seen = seen.seen(*shortfall(scale * torch.randn(10).double()), 10)
    assert seen.behind is behind


def test_a_few_outliers_are_no_verdict():
    assert not Surprise().seen(*shortfall(torch.full((4,), 9.0)), 4).behind
    assert not Surprise().behind


def test_what_was_long_ago_counts_less():
    """A score seen when the stream was half as long counts half; its variance a quarter."""
    one = torch.ones((), dtype=torch.float64)
    early = Surprise().seen(6.0 * one, one, 10)
    late = early.seen(0.0 * one, one, 10)
    assert late == Surprise(20, 3.0, 1.25)
    torch.manual_seed(0)
    bad = Surprise().seen(*shortfall(torch.full((100,), 2.0)), 100)
    assert bad.behind
    for _ in range(60):
        bad = bad.seen(*shortfall(torch.randn(100).double()), 100)
    assert not bad.behind
