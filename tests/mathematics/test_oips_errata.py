"""OIPS as printed and put right, against dense Gaussian identities (docs/mathematics.md, 7)."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.mathematics.dense import (
    close,
    condition,
    divergence,
    inv,
    line,
    log_normal,
    normal,
    se,
    solve,
    uniform,
)

OLD, NEW = 0.25, 0.35
"""Lengthscales before and after the second batch."""


def stream():
    """Two batches whose points are all inducing points, so that the truth is the exact GP's."""
    X1, X2 = line(5, 0.0, 1.0), line(4, 0.1, 0.9)
    y, d = normal(9, seed=1), 0.1 + uniform(9, seed=2)
    K_old = se(X1, X1, OLD)
    mu, S = condition(torch.zeros(5).double(), K_old, slice(None), y[:5], torch.diag(d[:5]))
    return SimpleNamespace(X1=X1, X=torch.cat([X1, X2]), y=y, d=d, K_old=K_old, mu=mu, S=S)


def natural_step(p, ls, old_prior, old_mean_term):
    """Mean and covariance at all points by App. A.1's precisions, under lengthscale ls."""
    K = se(p.X, p.X, ls)
    kappa = solve(K, K[:, :5]).mT  # K_{Z_{t-1} Z_t} K_{Z_t}^-1
    kappa_f = solve(K, K[:, 5:]).mT
    weighted = kappa_f.mT / p.d[5:]
    precision = inv(K) + weighted @ kappa_f + kappa.mT @ (inv(p.S) - inv(old_prior)) @ kappa
    return solve(precision, weighted @ p.y[5:] + kappa.mT @ old_mean_term), inv(precision)


def exact(p, ls):
    return condition(torch.zeros(9).double(), se(p.X, p.X, ls), slice(None), p.y, torch.diag(p.d))


def test_o1_the_old_natural_parameter_is_precision_times_mean():
    p = stream()
    right, printed = (
        natural_step(p, OLD, p.K_old, term) for term in (solve(p.S, p.mu), p.S @ p.mu)
    )
    for got, want in zip(right, exact(p, OLD), strict=True):
        assert close(got, want)
    assert not close(printed[0], exact(p, OLD)[0], 1e-2)


def test_o2_the_old_prior_has_the_old_hyperparameters():
    p = stream()
    right, printed = (
        natural_step(p, NEW, prior, solve(p.S, p.mu)) for prior in (p.K_old, se(p.X1, p.X1, NEW))
    )
    for got, want in zip(right, exact(p, NEW), strict=True):
        assert close(got, want, 1e-7)
    assert not close(printed[1], exact(p, NEW)[1], 1e-2)


def test_o3_the_second_divergence_is_of_the_old_points():
    p = stream()
    mu, S = exact(p, OLD)
    fit = log_normal(p.y[5:] - mu[5:], torch.diag(p.d[5:]))
    fit = fit - 0.5 * (S.diagonal()[5:] / p.d[5:]).sum()
    zero, now = torch.zeros(9).double(), (mu[:5], S[:5, :5])
    from_prior = divergence(mu, S, zero, se(p.X, p.X, OLD))
    new = fit - from_prior + divergence(*now, zero[:5], p.K_old)
    right, swapped = new - divergence(*now, p.mu, p.S), new - divergence(p.mu, p.S, *now)
    K = se(p.X, p.X, OLD)
    dist = condition(zero, K, slice(0, 5), p.y[:5], torch.diag(p.d[:5]))
    truth = log_normal(p.y[5:] - dist[0][5:], dist[1][5:, 5:] + torch.diag(p.d[5:]))
    assert close(right, truth)  # all points are inducing points: the bound is tight
    assert not close(swapped, truth, 1e-2)


def test_o3_the_slope_of_kappa():
    p = stream()

    def kernels(ls):
        return torch.stack([se(p.X1, p.X[4:], ls), se(p.X[4:], p.X[4:], ls)])

    def kappa(ls):
        cross, own = kernels(ls)
        return solve(own, cross.mT).mT

    ls = torch.tensor(OLD).double()
    J_cross, J = torch.autograd.functional.jacobian(kernels, ls)
    right = solve(kernels(ls)[1], (J_cross - kappa(ls) @ J).mT).mT
    assert close(right, (kappa(ls + 1e-5) - kappa(ls - 1e-5)) / 2e-5, 1e-6)


def test_o3_kappa_has_a_row_for_each_old_point():
    p = stream()
    K, Lambda = se(p.X, p.X, OLD), inv(p.S) - inv(p.K_old)
    right, printed = solve(K, K[:, :5]).mT, solve(p.K_old, K[:5]).mT  # kappa with indices swapped
    assert (right.mT @ Lambda @ right).shape == (9, 9)
    with pytest.raises(RuntimeError, match="shape"):
        printed.mT @ Lambda @ printed


def test_o4_each_reading_has_its_variance_term():
    p = stream()
    mu, S = exact(p, OLD)
    nodes, weights = (torch.from_numpy(v) for v in np.polynomial.hermite.hermgauss(8))
    f = mu.unsqueeze(-1) + (2.0 * S.diagonal()).sqrt().unsqueeze(-1) * nodes
    d = p.d.unsqueeze(-1)
    log_p = -0.5 * ((p.y.unsqueeze(-1) - f) ** 2 / d + (2.0 * math.pi * d).log())
    truth = (log_p * weights).sum() / math.sqrt(math.pi)
    fit, terms = log_normal(p.y - mu, torch.diag(p.d)), S.diagonal() / p.d
    assert close(fit - 0.5 * terms.sum(), truth)
    assert not close(fit - 0.5 * terms[-1], truth, 1e-2)


def entered(X, r):
    """How many points of a stream are farther than r from all that entered before."""
    Z = X[:1]
    for x in X[1:]:
        if np.square(Z - x).sum(1).min() > r * r:
            Z = np.vstack([Z, x])
    return len(Z)


def cube_volume(r, D):
    """Theorem 1's cube, of side ``r sqrt(D) / 2``."""
    return (r * math.sqrt(D) / 2.0) ** D


def test_o5_the_chance_of_entering_is_a_share_of_the_domain():
    a, D, r, N = 2.0, 3, 1.6, 5
    alpha = cube_volume(r, D)
    expected = 1.0
    for _ in range(N):  # a new point enters unless it falls into one of the cubes
        expected += 1.0 - expected * alpha / a**D
    right, printed = ((1.0 - (1.0 - v) ** (N + 1)) / v for v in (alpha / a**D, alpha))
    assert close(right, expected)
    assert printed < 0.0  # a number of points


@pytest.mark.parametrize(
    ("D", "r", "points", "repeats"), [(3, 0.8, 300, 20), (4, 0.5, 1000, 3), (8, 0.5, 1500, 1)]
)
def test_o5_theorem_1_is_no_bound(D, r, points, repeats):
    rng = np.random.default_rng(0)
    counts = [entered(rng.random((points, D)), r) for _ in range(repeats)]
    share = cube_volume(r, D)
    assert np.mean(counts) > 1.2 * (1.0 - (1.0 - share) ** points) / share
    ball = math.pi ** (D / 2) / math.gamma(D / 2 + 1) * (r / 2) ** D
    assert max(counts) <= (1.0 + r) ** D / ball  # the packing bound of 4.4


def test_o6_theorem_2_holds_and_can_be_tighter():
    X, rho = uniform(60, 2, seed=3), 0.8
    K = se(X, X)
    chosen = [0]
    for i in range(1, 60):
        if K[i, chosen].max() < rho:
            chosen.append(i)
    M = len(chosen)
    error = K - K[:, chosen] @ solve(K[chosen][:, chosen], K[chosen])
    tight, loose = (
        (60 - M) * (1.0 - rho**2 / (1.0 + count * rho)) for count in (M - 1, M * (M - 1))
    )
    assert 1 < M < 60 and error.norm() <= error.trace() <= tight < loose
    assert torch.linalg.eigvalsh(K[chosen][:, chosen]).max() <= 1.0 + (M - 1) * rho
    values = torch.linalg.eigvalsh(error)
    assert close(error.norm(), values.square().sum().sqrt())
    assert not close(error.norm(), values.sum(), 1e-2)
