"""CaGP as printed and put right, against dense Gaussian identities (docs/mathematics.md, 7)."""

import math
from types import SimpleNamespace

import pytest
import torch

from tests.mathematics.dense import (
    close,
    condition,
    divergence,
    eye,
    inv,
    line,
    log_normal,
    normal,
    se,
    solve,
    uniform,
)


def seen(n=12, i=4, S=None):
    """Data, actions, and the posterior at X given the projected data S'y."""
    X, y, d = line(n), normal(n, seed=1), 0.1 + uniform(n, seed=2)
    S = normal(n, i, seed=3) if S is None else S
    K = se(X, X)
    K_hat = K + torch.diag(d)
    C = S @ solve(S.mT @ K_hat @ S, S.mT)
    mean, cov = K @ C @ y, K - K @ C @ K
    return SimpleNamespace(X=X, y=y, d=d, S=S, K=K, K_hat=K_hat, C=C, mean=mean, cov=cov)


def test_c1_C_approximates_the_inverse_with_noise():
    p = seen(S=eye(12))
    assert close(p.C, inv(p.K_hat))
    assert not close(p.C @ p.K, eye(12), 1e-2)  # not the inverse of K
    gap = inv(p.K_hat) - seen().C
    assert torch.linalg.eigvalsh(gap).min() > -1e-10  # from below, for any S


@pytest.mark.parametrize("block", [2, 4])
def test_c2_as_many_kernel_values_as_without_actions(block):
    X, s = line(24), normal(24, seed=3)
    counted = 0
    columns = []
    for start in range(0, 24, block):
        rows = slice(start, start + block)
        values = se(X, X[rows])
        counted += values.numel()
        columns.append(values @ s[rows])
    S = torch.block_diag(*(s[i : i + block, None] for i in range(0, 24, block)))
    assert close(torch.stack(columns, -1), se(X, X) @ S)
    assert counted == 24**2


def test_c3_eq_11_is_the_negative_elbo():
    p = seen()
    G, SKS = p.S.mT @ p.K_hat @ p.S, p.S.mT @ p.K @ p.S
    v = solve(G, p.S.mT @ p.y)
    loss = ((p.y - p.mean) ** 2 + p.cov.diagonal()) / p.d + p.d.log() + math.log(2.0 * math.pi)
    logs = torch.logdet(G) - torch.logdet(p.S.mT @ torch.diag(p.d) @ p.S)
    loss = 0.5 * (loss.sum() + v @ SKS @ v - solve(G, SKS).trace() + logs)
    m, V = condition(0.0 * p.y, p.K, slice(None), p.y, torch.diag(p.d))
    evidence = log_normal(p.y, p.K_hat)
    assert close(-loss, evidence - divergence(p.mean, p.cov, m, V))
    assert loss > -evidence  # to be minimised


def test_c3_eq_9_is_the_density_of_the_projected_data():
    p = seen()
    w = solve(torch.linalg.cholesky(p.S.mT @ p.K_hat @ p.S), p.S.mT @ p.y)
    logs = torch.logdet(p.S.mT @ p.K_hat @ p.S) - torch.logdet(p.S.mT @ p.S)
    loss = 0.5 * (w @ w + logs + 4 * math.log(2.0 * math.pi))
    S = torch.linalg.qr(p.S)[0]  # orthonormal columns of the same span
    assert close(-loss, log_normal(S.mT @ p.y, S.mT @ p.K_hat @ S))


@pytest.mark.parametrize("x", [0.52, 0.0])
def test_c3_eq_6_is_for_points_outside_the_data(x):
    X, s2 = line(7), 0.3
    S = normal(7, 3, seed=3)
    at = torch.full((1, 1), x).double()
    k, same = se(X, at)[:, 0], (at == X)[:, 0].double()
    K_hat = se(X, X) + s2 * eye(7)
    C = S @ solve(S.mT @ K_hat @ S, S.mT)
    c = C @ k
    # squared norm of k^s(., x) - sum_j c_j k^s(., x_j): the worst error over the unit ball
    truth = 1.0 + s2 - 2.0 * c @ (k + s2 * same) + c @ K_hat @ c
    printed = 1.0 - k @ C @ k + s2
    assert close(printed, truth) == (x not in X)


@pytest.mark.parametrize("n", [12, 11])
def test_c4_blocks_of_equal_length_need_i_to_divide_n(n):
    i = 4
    equal = [torch.arange(n)[j * (n // i) : (j + 1) * (n // i)] for j in range(i)]
    split = torch.arange(n).tensor_split(i)
    assert torch.equal(torch.cat(split), torch.arange(n))  # every row in one block
    assert (len(torch.cat(equal)) == n) == (n % i == 0)
