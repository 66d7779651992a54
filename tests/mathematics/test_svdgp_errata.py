"""SVDGP as printed and put right, against dense Gaussian identities (docs/mathematics.md, 7)."""

import math
from types import SimpleNamespace

import pytest
import torch

from tests.mathematics.dense import (
    chol,
    close,
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

C = torch.tensor([0.7, 1.0, 1.6], dtype=torch.float64)
"""Lengthscales of the basis points in units of the kernel's."""


def basis(x, ls_x, z, ls_z):
    """``psi_x' psi_z`` of basis points with lengthscales of their own, in one dimension (6.4)."""
    both = ls_x.unsqueeze(-1) ** 2 + ls_z**2
    scale = (2.0 * ls_x.unsqueeze(-1) * ls_z / both).sqrt()
    return scale * torch.exp(-((x.unsqueeze(-1) - z) ** 2) / both)


def problem():
    """Data, a basis of three points for mean and covariance, and their coefficients."""
    x = uniform(8, seed=1)
    z, a, L = torch.tensor([0.1, 0.5, 0.9]).double(), normal(3, seed=2), normal(3, 3, seed=3)
    y = torch.sin(5 * x) + 0.1 * normal(8, seed=4)
    return SimpleNamespace(x=x, y=y, z=z, a=a, L=L.tril(), s2=0.3)


def elbo_terms(p, k, K_xz, K, a=None, L=None):
    """Means, variances and the divergence at ``k(x, x) = k``, any basis."""
    a, L = p.a if a is None else a, p.L if L is None else L
    H = eye(L.shape[-1]) + L.mT @ K @ L
    R = L @ solve(H, L.mT)
    kl = 0.5 * (a @ K @ a + torch.logdet(H) - (K * R).sum())
    return K_xz @ a, k - ((K_xz @ R) * K_xz).sum(-1), kl


def expected(p, m, s):
    """``sum_n E[log p(y_n | f_n)]``."""
    return -0.5 * (math.log(2.0 * math.pi * p.s2) + ((p.y - m) ** 2 + s) / p.s2).sum()


def elbo(p, k, K_xz, K, a=None, L=None):
    m, s, kl = elbo_terms(p, k, K_xz, K, a, L)
    return expected(p, m, s) - kl


def generalised(p, s, lengths, rho=1.0):
    """The ELBO with 6.4's basis: no amplitude in K, rho in the cross terms."""
    own = s.expand(len(p.x))
    cross = rho * basis(p.x, own, p.z, lengths)
    return elbo(p, rho**2, cross, basis(p.z, lengths, p.z, lengths))


def slope(f, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(f(x), x)[0]


def difference(f, x, h=1e-5):
    return (f(x + h) - f(x - h)) / (2.0 * h)


def hybrid(seed=0):
    """The hybrid's parameters, and its posterior at the basis Z and the mean's further points."""
    Z, r = line(4), line(3, 0.15, 0.85)
    points = torch.cat([Z, r])
    K, k = se(Z, Z), se(points, Z)
    m, a_r, T = normal(4, seed=seed), normal(3, seed=seed + 1), normal(4, 4, seed=seed + 2)
    S = 0.1 * T @ T.mT + 0.1 * eye(4)
    mean = k @ solve(K, m) + se(points, r) @ a_r
    cov = se(points, points) + k @ solve(K, solve(K, (S - K).mT).mT) @ k.mT
    return SimpleNamespace(
        K=K, K_r=se(Z, r), K_rr=se(r, r), m=m, a=a_r, S=S, q=(mean, cov), X=points
    )


def test_s1_half_the_log_determinant():
    p = hybrid()
    quadratic = 0.5 * p.m @ solve(p.K, p.m) + p.m @ solve(p.K, p.K_r @ p.a)
    quadratic = quadratic + 0.5 * p.a @ p.K_rr @ p.a
    log_det, trace = torch.logdet(solve(p.K, p.S)), solve(p.K, p.S).trace()
    right, printed = (
        quadratic - share * log_det + 0.5 * trace - 0.5 * len(p.m) for share in (0.5, 1.0)
    )
    # at the inducing points and the mean's: given Z the covariance there is the prior's
    mean, cov = p.q
    e = solve(p.K, mean[:4])
    rest = mean[4:] - p.K_r.mT @ e
    schur = p.K_rr - p.K_r.mT @ solve(p.K, p.K_r)
    truth = divergence(mean[:4], cov[:4, :4], 0.0 * mean[:4], p.K) + 0.5 * rest @ solve(schur, rest)
    assert close(right, truth)
    assert not close(printed, truth, 1e-2)


def test_s2_lengthscales_of_the_basis_move_too():
    p, s = problem(), torch.tensor(0.3).double()
    fixed = C * s
    printed = slope(lambda v: generalised(p, v, fixed), s)
    right = slope(lambda v: generalised(p, v, C * v), s)
    assert close(printed, difference(lambda v: generalised(p, v, fixed), s), 1e-6)
    assert close(right, difference(lambda v: generalised(p, v, C * v), s), 1e-6)
    assert not close(printed, right, 1e-2)


@pytest.mark.parametrize("unit_amplitude", [True, False])
def test_s3_the_slope_in_rho_is_that_of_a_unit_basis(unit_amplitude):
    p, one = problem(), torch.tensor(0.0).double()
    s = torch.tensor(0.3).double()
    K, cross = (basis(v, s.expand(len(v)), p.z, s.expand(3)) for v in (p.z, p.x))

    def terms(log_rho):
        rho = log_rho.exp()
        power = (1.0, 0.0) if unit_amplitude else (2.0, 2.0)  # k_xz and K, in powers of rho
        return elbo_terms(p, rho**2, rho ** power[0] * cross, rho ** power[1] * K)

    m, var, _ = terms(one)
    printed = m @ (p.y - m) / p.s2 - var.sum() / p.s2  # m'g_m + 2 s'g_s

    def full(log_rho):
        m, var, kl = terms(log_rho)
        return expected(p, m, var) - kl

    assert close(slope(full, one), difference(full, one), 1e-6)
    assert close(printed, slope(full, one)) == unit_amplitude


def test_s4_a_new_basis_point_at_zero_is_a_saddle():
    p, s = problem(), torch.tensor(0.3).double()
    z = torch.cat([p.z, torch.tensor([0.3]).double()])
    K, cross = (basis(v, s.expand(len(v)), z, s.expand(4)) for v in (z, p.x))
    a = torch.cat([p.a, torch.zeros(1).double()])

    def value(L):
        return elbo(p, 1.0, cross, K, a, L)

    L = torch.block_diag(p.L, torch.zeros(1, 1).double())
    assert bool((slope(value, L)[:, -1] == 0.0).all())  # no ascent ever leaves it
    better = L.clone()
    better[-1, -1] = 0.1
    assert value(better) > value(L) + 1e-4


def test_the_other_equations_hold():
    """Eqs. 8 to 10 against the prior conditioned on pseudo-readings; Props. 2 and 3 by autograd."""
    p, s = problem(), torch.tensor(0.3).double()
    K, cross = (basis(v, s.expand(len(v)), p.z, s.expand(3)) for v in (p.z, p.x))
    B = p.L @ p.L.mT
    own = K - K @ solve(inv(B) + K, K)
    m, var, kl = elbo_terms(p, 1.0, cross, K)
    assert close(kl, divergence(K @ p.a, own, 0.0 * p.a, K))
    assert close(var, 1.0 - (cross * solve(inv(B) + K, cross.mT).mT).sum(-1))
    g_m, g_s = (p.y - m) / p.s2, torch.full_like(p.y, -0.5 / p.s2)
    P = inv(eye(3) + K @ B)
    d_a = cross.mT @ g_m - K @ p.a
    d_B = -P @ (cross.mT * g_s) @ cross @ P.mT - 0.5 * P @ K @ B @ K @ P.mT
    assert close(d_a, slope(lambda v: elbo(p, 1.0, cross, K, a=v), p.a))
    assert close(2.0 * d_B @ p.L, slope(lambda v: elbo(p, 1.0, cross, K, L=v), p.L))


def test_the_closed_forms_hold():
    """6.3: stationary in a and L_B; with every point in both bases, the exact GP."""
    x, y, s = line(6).squeeze(-1), normal(6, seed=4), torch.tensor(0.15).double()
    p = SimpleNamespace(x=x, y=y, s2=0.3)
    for z in (x[::2], x):
        K, cross = (basis(v, s.expand(len(v)), z, s.expand(len(z))) for v in (z, x))
        a = solve(K + cross.mT @ cross / p.s2, cross.mT @ y / p.s2)
        L = chol(solve(K, solve(K, cross.mT @ cross).mT) / p.s2)
        assert close(slope(lambda v, K=K, U=cross, L=L: elbo(p, 1.0, U, K, v, L), a), 0.0)
        assert close(slope(lambda v, K=K, U=cross, a=a: elbo(p, 1.0, U, K, a, v), L), 0.0)
    assert close(elbo(p, 1.0, cross, K, a, L), log_normal(y, K + p.s2 * eye(6)))
