"""Posterior and losses of computation-aware GPs against dense identities."""

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel

from bo_stream.errors import StateError
from bo_stream.mathematics.computation_aware.matrix import (
    BlockMatrix,
    DenseMatrix,
    identity_actions,
)
from bo_stream.mathematics.computation_aware.objective import Projected, border, chol_of
from bo_stream.mathematics.computation_aware.products import kernel_block, symmetric_product

N, NUM = 24, 6


def problem(seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(N, 2, generator=generator, dtype=torch.float64)
    e = torch.randn(N, generator=generator, dtype=torch.float64)
    noise = 0.05 + 0.2 * torch.rand(N, generator=generator, dtype=torch.float64)
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale = torch.tensor([[0.4, 0.6]], dtype=torch.float64)
    block = torch.arange(N) * NUM // N
    values = torch.randn(N, generator=generator, dtype=torch.float64)
    return X, e, noise, kernel, BlockMatrix(block, values, NUM)


def losses(kernel, X, S, e, noise):
    B = symmetric_product(kernel, X, S)
    diag = kernel(X, diag=True)
    projected = Projected.of(B, S, noise)
    return projected.elbo(diag, e), projected.log_likelihood(e)


def dense_losses(K, S, e, noise):
    """eq. 11 and eq. 9 as printed, with inverses."""
    n, i = S.shape
    D = torch.diag(noise)
    G = S.T @ (K + D) @ S
    C = S @ torch.linalg.inv(G) @ S.T
    v = torch.linalg.inv(G) @ S.T @ e
    mean, cov = K @ S @ v, K - K @ C @ K
    bound = 0.5 * (
        ((e - mean) ** 2 / noise).sum()
        + (cov.diagonal() / noise).sum()
        + noise.log().sum()
        + n * math.log(2 * math.pi)
        + v @ S.T @ K @ S @ v
        - torch.trace(torch.linalg.inv(G) @ S.T @ K @ S)
        + torch.logdet(G)
        - torch.logdet(S.T @ D @ S)
    )
    S = S / S.norm(dim=0)
    G = S.T @ (K + D) @ S
    dist = torch.distributions.MultivariateNormal(torch.zeros(i, dtype=K.dtype), G)
    nll = -dist.log_prob(S.T @ e) - 0.5 * torch.logdet(S.T @ S)
    return -bound, -nll


def log_evidence(K, e, noise):
    dist = torch.distributions.MultivariateNormal(torch.zeros_like(e), K + torch.diag(noise))
    return dist.log_prob(e)


@pytest.mark.parametrize("dense", [False, True], ids=["block", "dense"])
def test_losses_and_gradients_equal_the_dense_formulas(dense):
    X, e, noise, kernel, S = problem()
    noise.requires_grad_()
    inputs = [*kernel.parameters(), noise]
    if dense:
        S_used = DenseMatrix(S.normalised().dense() @ torch.randn(NUM, NUM, dtype=torch.float64))
        S_dense = S_used.S
    else:
        S.values.requires_grad_()
        inputs.append(S.values)
        S_used, S_dense = S, S.dense()
    got = losses(kernel, X, S_used, e, noise)
    want = dense_losses(kernel_block(kernel, X, X), S_dense, e, noise)
    if dense:
        want = (want[0], want[1])
    for a, b in zip(got, want, strict=True):
        assert abs((a - b).item()) < 1e-8
        for g, h in zip(
            torch.autograd.grad(a, inputs, retain_graph=True),
            torch.autograd.grad(b, inputs, retain_graph=True),
            strict=True,
        ):
            assert torch.allclose(g, h, rtol=1e-7, atol=1e-8)


def test_identity_actions_give_the_log_evidence():
    X, e, noise, kernel, _ = problem()
    bound, projected = losses(kernel, X, identity_actions(N, X), e, noise)
    want = log_evidence(kernel_block(kernel, X, X), e, noise)
    assert abs((bound - want).item()) < 1e-9
    assert abs((projected - want).item()) < 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_elbo_is_the_evidence_less_a_divergence(seed):
    X, e, noise, kernel, S = problem(seed)
    K, D = kernel_block(kernel, X, X), torch.diag(noise)
    bound = losses(kernel, X, S, e, noise)[0]
    evidence = log_evidence(K, e, noise)
    assert bound.item() < evidence.item()

    def dist(C):
        return K @ C @ e, K - K @ C @ K + 1e-10 * torch.eye(N)

    dense = S.dense()
    q = dist(dense @ torch.linalg.inv(dense.T @ (K + D) @ dense) @ dense.T)
    p = dist(torch.linalg.inv(K + D))
    divergence = torch.distributions.kl_divergence(
        *(torch.distributions.MultivariateNormal(m, c) for m, c in (q, p))
    )
    assert (evidence - bound).item() == pytest.approx(divergence.item(), rel=1e-3, abs=1e-3)


def test_only_the_span_matters():
    X, e, noise, kernel, S = problem()
    T = torch.randn(NUM, NUM, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    a = losses(kernel, X, S, e, noise)
    b = losses(kernel, X, DenseMatrix(S.dense() @ T), e, noise)
    assert abs((a[0] - b[0]).item()) < 1e-8
    assert abs((a[1] - b[1]).item()) < 1e-8


def test_bordered_factor_is_the_factor_of_the_whole():
    X, e, noise, kernel, S = problem()
    K = kernel_block(kernel, X, X) + torch.diag(noise)
    n1 = N - 5
    S1 = BlockMatrix(S.block[:n1].clamp(max=4), S.values[:n1], 5)
    S2 = identity_actions(5, X)
    whole = S1.append(S2)
    L = chol_of(S1.dense().T @ K[:n1, :n1] @ S1.dense())
    got = border(L, K[n1:, :n1] @ S1.dense(), K[n1:, n1:])
    want = chol_of(whole.dense().T @ K @ whole.dense())
    assert torch.allclose(got, want, atol=1e-12)


def test_dependent_actions_are_refused_with_a_remedy():
    X, e, noise, kernel, _ = problem()
    S = DenseMatrix(torch.zeros(N, 2, dtype=torch.float64))
    with pytest.raises(StateError, match="independent"):
        Projected.of(symmetric_product(kernel, X, S), S, noise)


def test_best_constant_is_where_the_slope_vanishes():
    X, y, noise, kernel, S = problem()
    projected = Projected.of(symmetric_product(kernel, X, S).detach(), S, noise)
    c = projected.best_constant(y).requires_grad_()
    diag = kernel(X, diag=True).detach()
    (slope,) = torch.autograd.grad(projected.elbo(diag, y - c), c)
    assert abs(slope.item()) < 1e-10
