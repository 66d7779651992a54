"""The system for the window's coefficients: both ways, and when one gives way to the other."""

import pytest
import torch

from bo_stream.mathematics.decoupled import System
from bo_stream.mathematics.inducing import dense
from tests.bo_stream.mathematics.decoupled_cases import kernel, rows


def system(n=80, noise=0.04, folded=20):
    """A system, the matrix it is of, and a right-hand side."""
    X, y, _ = rows(n + folded)
    Z, k, eye = rows(10, seed=8)[0], kernel(), torch.eye(10).double()
    A = torch.linalg.solve(torch.linalg.cholesky(dense(k, Z) + 1e-8 * eye), dense(k, Z, X))
    old, own = A[:, n:], A[:, :n]
    G_D = old @ old.mT / noise
    d = torch.full((n,), noise, dtype=torch.float64)
    L_B = torch.linalg.cholesky(eye + G_D + own @ own.mT / noise)
    K = dense(k, X[:n]) - own.mT @ own + own.mT @ torch.linalg.solve(eye + G_D, own)
    return System(K, own, d, L_B), K + torch.diag(d), y[:n]


@pytest.mark.parametrize("folded", [0, 20])
def test_its_products(folded):
    made, C, y = system(folded=folded)
    torch.testing.assert_close(made.times(y), C @ y)
    missed = dense(kernel(), rows(80 + folded)[0][:80]) - made.A.mT @ made.A
    told = C - missed  # in which the inducing points tell all
    torch.testing.assert_close(made.preconditioned(told @ y), y, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("tolerance", [0.01, 1e-9])
def test_iterations_end_at_the_tolerance(tolerance):
    made, C, y = system()
    w, found = made._iterated(y, torch.zeros_like(y), tolerance, 200)
    residual = ((y - C @ w) / made.d.sqrt()).abs().max()
    assert found and float(residual) <= 1.01 * tolerance
    exact = torch.linalg.solve(C, y)
    assert made._iterated(y, exact, tolerance, 1)[1]  # nothing to do from there
    assert not made._iterated(y, torch.zeros_like(y), tolerance, 2)[1]


def test_little_noise_is_factorised_instead_of_stopping_short():
    made, C, y = system(noise=1e-6)
    assert not made._iterated(y, torch.zeros_like(y), 0.01, 25)[1]
    for direct in (0, 256):
        w = made.solved(y, torch.zeros_like(y), 0.01, direct)
        assert float(((y - C @ w) / made.d.sqrt()).abs().max()) < 1e-4
