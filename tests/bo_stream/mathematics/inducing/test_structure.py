"""The score of a function hidden in the noise: its slope, its variance, and what it is blind to."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from bo_stream.mathematics.inducing.posterior import predict
from bo_stream.mathematics.inducing.state import Batch, dense
from bo_stream.mathematics.inducing.structure import hidden_structure, whitened_residuals
from tests.bo_stream.mathematics.inducing.sgpr_cases import (
    covariance,
    data,
    scalar,
    se_kernel,
    start,
    step,
)

QUICK = se_kernel(3.0, (0.1, 0.1))


def case():
    """A state, a batch after it, and its predictive mean and covariance without noise."""
    first, batch = data(20, d=2, spread=0.5), data(15, d=2, seed=1, noise=0.2, spread=0.5)
    kernel = se_kernel(1.3, (0.6, 0.6))
    state = step(start(first), first, kernel, first.X[:6], 0.3).state
    mean, A, V = predict(state, kernel, batch.X)
    return state, batch, kernel, mean, covariance(kernel, batch.X, A, V)


def test_whitened_residuals_are_those_of_the_predictive_density():
    state, batch, kernel, mean, C = case()
    w, L = whitened_residuals(state, batch, kernel)
    C = C + torch.diag(batch.noise)
    torch.testing.assert_close(L @ L.mT, C)
    density = MultivariateNormal(mean, C).log_prob(batch.y)
    own = -0.5 * w.square().sum() - L.diagonal().log().sum()
    constant = MultivariateNormal(torch.zeros(15).double(), torch.eye(15).double())
    torch.testing.assert_close(own + constant.log_prob(torch.zeros(15).double()), density)


def test_score_is_the_slope_that_the_noise_level_does_not_explain():
    """Against autograd and the Fisher information of both amplitudes, written out."""
    state, batch, kernel, mean, C = case()
    S = dense(QUICK, batch.X) / 3.0 * batch.noise.mean()
    D = torch.diag(batch.noise)
    a, b = (scalar(0.0).requires_grad_() for _ in range(2))
    density = MultivariateNormal(mean, C + D + a * S + b * D).log_prob(batch.y)
    slope, level = torch.autograd.grad(density, (a, b))
    P = torch.linalg.inv(C + D)
    fisher = [[0.5 * (P @ M @ P @ N).trace() for N in (S, D)] for M in (S, D)]
    share = fisher[0][1] / fisher[1][1]
    score, information = hidden_structure(*whitened_residuals(state, batch, kernel), batch, QUICK)
    torch.testing.assert_close(score, slope - share * level)
    torch.testing.assert_close(information, fisher[0][0] - share * fisher[0][1])


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_score_over_information_estimates_the_share_of_the_noise(share):
    """Mean and variance over draws of residuals that hold so much of a quick function."""
    torch.manual_seed(0)
    batch = data(80, d=2, noise=0.2)
    state = start(batch, 0.0)
    kernel = se_kernel(1e-6, (0.6, 0.6))  # what the model predicts is noise alone
    S = dense(QUICK, batch.X) / 3.0 * 0.2
    C = (1.0 - share) * 0.2 * torch.eye(80).double() + share * S
    draws = MultivariateNormal(torch.zeros(80).double(), C).sample((196,))
    scores = []
    for y in draws:
        own = Batch(batch.X, y, batch.noise)
        score, information = hidden_structure(*whitened_residuals(state, own, kernel), own, QUICK)
        scores.append(score / information)
    estimates = torch.stack(scores)
    error = float(estimates.std() / 14.0)
    assert abs(float(estimates.mean()) - share) < 4.0 * error + 1e-3
    if not share:
        assert float(estimates.var() * information) == pytest.approx(1.0, abs=0.3)
