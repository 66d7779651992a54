"""WISKI as printed and put right, against dense Gaussian identities (docs/mathematics.md, 7)."""

import math
from types import SimpleNamespace

import pytest
import torch

from tests.mathematics.dense import (
    chol,
    close,
    condition,
    eye,
    inv,
    keys,
    line,
    log_normal,
    normal,
    se,
    solve,
    uniform,
)

LOG_2PI = math.log(2.0 * math.pi)


def stream(n=14, m=6, s2=0.3, seed=0):
    """Data seen through interpolation rows W, their statistics, and the dense covariance."""
    W = uniform(n, m, seed=seed)
    W = W / W.sum(-1, keepdim=True)
    y, K = normal(n, seed=seed + 1), se(line(m), line(m))
    A, b = W.mT @ W, W.mT @ y
    Sigma = W @ K @ W.mT + s2 * eye(n)
    M = inv(s2 * inv(K) + A)
    return SimpleNamespace(W=W, y=y, K=K, A=A, b=b, yy=y @ y, s2=s2, n=n, m=m, Sigma=Sigma, M=M)


def rooted(p):
    """A root L of A, and ``Q = I + L'K L / s2``."""
    L = chol(p.A)
    return L, eye(p.m) + L.mT @ p.K @ L / p.s2


def evidence(W, y, K, s2):
    return log_normal(y, W @ K @ W.mT + s2 * eye(len(y)))


def test_w1_eq_8_leaves_out_the_constant():
    p = stream()
    quadratic = (p.yy - p.b @ p.M @ p.b) / p.s2
    logs = torch.logdet(p.K) - torch.logdet(p.M) + (p.n - p.m) * math.log(p.s2)
    printed, truth = -0.5 * (quadratic + logs), log_normal(p.y, p.Sigma)
    assert close(printed - 0.5 * p.n * LOG_2PI, truth)
    assert not close(printed, truth, 1e-2)


W2_FAULTS = ["scale of y'WKW'y", "sign of log|Q|", "count of log s2", "2 pi"]


def eq_13(p, faults):
    L, Q = rooted(p)
    a = L.mT @ p.K @ p.b / p.s2
    bKb = p.b @ p.K @ p.b / (1.0 if "scale of y'WKW'y" in faults else p.s2)
    log_Q = torch.logdet(Q) * (-1.0 if "sign of log|Q|" in faults else 1.0)
    count = p.n - p.m if "count of log s2" in faults else p.n
    constant = 0.0 if "2 pi" in faults else p.n * LOG_2PI
    quadratic = p.yy - bKb + a @ solve(Q, a)
    return -0.5 * (quadratic / p.s2 + log_Q + count * math.log(p.s2) + constant)


@pytest.mark.parametrize("faults", [W2_FAULTS, *([fault] for fault in W2_FAULTS)])
def test_w2_eq_13_has_four_faults(faults):
    p = stream()
    truth = log_normal(p.y, p.Sigma)
    assert close(eq_13(p, []), truth)
    assert not close(eq_13(p, faults), truth, 1e-2)


def test_w3_eq_15_scales_the_covariance_twice():
    p, w = stream(), normal(6, seed=2)
    L, Q = rooted(p)
    b = solve(Q, L.mT @ p.K @ w) / p.s2
    right = w @ p.K @ (w - L @ b)
    KW = p.K @ p.W.mT
    truth = w @ p.K @ w - w @ KW @ solve(p.Sigma, KW.mT @ w)
    assert close(right, truth)
    assert not close(p.s2 * right, truth, 1e-2)


def test_w3_the_second_root_in_Mv_is_transposed():
    p, v = stream(), normal(6, seed=2)
    L, Q = rooted(p)
    right, printed = (
        (p.K @ v - p.K @ L @ solve(Q, root @ p.K @ v) / p.s2) / p.s2 for root in (L.mT, L)
    )
    assert close(right, p.M @ v)
    assert not close(printed, p.M @ v, 1e-2)


@pytest.mark.parametrize("which", ["mean", "covariance"])
def test_w4_the_last_lines_of_A2_lack_a_noise(which):
    p, w = stream(), normal(6, seed=2)
    L, Q = rooted(p)
    KW = p.K @ p.W.mT
    if which == "mean":
        first, right_factor = p.K @ p.b / p.s2, p.b
        truth = w @ KW @ solve(p.Sigma, p.y)
    else:
        first, right_factor = p.K @ w, w
        truth = w @ p.K @ w - w @ KW @ solve(p.Sigma, KW.mT @ w)
    second = p.K @ L @ solve(Q, L.mT @ p.K @ right_factor) / (p.s2 if which == "mean" else 1.0)
    assert close(w @ (first - second / p.s2), truth)
    assert not close(w @ (first - second), truth, 1e-2)


@pytest.mark.parametrize("n", [3, 14])
def test_w5_the_root_update_needs_the_row_in_its_range(n):
    p = stream(n=n)
    w = uniform(p.m, seed=5)
    values, vectors = torch.linalg.eigh(p.A)
    seen = values > 1e-10
    L = vectors[:, seen] * values[seen].sqrt()
    step = torch.linalg.pinv(L) @ w
    printed = L @ chol(eye(L.shape[1]) + step.outer(step))
    right = torch.cat([L, w.unsqueeze(-1)], -1)
    truth = p.A + w.outer(w)
    assert close(right @ right.mT, truth)
    assert close(printed @ printed.mT, truth) == (n > p.m)  # rank(W'W) = m: no harm


def increments(p, w, y_new):
    """``MLL_t - MLL_{t-1}`` in closed form: corrected eq. 18, and as printed."""
    v, Wy = p.M @ w, p.b + y_new * w
    quadratic = Wy @ p.M @ Wy - (v @ Wy) ** 2 / (1.0 + v @ w)
    logs = torch.log1p(v @ w)
    return 0.5 * (quadratic / p.s2 - logs), 0.5 * (quadratic - logs)


def test_w6_eq_18_lacks_the_noise():
    p, y_new = stream(), torch.tensor(0.7).double()
    rows = [keys(torch.tensor([x]).double(), line(6).squeeze(-1))[0] for x in (0.35, 0.6)]
    y = torch.cat([p.y, y_new.view(1)])
    truth = [evidence(torch.cat([p.W, w.view(1, -1)]), y, p.K, p.s2) for w in rows]
    (right, printed), (right_0, printed_0) = (increments(p, w, y_new) for w in rows)
    assert close(right - right_0, truth[0] - truth[1])
    assert not close(printed - printed_0, truth[0] - truth[1], 1e-3)


def test_w7_M_of_A4_contains_the_noise():
    p = stream()
    truth = p.y @ solve(p.Sigma, p.y)
    assert close((p.yy - p.b @ p.M @ p.b) / p.s2, truth)
    assert not close((p.yy - p.b @ inv(inv(p.K) + p.A) @ p.b) / p.s2, truth, 1e-2)


def test_w7_the_determinant_of_A4():
    p, w = stream(), normal(6, seed=2)
    v = p.M @ w
    after = inv(inv(p.M) + w.outer(w))
    truth = torch.logdet(after) - torch.logdet(p.M)
    assert close(torch.log(1.0 - v @ inv(p.M) @ v / (1.0 + v @ w)), truth)
    assert close(-torch.log1p(v @ w), truth)


def predictive(p, w, y_new, M):
    S = p.s2 * (1.0 + w @ M @ w)
    return -0.5 * (torch.log(2 * math.pi * S) + (y_new - w @ M @ p.b) ** 2 / S)


@pytest.mark.parametrize("what", ["phi", "theta"])
def test_w8_algorithm_1_descends_a_log_likelihood(what):
    p = stream()

    def objective(x):
        if what == "theta":
            return evidence(p.W, p.y, p.K, x)
        return predictive(p, keys(x.view(1), line(6).squeeze(-1))[0], 0.7, p.M)  # 2.5, at h(phi)

    start = torch.tensor(0.45).double().requires_grad_()
    (slope,) = torch.autograd.grad(objective(start), start)
    printed, right = (objective(start + sign * 1e-4 * slope) for sign in (-1.0, 1.0))
    assert printed < objective(start) < right


def test_w8_the_caches_follow_the_step_in_phi():
    p, w, y_new = stream(), uniform(6, seed=2), torch.tensor(0.7).double()
    y, W = torch.cat([p.y, y_new.view(1)]), torch.cat([p.W, w.view(1, -1)])
    truth = evidence(W, y, p.K, p.s2) - evidence(p.W, p.y, p.K, p.s2)
    after = stream()
    after.M, after.b = inv(inv(p.M) + w.outer(w)), p.b + y_new * w
    assert close(predictive(p, w, y_new, p.M), truth)
    assert not close(predictive(after, w, y_new, after.M), truth, 1e-3)


def test_w9_known_noise_adds_its_logarithms_and_the_count():
    p, d = stream(), 0.1 + uniform(14, seed=4)
    W_d = p.W / d.unsqueeze(-1)
    A, b, yy = p.W.mT @ W_d, W_d.mT @ p.y, (p.y.square() / d).sum()
    M = inv(inv(p.K) + A)
    printed = -0.5 * (yy - b @ M @ b + torch.logdet(p.K) - torch.logdet(M))
    right = printed - 0.5 * (d.log().sum() + p.n * LOG_2PI)
    truth = log_normal(p.y, p.W @ p.K @ p.W.mT + torch.diag(d))
    assert close(right, truth)
    assert not close(printed, truth, 1e-2)


def test_w10_a_truncated_root_wants_b_projected():
    p = stream(s2=1e-3)
    y = p.W @ (3.0 * normal(6, seed=9))
    yy, b = y @ y, p.W.mT @ y
    V = torch.linalg.eigh(p.A)[1][:, -3:]
    P = V @ V.mT
    M = inv(p.s2 * inv(p.K) + P @ p.A @ P)
    printed, right = ((yy - v @ M @ v) / p.s2 for v in (b, P @ b))
    W = p.W @ P  # what is left of the rows
    assert close(right, y @ solve(W @ p.K @ W.mT + p.s2 * eye(p.n), y))
    assert printed < 0.0 < right  # no quadratic form of a covariance is negative


def test_w11_one_prior_throughout():
    nodes, X = line(8, -0.5, 1.5), line(9, 0.05, 0.95)
    ls, s2 = 0.3, 1e-6
    K, W = se(nodes, nodes, ls), keys(X.squeeze(-1), nodes.squeeze(-1))
    prior = W @ K @ W.mT
    _, truth = condition(torch.zeros(9).double(), prior, slice(None), X[:, 0], s2 * eye(9))
    downdate = prior @ solve(prior + s2 * eye(9), prior)
    right, printed = prior - downdate, se(X, X, ls) - downdate
    assert close(right, truth)
    assert not close(printed, truth, 1e-5)
    assert torch.linalg.eigvalsh(printed).min() < -1e-5  # not a covariance
    assert torch.linalg.eigvalsh(right).min() > -1e-12
