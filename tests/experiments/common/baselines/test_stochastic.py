"""The decoupled GP of the paper: its moments, the gradients of its bound, its steps."""

import math

import pytest
import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from bo_stream import ExactGP
from experiments.common.baselines.modules import learned
from experiments.common.baselines.stochastic import (
    Decoupled,
    StochasticDecoupled,
    gradients,
    grown,
    moments,
)
from experiments.common.baselines.surrogates import observations
from experiments.common.kernels import scaled

NOISE, N = 0.07, 50


def kernel() -> Kernel:
    return scaled(RBFKernel(), lengthscale=0.8, outputscale=1.7).requires_grad_(False)


def made(seed: int = 0) -> tuple[Decoupled, Tensor, Tensor]:
    """A process that is not an optimum, with unequal bases, and a minibatch."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    q = Decoupled(normal(9, 2), normal(9), normal(4, 2), normal(4, 4))
    return q, normal(7, 2), normal(7)


def bound(q: Decoupled, X: Tensor, y: Tensor, total: int) -> Tensor:
    """MATHS 6.2, slow and obvious."""
    k, K_a, K_b = (
        kernel()(u, v).to_dense() for u, v in ((X, X), (q.alpha, q.alpha), (q.beta, q.beta))
    )
    K_xa, K_xb = kernel()(X, q.alpha).to_dense(), kernel()(X, q.beta).to_dense()
    B = q.L @ q.L.mT
    R = torch.linalg.solve(torch.eye(len(B)).double() + B @ K_b, B)
    mean, var = K_xa @ q.a, (k - K_xb @ R @ K_xb.mT).diagonal()
    H = torch.eye(len(B)).double() + q.L.mT @ K_b @ q.L
    KL = 0.5 * (q.a @ K_a @ q.a + torch.logdet(H) - torch.trace(K_b @ R))
    fit = -0.5 * (math.log(2.0 * math.pi * NOISE) + ((y - mean).square() + var) / NOISE)
    return total / len(X) * fit.sum() - KL


def test_gradients_are_those_of_the_bound() -> None:
    q, X, y = made()
    q = Decoupled(q.alpha, q.a.requires_grad_(), q.beta, q.L.requires_grad_())
    want = torch.autograd.grad(bound(q, X, y, N), (q.a, q.L))
    with torch.no_grad():
        got = gradients(q, kernel(), NOISE, X, y, N)
    for one, other in zip(got, want, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)


def test_columns_are_drawn_without_bias() -> None:
    q, X, y = made()
    whole = gradients(q, kernel(), NOISE, X, y, N)
    every = [
        gradients(q, kernel(), NOISE, X, y, N, torch.tensor([i, (i + 1) % 9])) for i in range(9)
    ]
    for k in (0, 1):
        assert torch.allclose(torch.stack([part[k] for part in every]).mean(0), whole[k])


def test_moments_are_those_of_the_formulas() -> None:
    q, X, _ = made()
    mean, variance = moments(q, kernel(), X)
    K_b, K_xb = kernel()(q.beta).to_dense(), kernel()(X, q.beta).to_dense()
    B = q.L @ q.L.mT
    R = torch.linalg.inv(torch.linalg.inv(B) + K_b)
    assert torch.allclose(mean, kernel()(X, q.alpha).to_dense() @ q.a)
    assert torch.allclose(variance, 1.7 - (K_xb @ R * K_xb).sum(-1))


def test_at_the_optimum_of_all_rows_it_is_the_exact_gp_and_gradients_vanish() -> None:
    _, X, y = made()
    K = kernel()(X).to_dense()
    a = torch.linalg.solve(K + NOISE * torch.eye(7).double(), y)
    q = Decoupled(X, a, X, torch.eye(7).double() / NOISE**0.5)
    for gradient in gradients(q, kernel(), NOISE, X, y, 7):
        assert float(gradient.abs().max()) < 1e-9
    empty = X.new_empty(0, 2)
    none = Decoupled(empty, X.new_empty(0), empty, X.new_empty(0, 0))
    covariance = grown(none, X[:3], X, NOISE)  # as after an observation at each point
    assert torch.allclose(moments(covariance, kernel(), X)[1], moments(q, kernel(), X)[1])


def test_growing_leaves_the_mean_and_is_no_saddle() -> None:
    q, X, y = made()
    more = grown(q, X[:3], X[3:5], NOISE)
    assert torch.allclose(moments(more, kernel(), X)[0], moments(q, kernel(), X)[0])
    assert (more.alpha.shape, more.beta.shape, more.L.shape) == ((12, 2), (6, 2), (6, 6))
    assert bool((moments(more, kernel(), X)[1] < moments(q, kernel(), X)[1]).all())
    assert float(gradients(more, kernel(), NOISE, X, y, N)[1][:, 4:].abs().min(0).values.max()) > 0


@pytest.mark.slow
def test_steps_shrink_as_the_paper_has_them_and_approach_the_exact_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(60, 1, generator=generator, dtype=torch.float64)
    Y = (2.0 * X).sin() + 0.3 * torch.randn(60, 1, generator=generator, dtype=torch.float64)
    own = learned(X, Y)
    method = StochasticDecoupled(60, 60, minibatch=60, own=own)
    method.observe(X, Y)
    exact = observations(ExactGP(X, Y, **own), X)
    before = float((method.predict(X)[0] - exact[0]).abs().max())
    for _ in range(600):
        method.step()
    assert method.steps == 601
    assert method._adam.param_groups[0]["lr"] == pytest.approx(0.1 / (1.0 + 0.1 * 601**0.5))
    mean, variance = method.predict(X)
    assert float((mean - exact[0]).abs().max()) < 0.2 * before
    assert torch.allclose(variance, exact[1], rtol=0.05)


def test_bases_fill_up_and_stay() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(60, 1, generator=generator, dtype=torch.float64)
    method = StochasticDecoupled(35, 10, minibatch=16)
    sizes = []
    for part in X.split(20):
        method.observe(part, part.sin())
        q = method._q
        assert q is not None
        sizes.append((len(q.alpha), len(q.a), len(q.beta)))
    assert sizes == [(20, 20, 10), (35, 35, 10), (35, 35, 10)]
