"""Losses of computation-aware GPs against dense identities; merging actions: what it keeps, what it
loses; nothing falls below the exact posterior.
"""

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_stream.errors import StateError
from bo_stream.mathematics.computation_aware import (
    BlockMatrix,
    DenseMatrix,
    Projected,
    choose_merges,
    compress,
    kernel_values,
    merge_loss,
    neighbours,
)
from bo_stream.mathematics.linalg import bordered

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
    return X, e, noise, kernel, BlockMatrix(block, values)


def losses(kernel, X, S, e, noise):
    projected = Projected.of(kernel, X, S, noise)
    return projected.elbo(e), projected.log_likelihood(e)


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


@pytest.mark.parametrize("dense", [False, True], ids=["block", "dense"])
def test_losses_and_gradients_equal_the_dense_formulas(dense):
    X, e, noise, kernel, S = problem()
    noise.requires_grad_()
    inputs = [*kernel.parameters(), noise]
    if dense:
        S_used = DenseMatrix(S.normalised().dense() @ torch.randn(NUM, NUM, dtype=torch.float64))
        S_dense = S_used.values
    else:
        S.values.requires_grad_()
        inputs.append(S.values)
        S_used, S_dense = S, S.dense()
    got = losses(kernel, X, S_used, e, noise)
    want = dense_losses(kernel_values(kernel, X, X), S_dense, e, noise)
    for a, b in zip(got, want, strict=True):
        assert abs((a - b).item()) < 1e-8
        for g, h in zip(
            torch.autograd.grad(a, inputs, retain_graph=True),
            torch.autograd.grad(b, inputs, retain_graph=True),
            strict=True,
        ):
            assert torch.allclose(g, h, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_elbo_is_the_evidence_less_a_divergence(seed):
    X, e, noise, kernel, S = problem(seed)
    K, D = kernel_values(kernel, X, X), torch.diag(noise)
    bound = losses(kernel, X, S, e, noise)[0]
    prior = torch.distributions.MultivariateNormal(torch.zeros_like(e), K + D)
    evidence = prior.log_prob(e)
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


def test_dependent_actions_are_refused_with_a_remedy():
    X, e, noise, kernel, _ = problem()
    S = DenseMatrix(torch.zeros(N, 2, dtype=torch.float64))
    with pytest.raises(StateError, match="independent"):
        Projected.of(kernel, X, S, noise)


def test_best_constant_is_where_the_slope_vanishes():
    X, y, noise, kernel, S = problem()
    projected = Projected.of(kernel, X, S, noise)
    c = projected.best_constant(y).detach().requires_grad_()
    (slope,) = torch.autograd.grad(projected.elbo(y - c), c)
    assert abs(slope.item()) < 1e-10


# -- compression ---------------------------------------------------------------------------------


def merged_problem(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    e = torch.randn(n, generator=generator, dtype=torch.float64)
    noise = 0.05 + 0.2 * torch.rand(n, generator=generator, dtype=torch.float64)
    kernel = ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale = 0.4
    return X, e, noise, kernel_values(kernel, X, X).detach()


def posterior(K, S, e, noise):
    C = S @ torch.linalg.solve(S.T @ (K + torch.diag(noise)) @ S, S.T)
    return K @ C @ e, K - K @ C @ K


def lowest(M):
    return float(torch.linalg.eigvalsh(M)[0])


def block_matrix(n, i, seed=0):
    values = torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return BlockMatrix(torch.arange(n) * i // n, values).normalised()


@pytest.mark.parametrize("dense", [False, True], ids=["block", "dense"])
def test_merged_factor_is_the_factor_of_the_merged_actions(dense):
    X, e, noise, K = merged_problem(30)
    S = block_matrix(30, 10)
    if dense:
        S = DenseMatrix(torch.linalg.qr(torch.randn(30, 10, dtype=torch.float64))[0])
    K_hat = K + torch.diag(noise)
    L = torch.linalg.cholesky(S.dense().T @ K_hat @ S.dense())
    merged, factor = compress(S, L, S.transpose_times(e), noise, 6)
    assert merged.num_actions == 6
    gram = merged.dense().T @ merged.dense()
    assert torch.allclose(gram, torch.eye(6, dtype=K.dtype), atol=1e-12)
    want = torch.linalg.cholesky(merged.dense().T @ K_hat @ merged.dense())
    assert torch.allclose(factor, want, atol=1e-12)


def test_loss_is_the_divergence_between_the_posteriors():
    X, e, noise, K = merged_problem(12)
    S = block_matrix(12, 4)
    G = S.dense().T @ (K + torch.diag(noise)) @ S.dense()
    pairs = torch.triu_indices(4, 4, 1)
    loss, angle = merge_loss(
        torch.linalg.inv(G),
        torch.linalg.inv(S.gram(noise)),
        torch.linalg.solve(G, S.transpose_times(e)),
        pairs,
        7,
    )
    before = posterior(K, S.dense(), e, noise)
    for k, (a, b) in enumerate(pairs.mT.tolist()):
        T = torch.eye(4, dtype=K.dtype)
        T[a, a], T[b, a] = math.cos(angle[k]), math.sin(angle[k])
        T = T[:, [c for c in range(4) if c != b]]
        after = posterior(K, S.dense() @ T, e, noise)
        dists = [
            torch.distributions.MultivariateNormal(m, c + 1e-10 * torch.eye(12))
            for m, c in (before, after)
        ]
        want = float(torch.distributions.kl_divergence(*dists))
        assert float(loss[k]) == pytest.approx(want, rel=1e-4, abs=1e-6)


def test_repeated_points_merge_first_and_cost_nothing():
    X, e, noise, _ = merged_problem(10)
    X[7] = X[2]
    noise = torch.full_like(noise, 0.1)
    kernel = ScaleKernel(MaternKernel(nu=1.5)).double()
    K = kernel_values(kernel, X, X).detach()
    e[7] = e[2]
    L = torch.linalg.cholesky(K + torch.diag(noise))
    T = choose_merges(L, torch.diag(noise), e, 9)
    assert T.block[7] == T.block[2]
    S = neighbours(X).merge(T)
    exact, merged = (posterior(K, A, e, noise) for A in (torch.eye(10).double(), S.dense()))
    assert torch.allclose(exact[0], merged[0], atol=1e-10)
    assert torch.allclose(exact[1], merged[1], atol=1e-10)


STEPS = st.lists(
    st.tuples(st.sampled_from(["identity", "block", "compress"]), st.integers(1, 6)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 99))
def test_dominance_after_any_sequence_of_appends_and_compressions(steps, seed):
    start = 8
    n = start + sum(size for kind, size in steps if kind != "compress")
    X, e, noise, K = merged_problem(n, seed)
    K_hat = K + torch.diag(noise)
    S, seen = block_matrix(start, 3, seed), start
    L = torch.linalg.cholesky(S.dense().T @ K_hat[:start, :start] @ S.dense())
    for kind, size in steps:
        old = torch.nn.functional.pad(S.dense(), (0, 0, 0, n - seen))
        if kind == "compress":
            keep = max(1, S.num_actions - size)
            S, L = compress(S, L, S.transpose_times(e[:seen]), noise[:seen], keep)
        else:
            new = slice(seen, seen + size)
            like = X[new]
            S2 = neighbours(like, size if kind == "identity" else 1)
            cross = S2.dense().T @ K_hat[new, :seen] @ S.dense()
            L = bordered(L, cross.mT, S2.dense().T @ K_hat[new, new] @ S2.dense())
            S, seen = S.append(S2), seen + size
        now = torch.nn.functional.pad(S.dense(), (0, 0, 0, n - seen))
        cov_old, cov_now = (posterior(K, A, e, noise)[1] for A in (old, now))
        shrunk = cov_now - cov_old if kind == "compress" else cov_old - cov_now
        assert lowest(shrunk) > -1e-8
        assert torch.allclose(L, torch.linalg.cholesky(now.T @ K_hat @ now), atol=1e-9)
    used = slice(0, seen)
    exact = K - K[:, used] @ torch.linalg.solve(K_hat[used, used], K[used, :])
    assert lowest(cov_now - exact) > -1e-8
