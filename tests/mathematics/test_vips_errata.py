"""VIPS as printed and put right, against dense Gaussian identities (docs/mathematics.md, 7)."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.mathematics.dense import (
    chol,
    close,
    condition,
    eye,
    inv,
    line,
    log_normal,
    normal,
    se,
    solve,
    uniform,
)


def sparse_posterior(K, K_zf, d, y):
    """Mean and covariance of ``f(Z)`` under batch SGPR."""
    S = K @ solve(K + (K_zf / d) @ K_zf.mT, K)
    return S @ solve(K, K_zf @ (y / d)), S


def stream():
    """An old sparse posterior ``N(m, S)`` at four points Z, and a second batch."""
    Z, X1, X2 = line(4), uniform(15, 1, seed=1), uniform(6, 1, seed=2)
    d = torch.full((6,), 0.2).double()
    K = se(Z, Z)
    y1, y2 = torch.sin(5 * X1[:, 0]), torch.sin(5 * X2[:, 0]) + 0.3 * normal(6, seed=3)
    m, S = sparse_posterior(K, se(Z, X1), torch.full((15,), 0.2).double(), y1)
    D_a = inv(inv(S) - inv(K))
    target = D_a @ solve(S, m)
    return SimpleNamespace(Z=Z, X=X2, y=y2, d=d, K=K, m=m, S=S, D_a=D_a, target=target)


def log_predictive(p):
    """``L*``: the batch under the old posterior of the function."""
    P = solve(p.K, se(p.Z, p.X)).mT
    C = se(p.X, p.X) - P @ (p.K - p.S) @ P.mT
    return log_normal(p.y - P @ p.m, C + torch.diag(p.d))


def lower(K, d, y, chosen):
    """Titsias' bound with some of the points as inducing points."""
    Q = K[:, chosen] @ solve(K[chosen][:, chosen], K[chosen]) if chosen else torch.zeros_like(K)
    return float(log_normal(y, Q + torch.diag(d)) - 0.5 * ((K - Q).diagonal() / d).sum())


def grown(K, go_on):
    """Points chosen greedily by conditional variance while a condition holds."""
    chosen: list[int] = []
    while len(chosen) < len(K) and go_on(chosen):
        chosen.append(int(unexplained(K, chosen).argmax()))
    return chosen


def unexplained(K, chosen):
    """Variances given the values at the chosen points."""
    if not chosen:
        return K.diagonal()
    return (K - K[:, chosen] @ solve(K[chosen][:, chosen], K[chosen])).diagonal()


def test_v1_the_loop_goes_on_while_the_gap_is_too_wide():
    X, d = uniform(20, 1, seed=1), torch.full((20,), 0.1).double()
    K, y = se(X, X), torch.sin(6 * X[:, 0])
    U = float(log_normal(y, K + torch.diag(d)))
    noise_only = float(log_normal(y - y.mean(), y.var() * eye(20)))
    allowed = 0.05 * abs(U - noise_only)
    right = grown(K, lambda chosen: U - lower(K, d, y, chosen) > allowed)
    printed = grown(K, lambda chosen: U - lower(K, d, y, chosen) < allowed)
    assert 0 < len(right) < 20 and U - lower(K, d, y, right) <= allowed
    assert U - lower(K, d, y, printed) > allowed  # it stops before its first point


def test_v2_the_loop_goes_on_while_the_trace_is_too_large():
    X, eta = uniform(20, 1, seed=1), 0.05
    K = se(X, X)

    def trace(chosen):
        return float(unexplained(K, chosen).sum())

    right = grown(K, lambda chosen: trace(chosen) > eta)
    assert 0 < len(right) < 20 and trace(right) <= eta
    assert trace(grown(K, lambda chosen: trace(chosen) < eta)) > eta
    assert trace(right[:-1]) > eta  # the authors' code, one point short


def test_v2_the_trace_runs_over_the_pool():
    Z, X, eta = line(5, 0.0, 1.0), line(5, 3.0, 4.0), 0.01
    pool = torch.cat([Z, X])
    K = se(pool, pool)
    over_all, greedy = (
        grown(k, lambda chosen, k=k: float(unexplained(k, chosen).sum()) > eta)
        for k in (K, K[5:, 5:])
    )
    over_batch = [5 + i for i in greedy]
    assert unexplained(K, over_all)[:5].max() < eta
    assert unexplained(K, over_batch)[:5].min() > 0.9  # the old region is forgotten


def test_v3_the_pseudo_targets_of_the_old_posterior():
    p = stream()
    right, printed = (
        condition(0.0 * p.m, p.K, slice(None), target, p.D_a)
        for target in (p.target, solve(p.K, p.m))
    )
    for got, want in zip(right, (p.m, p.S), strict=True):
        assert close(got, want)
    assert not close(printed[0], p.m, 1e-2)


def test_v4_the_likelihood_is_normalised_at_its_targets():
    p, a = stream(), 2.0 * normal(4, seed=7)
    truth = log_normal(a - p.m, p.S) - log_normal(a, p.K)  # log q(a) / p(a)
    right = log_normal(p.target - a, p.D_a) - log_normal(p.target, p.K + p.D_a)
    printed = log_normal(p.target - a, p.D_a) - log_normal(a, p.K + p.D_a)
    assert close(right, truth)
    assert not close(printed, truth, 1e-2)


@pytest.mark.parametrize("new_points", [0, 6])
def test_v5_the_upper_bound_needs_delta_a(new_points):
    p = stream()
    Z, points = torch.cat([p.Z, p.X[:new_points]]), torch.cat([p.X, p.Z])
    K_zp = se(Z, points)
    Q = K_zp.mT @ solve(se(Z, Z), K_zp)
    noise = torch.block_diag(torch.diag(p.d), p.D_a)
    t = (se(points, points) - Q).trace().clamp_min(0.0)
    y = torch.cat([p.y, p.target])
    logs = torch.logdet(Q + noise) + len(y) * math.log(2.0 * math.pi)
    printed = -0.5 * (logs + y @ solve(Q + noise + t * eye(len(y)), y))
    delta_a = -log_normal(p.target, p.K + p.D_a)
    truth = log_predictive(p)
    assert printed + delta_a > truth - 1e-8
    assert printed < truth - 1e-2  # not an upper bound
    if new_points == 6:  # nothing left to explain: the bound is tight
        assert close(printed + delta_a, truth)


def test_v6_half_the_trace():
    p, b = stream(), normal(4, seed=7)
    P = solve(p.K, se(p.Z, p.X)).mT
    mean, variance = P @ b, 1.0 - (P * se(p.X, p.Z)).sum(-1)
    nodes, weights = (torch.from_numpy(v) for v in np.polynomial.hermite.hermgauss(8))
    f = mean.unsqueeze(-1) + (2.0 * variance).sqrt().unsqueeze(-1) * nodes
    log_p = -0.5 * ((p.y.unsqueeze(-1) - f) ** 2 / 0.2 + math.log(2.0 * math.pi * 0.2))
    truth = (log_p * weights).sum() / math.sqrt(math.pi)  # E[log p(y | f)] given f(Z) = b
    fit = log_normal(p.y - mean, torch.diag(p.d))
    assert close(fit - 0.5 * (variance / p.d).sum(), truth)
    assert not close(fit - (variance / p.d).sum(), truth, 1e-2)


def additive(L, pieces):
    """Whitened posterior at Z after several batches, their precisions added (3.3)."""
    G = sum((A / d) @ A.mT for A, _, d in pieces)
    B = eye(len(L)) + G
    return solve(B, sum(A @ (y / d) for A, y, d in pieces)), inv(B)


def subtracted(L, pieces, jitter_S, jitter_K):
    """The same, each batch's old precision recovered as printed: ``S^-1 - K^-1``."""
    K, one = L @ L.mT, eye(len(L))
    Lambda, eta = 0.0 * K, 0.0 * K[0]
    for A, y, d in pieces:
        B = one + (A / d) @ A.mT + L.mT @ Lambda @ L
        v, cov = solve(B, A @ (y / d) + L.mT @ eta), inv(B)
        S = L @ cov @ L.mT + jitter_S * one
        Lambda, eta = inv(S) - inv(K + jitter_K * one), solve(S, L @ v)
    return v, cov


def hard_case(eps):
    """400 points in 20 batches, 30 inducing points, lengthscale a half, noise 0.01 (3.8).

    Returns the factor of the prior at Z, the batches, and the errors of a whitened posterior: of
    means, absolute, and of variances, relative.
    """
    Z, X = line(30), uniform(400, 1, seed=1)
    y, d = torch.sin(6 * X[:, 0]) + 0.1 * normal(400, seed=2), torch.full((400,), 0.01).double()
    L = chol(se(Z, Z, 0.5) + eps * eye(30))
    A, A_s = (solve(L, se(Z, points, 0.5)) for points in (X, line(21)))
    pieces = [(A[:, i : i + 20], y[i : i + 20], d[:20]) for i in range(0, 400, 20)]
    gain = solve(A.mT @ A + torch.diag(d), A.mT @ A_s).mT  # through the data, not through Z
    mean, variance = gain @ y, 1.0 - (gain * (A_s.mT @ A)).sum(-1)

    def errors(dist):
        got = 1.0 - A_s.square().sum(0) + (A_s * (dist[1] @ A_s)).sum(0)
        return (A_s.mT @ dist[0] - mean).abs().max(), (got / variance - 1.0).abs().max()

    return L, pieces, errors


def test_v7_the_old_noise_need_not_exist():
    L, pieces, errors = hard_case(1e-10)
    mean, variance = errors(additive(L, pieces))
    assert mean < 1e-10 and variance < 1e-8
    K, S = L @ L.mT, L @ additive(L, pieces[:1])[1] @ L.mT  # 20 readings, 30 unknowns
    assert int(torch.linalg.cholesky_ex(inv(S) - inv(K))[1])  # so D_a has no Cholesky factor


@pytest.mark.parametrize(
    ("eps", "jitter_S", "jitter_K", "mean_off", "variance_off"),
    [(1e-6, 1e-6, 0.0, 1e-4, 1e-2), (1e-10, 1e-2, 1e-2, 1e-2, 5.0)],
)
def test_v7_jitter_does_not_save_the_subtraction(eps, jitter_S, jitter_K, mean_off, variance_off):
    L, pieces, errors = hard_case(eps)
    mean, variance = errors(subtracted(L, pieces, jitter_S, jitter_K))
    assert mean > mean_off and variance > variance_off
    mean, variance = errors(additive(L, pieces))
    assert mean < 1e-10 and variance < 1e-8


def test_v7_kept_points_share_their_jitter():
    """Ten batches under a lengthscale of 0.5, ten under 0.2, the inducing points kept (3.3)."""
    Z, one, noise = line(30), eye(30), 0.01
    _, pieces, _ = hard_case(1e-8)
    y, X = torch.cat([y for _, y, _ in pieces]), uniform(400, 1, seed=1)
    K = {ls: se(Z, Z, ls) for ls in (0.5, 0.2)}
    L = {ls: chol(K[ls] + 1e-8 * one) for ls in K}
    A = {ls: solve(L[ls], se(Z, X, ls)) for ls in K}
    A_s = solve(L[0.2], se(Z, line(21), 0.2))

    def dist(selection):
        G, c, before = 0.0 * one, 0.0 * one[0], 0.5
        for t in range(20):
            ls, now = (0.5, 0.2)[t // 10], slice(20 * t, 20 * t + 20)
            A_a = L[ls].mT if selection else solve(L[ls], K[ls])
            J, A_f = solve(L[before], A_a.mT), A[ls][:, now]
            G, c = J.mT @ G @ J + A_f @ A_f.mT / noise, J.mT @ c + A_f @ y[now] / noise
            before = ls
        cov = inv(one + 0.5 * (G + G.mT))
        return A_s.mT @ cov @ c, (A_s * (cov @ A_s)).sum(0)

    # through the data: y = H L^-1 f(Z) + noise, H of each half under its own lengthscale
    H = torch.cat([A[0.5][:, :200].mT @ solve(L[0.5], L[0.2]), A[0.2][:, 200:].mT])
    gain = solve(H @ H.mT + noise * eye(400), H @ A_s).mT
    mean, variance = gain @ y, A_s.square().sum(0) - (gain * (H @ A_s).mT).sum(-1)
    (right, right_variance), (without, variance_without) = dist(True), dist(False)
    assert close(right, mean, 1e-9) and close(right_variance / variance, 1.0, 1e-8)
    assert not close(without, mean, 1e-3)
    assert not close(variance_without / variance, 1.0, 1e-2)


def test_v8_the_linear_term_takes_off_the_prior_mean():
    p, prior_mean = stream(), 2.0
    K_zf = se(p.Z, p.X)
    Q = K_zf.mT @ solve(p.K, K_zf)
    truth = prior_mean + K_zf @ solve(Q + torch.diag(p.d), p.y - prior_mean)  # at Z
    right, printed = (
        prior_mean + sparse_posterior(p.K, K_zf, p.d, y)[0] for y in (p.y - prior_mean, p.y)
    )
    assert close(right, truth)
    assert not close(printed, truth, 1e-1)
