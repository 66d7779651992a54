"""Merging actions: what it keeps, what it loses; nothing falls below the exact posterior."""

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_stream.mathematics.computation_aware.compression import (
    choose_merges,
    merge_loss,
    merged_factor,
)
from bo_stream.mathematics.computation_aware.matrix import (
    BlockMatrix,
    DenseMatrix,
    identity_actions,
    one_action,
)
from bo_stream.mathematics.computation_aware.objective import border, chol_of
from bo_stream.mathematics.computation_aware.products import kernel_block


def problem(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    e = torch.randn(n, generator=generator, dtype=torch.float64)
    noise = 0.05 + 0.2 * torch.rand(n, generator=generator, dtype=torch.float64)
    kernel = ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale = 0.4
    return X, e, noise, kernel_block(kernel, X, X).detach()


def posterior(K, S, e, noise):
    C = S @ torch.linalg.solve(S.T @ (K + torch.diag(noise)) @ S, S.T)
    return K @ C @ e, K - K @ C @ K


def lowest(M):
    return float(torch.linalg.eigvalsh(M)[0])


def block_matrix(n, i, seed=0):
    values = torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return BlockMatrix(torch.arange(n) * i // n, values, i).normalised()


@pytest.mark.parametrize("dense", [False, True], ids=["block", "dense"])
def test_merged_factor_is_the_factor_of_the_merged_actions(dense):
    X, e, noise, K = problem(30)
    S = block_matrix(30, 10)
    if dense:
        S = DenseMatrix(torch.linalg.qr(torch.randn(30, 10, dtype=torch.float64))[0])
    K_hat = K + torch.diag(noise)
    L = chol_of(S.dense().T @ K_hat @ S.dense())
    target, weights = choose_merges(L, S.gram(noise), S.transpose_times(e), 6)
    merged = S.merge(target, weights)
    assert merged.num_actions == 6
    gram = merged.dense().T @ merged.dense()
    assert torch.allclose(gram, torch.eye(6, dtype=K.dtype), atol=1e-12)
    want = chol_of(merged.dense().T @ K_hat @ merged.dense())
    assert torch.allclose(merged_factor(L, target, weights), want, atol=1e-12)


def test_loss_is_the_divergence_between_the_posteriors():
    X, e, noise, K = problem(12)
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
    X, e, noise, _ = problem(10)
    X[7] = X[2]
    noise = torch.full_like(noise, 0.1)
    kernel = ScaleKernel(MaternKernel(nu=1.5)).double()
    K = kernel_block(kernel, X, X).detach()
    e[7] = e[2]
    L = chol_of(K + torch.diag(noise))
    target, weights = choose_merges(L, torch.diag(noise), e, 9)
    assert target[7] == target[2]
    S = identity_actions(10, X).merge(target, weights)
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
    X, e, noise, K = problem(n, seed)
    K_hat = K + torch.diag(noise)
    S, seen = block_matrix(start, 3, seed), start
    L = chol_of(S.dense().T @ K_hat[:start, :start] @ S.dense())
    for kind, size in steps:
        old = torch.nn.functional.pad(S.dense(), (0, 0, 0, n - seen))
        if kind == "compress":
            keep = max(1, S.num_actions - size)
            target, weights = choose_merges(
                L, S.gram(noise[:seen]), S.transpose_times(e[:seen]), keep
            )
            S, L = S.merge(target, weights), merged_factor(L, target, weights)
        else:
            new = slice(seen, seen + size)
            like = X[new]
            S2 = identity_actions(size, like) if kind == "identity" else one_action(size, like)
            cross = S2.dense().T @ K_hat[new, :seen] @ S.dense()
            L = border(L, cross, S2.dense().T @ K_hat[new, new] @ S2.dense())
            S, seen = S.append(S2), seen + size
        now = torch.nn.functional.pad(S.dense(), (0, 0, 0, n - seen))
        cov_old, cov_now = (posterior(K, A, e, noise)[1] for A in (old, now))
        shrunk = cov_now - cov_old if kind == "compress" else cov_old - cov_now
        assert lowest(shrunk) > -1e-8
        assert torch.allclose(L, chol_of(now.T @ K_hat @ now), atol=1e-9)
    used = slice(0, seen)
    exact = K - K[:, used] @ torch.linalg.solve(K_hat[used, used], K[used, :])
    assert lowest(cov_now - exact) > -1e-8
