"""Exact conditioning of the online sparse GP, at any noise, against 60 digits (MATHS 3.6)."""

from dataclasses import replace

import gpytorch
import mpmath as mp
import pytest
import torch

from bo_stream import OnlineSGPR
from bo_stream.errors import NoiseError
from bo_stream.mathematics.inducing.posterior import predict
from bo_stream.mathematics.inducing.state import Batch, dense
from bo_stream.mathematics.inducing.update import condition, rebase, update
from tests.bo_stream.mathematics.inducing.sgpr_cases import (
    covariance,
    data,
    numbers,
    scalar,
    se_kernel,
    start,
    step,
)
from tests.bo_stream.mathematics.inducing.sgpr_oracle import SE, inverse, to_tensor
from tests.raw import RAW

KERNEL = SE(1.0, [1.0, 1.0])
TEST = data(6, d=2, seed=6).X


def matrix(values):
    return mp.matrix(values.tolist())


def whitening(state, kernel):
    """``L^-1`` for the factor that the state stands for."""
    K = kernel(numbers(state.Z), numbers(state.Z))
    for i, nugget in enumerate(state.nugget.tolist()):
        K[i, i] += mp.mpf(nugget)
    return mp.cholesky(K) ** -1


def dist(state, kernel, Xs):
    """Mean and covariance at Xs of what the state says."""
    A = whitening(state, kernel) * kernel(numbers(state.Z), numbers(Xs))
    S = inverse(mp.eye(state.size) + matrix(state.G))
    mean = A.T * S * matrix(state.c) + mp.matrix([mp.mpf(float(state.mean))] * len(Xs))
    return mean, kernel(numbers(Xs), numbers(Xs)) - A.T * A + A.T * S * A


def given(state, batch):
    """Mean and standard deviations at `TEST` given a batch: dense Gaussian conditioning."""
    n = batch.size
    mean, C = dist(state, KERNEL, torch.cat([batch.X, TEST]))
    noisy = C[:n, :n] + mp.diag([mp.mpf(v) for v in batch.noise.tolist()])
    gain = C[n:, :n] * inverse(noisy)
    e = matrix(batch.y) - mean[:n, 0]
    left = C[n:, n:] - gain * C[:n, n:]
    sds = [mp.sqrt(left[i, i]) for i in range(len(TEST))]
    return to_tensor(mean[n:, 0] + gain * e).squeeze(-1), to_tensor(sds)


def errors(state, kernel, want):
    """Largest error of the mean in standard deviations, and of those, relative."""
    mean, A, V = predict(state, kernel, TEST)
    sd = covariance(kernel, TEST, A, V).diagonal().sqrt()
    return float(((mean - want[0]).abs() / want[1]).max()), float((sd / want[1] - 1.0).abs().max())


def streamed(noise, gap, n=8):
    """A state of eight points, and four more of which two pairs lie a gap apart."""
    kernel = se_kernel(1.0, (1.0, 1.0))
    first = data(n, d=2, noise=1e-3)
    state = step(start(first), first, kernel, first.X, 0.2).state
    X = data(2, d=2, seed=3).X.repeat_interleave(2, 0)
    X[1::2] += gap
    y = torch.tensor([1.0, 1.0, 0.5, 0.5], dtype=torch.float64)
    return state, Batch(X, y, torch.full_like(y, noise)), kernel


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("noise", [1e-6, 2e-8, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12])
def test_exact_at_any_noise(noise, gap, steps):
    """Jitter 1e-8: where noise is below that, it is the noise's share of the jitter that counts."""
    mp.mp.dps = 60
    state, batch, kernel = streamed(noise, gap)
    want = given(state, batch)
    for part in torch.arange(4).chunk(steps):
        own = Batch(batch.X[part], batch.y[part], batch.noise[part])
        state, _ = condition(state, own, kernel)
    mean_error, sd_error = errors(state, kernel, want)
    assert mean_error < (1e-3 if noise > 1e-12 else 2e-2)  # what doubles allow: noise / 1e-16
    assert sd_error < 1e-4


@pytest.mark.parametrize("noise", [1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("length", [0.5, 1.5])
def test_what_was_conditioned_on_is_kept_under_another_kernel(noise, length):
    """The likelihood of the values at Z is unchanged, their nuggets a share of the variance."""
    mp.mp.dps = 60
    state, batch, kernel = streamed(noise, 1e-4)
    state, _ = condition(state, batch, kernel)
    W = whitening(state, KERNEL)
    information, linear = W.T * matrix(state.G) * W, W.T * matrix(state.c)
    other, dense_other = se_kernel(1.0, (length, length)), SE(1.0, [length, length])
    moved, _ = rebase(state, other, scalar(0.2))
    torch.testing.assert_close(moved.nugget, state.nugget)
    back = inverse(whitening(moved, dense_other))  # the factor under the other kernel
    G, c = back.T * information * back, back.T * linear
    A = inverse(back) * dense_other(numbers(state.Z), numbers(TEST))
    S = inverse(mp.eye(state.size) + G)
    mean = [v + mp.mpf(0.2) for v in A.T * S * c]
    C = dense_other(numbers(TEST), numbers(TEST)) - A.T * A + A.T * S * A
    want = to_tensor(mean), to_tensor([mp.sqrt(C[i, i]) for i in range(len(TEST))])
    mean_error, sd_error = errors(moved, other, want)
    assert mean_error < 5e-3
    assert sd_error < 1e-4


def test_points_of_tiny_noise_do_not_break_a_smoother_kernel():
    """Where their nuggets are too small for it, the jitter takes their place."""
    state, _, _ = streamed(1e-3, 0.0)
    kernel = se_kernel(1.0, (1.0, 1.0))
    crowd = torch.linspace(0.4, 0.6, 30, dtype=torch.float64).unsqueeze(-1).expand(30, 2)
    tiny = Batch(crowd, crowd.sum(-1), torch.full((30,), 1e-13, dtype=torch.float64))
    state, _ = condition(state, tiny, kernel)
    moved, _ = rebase(state, se_kernel(1.0, (30.0, 30.0)), scalar(0.2))
    assert moved.L.isfinite().all()
    want = dense(se_kernel(1.0, (30.0, 30.0)), moved.Z) + torch.diag(moved.nugget)
    torch.testing.assert_close(moved.L @ moved.L.mT, want, rtol=0, atol=1e-14)


@pytest.mark.parametrize("noise", [1e-14, 1e-20, 1e-300])
@pytest.mark.parametrize("gap", [1e-5, 0.0])
def test_noise_that_doubles_cannot_tell_from_none_fails_nothing(noise, gap):
    state, batch, kernel = streamed(noise, gap)
    least = replace(batch, noise=torch.full_like(batch.noise, 1e-13))
    for own in (batch, least):
        after, bound = condition(state, own, kernel)
        mean, A, V = predict(after, kernel, TEST)
        assert bound.isfinite() and mean.isfinite().all()
        assert covariance(kernel, TEST, A, V).diagonal().min() > 0.0


def test_each_point_keeps_its_own_nugget():
    state, batch, kernel = streamed(1e-10, 1e-2)
    after, _ = condition(state, batch, kernel)
    assert after.nugget.tolist() == pytest.approx([1e-8] * 8 + [5e-11] * 4)
    factor = dense(kernel, after.Z) + torch.diag(after.nugget)
    torch.testing.assert_close(after.L @ after.L.mT, factor, rtol=0, atol=1e-14)
    more = data(3, d=2, seed=8)
    index = torch.arange(12)
    for same in (True, False):
        Z = torch.cat([after.Z, more.X])
        out = update(after, more, kernel, after.mean, Z, index, same_kernel=same)
        assert out.state.nugget.tolist() == pytest.approx([1e-8] * 8 + [5e-11] * 4 + [1e-8] * 3)


@pytest.mark.parametrize("noise", [1e-6, 1e-8, 1e-9, 1e-10])
def test_a_surrogate_conditions_as_its_joint_posterior_does(noise):
    X, Xn, Xs = (data(n, d=2, seed=s).X for n, s in ((8, 0), (3, 1), (6, 2)))
    Xn[1] = Xn[0] + 1e-4
    Y, Yn = (3.0 * X).sin().sum(-1, keepdim=True), torch.tensor([[1.0], [1.0], [0.5]]).double()
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2)).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.0, 1.0
    model = OnlineSGPR(X, Y, torch.full_like(Y, noise), covar_module=kernel, **RAW)
    variance = torch.full((3, 1), noise, dtype=torch.float64)
    inside = model.condition_on_observations(Xn, Yn, noise=variance).posterior(Xs)
    outside = model.condition_on_observations(Xn.clone().requires_grad_(), Yn, noise=variance)
    want = outside.posterior(Xs)
    with torch.no_grad():
        assert ((inside.mean - want.mean).abs() / want.variance.sqrt()).max() < 2e-3
        torch.testing.assert_close(inside.variance, want.variance, rtol=1e-4, atol=0)


@pytest.mark.parametrize("noise", [1e-300, 0.0])
def test_points_known_already_to_rounding_are_refused_clearly(noise):
    """The wrapper cannot give the right posterior: it says so, and the surrogate stays."""
    X = data(8, d=2).X
    Y = (3.0 * X).sin().sum(-1, keepdim=True)
    model = OnlineSGPR(X, Y, torch.full_like(Y, 1e-10), **RAW)
    before = model.posterior(TEST).mean
    again = X[:4].repeat(4, 1).requires_grad_()
    variance = torch.full((16, 1), noise, dtype=torch.float64)
    with pytest.raises(NoiseError, match="leave such points out"):
        model.condition_on_observations(again, Y[:4].repeat(4, 1), noise=variance).posterior(TEST)
    assert torch.equal(model.posterior(TEST).mean, before)
