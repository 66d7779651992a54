"""OnlineSVGP: its objective written out, and the optimum, which is Titsias' bound."""

import copy
from typing import Any

import pytest
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from bo_stream import OnlineSGPR
from bo_stream.base.fitting import log_prior
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.growth import FixedGrid
from bo_stream.mathematics.inducing import Batch, dense
from experiments.common.baselines.online_svgp import OnlineSVGP
from experiments.common.baselines.variational import (
    Before,
    Inducing,
    factor,
    nugget,
    objective,
)
from tests.bo_stream.mathematics import sgpr_cases
from tests.bo_stream.mathematics.sgpr_cases import data
from tests.raw import RAW

JITTER = 1e-8
"""The nugget of inducing values."""
OLD_SHARE = 1e-3
"""The nuggets of old inducing values in `case`, large enough to be seen."""
MEAN = torch.tensor(-0.3, dtype=torch.float64)


def se_kernel(*args: Any) -> Kernel:
    """A kernel that can learn."""
    return sgpr_cases.se_kernel(*args).requires_grad_()


def likelihood(noise: float = 0.05) -> GaussianLikelihood:
    module = GaussianLikelihood().double()
    module.noise = torch.tensor(noise, dtype=torch.float64)
    return module


def stream(n: int = 30, **kw: Any) -> tuple[OnlineSVGP, Tensor, Tensor]:
    """A surrogate with fixed hyperparameters that has seen n points, and its data."""
    batch = data(n, d=2)
    X, Y = batch.X, batch.y.unsqueeze(-1)
    defaults = {"covar_module": se_kernel(1.3, (0.4, 0.5)), "likelihood": likelihood()}
    options = {"num_inducing": 10, "initial_steps": 50, **defaults, **RAW, **kw}
    return OnlineSVGP(X, Y, **options), X, Y


def random_posterior(Z: Tensor, seed: int, share: float = JITTER) -> Inducing:
    """Any posterior of ``f(Z)``."""
    generator = torch.Generator().manual_seed(seed)
    M = len(Z)
    mu = torch.randn(M, generator=generator, dtype=torch.float64)
    T = 0.3 * torch.randn(M, M, generator=generator, dtype=torch.float64).tril(-1)
    T = T + torch.diag(0.4 + 0.1 * mu.square())
    return Inducing(Z, mu, T, torch.full_like(mu, share))


def case() -> tuple[Inducing, Before, Batch, Kernel]:
    """A posterior and the one before, under other points, hyperparameters and mean; a batch."""
    pool = data(8, d=2, seed=5).X
    old, now = random_posterior(pool[:4], 0, OLD_SHARE), random_posterior(pool[3:8], 1)
    k_old = se_kernel(1.3, (0.5, 0.7))
    before = Before(old, factor(old, k_old).detach(), torch.tensor(0.4, dtype=torch.float64))
    rows = data(6, d=2, seed=6)
    batch = Batch(rows.X, rows.y, 0.05 * torch.linspace(0.5, 2.0, 6).double())
    return now, before, batch, se_kernel(0.8, (0.3, 0.4))


# -- the objective --------------------------------------------------------------------------------


def dense_objective(now: Inducing, before: Before, batch: Batch, k: Kernel, beta: float) -> Tensor:
    """The four terms as they are printed, with dense matrices and torch's own divergences."""
    Z, mu, T = now.Z, now.mu, now.T
    L = torch.linalg.cholesky(dense(k, Z) + JITTER * k.outputscale * torch.eye(len(Z)).double())
    q_b = MultivariateNormal(MEAN + L @ mu, L @ T @ T.T @ L.T)
    p_b = MultivariateNormal(MEAN.expand(len(Z)), L @ L.T)

    def posterior(X: Tensor, own: float) -> MultivariateNormal:
        P = torch.linalg.solve(L @ L.T, dense(k, Z, X)).T
        cov = dense(k, X) + own * torch.eye(len(X)).double()
        cov = cov + P @ (q_b.covariance_matrix - L @ L.T) @ P.T
        return MultivariateNormal(MEAN + P @ (q_b.mean - MEAN), 0.5 * (cov + cov.T))

    a, L_o, T_o = posterior(before.q.Z, OLD_SHARE * 1.3), before.L, before.q.T
    q_o = MultivariateNormal(before.mean + L_o @ before.q.mu, L_o @ T_o @ T_o.T @ L_o.T)
    p_o = MultivariateNormal(before.mean.expand(len(L_o)), L_o @ L_o.T)
    f, d = posterior(batch.X, 0.0), batch.noise
    fit = Normal(f.mean, d.sqrt()).log_prob(batch.y).sum() - 0.5 * (f.variance / d).sum()
    return fit - beta * (kl_divergence(q_b, p_b) + kl_divergence(a, q_o) - kl_divergence(a, p_o))


@pytest.mark.parametrize("beta", [1.0, 1e-3])
def test_the_objective_is_the_printed_one(beta: float) -> None:
    now, before, batch, kernel = case()
    with torch.no_grad():
        value = objective(now, before, batch, kernel, MEAN, beta)
        expected = dense_objective(now, before, batch, kernel, beta)
    assert abs(value - expected) < 1e-6 * (1 + abs(value))


# -- the optimum ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def converged() -> tuple[OnlineSVGP, OnlineSGPR]:
    """On a first batch until nothing moves, and online SGPR on the same inducing points."""
    model, X, Y = stream(initial_steps=1500, lr=1e-4)
    growth, kernel = FixedGrid(model.state.now.Z), se_kernel(1.3, (0.4, 0.5))
    own = {"covar_module": kernel, "likelihood": likelihood(), **RAW}
    return model, OnlineSGPR(X, Y, growth=growth, **own)


def assert_near(model: OnlineSVGP, sgpr: OnlineSGPR, tolerance: float) -> None:
    X = data(20, d=2, seed=3).X
    p, q = model.posterior(X), sgpr.posterior(X)
    assert torch.allclose(p.mean, q.mean, atol=tolerance)
    assert torch.allclose(p.variance.sqrt(), q.variance.sqrt(), atol=tolerance)


@pytest.mark.slow
def test_the_optimum_is_titsias(converged: tuple[OnlineSVGP, OnlineSGPR]) -> None:
    """With beta = 1: bound and posterior of batch SGPR on the same points, from below."""
    model, sgpr = converged
    bound = (model.make_mll()() - log_prior(model)).item()
    best = float(sgpr.bound_sum)
    assert best - 0.01 < bound < best + 1e-5
    assert_near(model, sgpr, 0.01)


def moments(q: Inducing, kernel: Kernel, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the function at X, dense."""
    A = torch.linalg.solve_triangular(factor(q, kernel), dense(kernel, q.Z, X), upper=False)
    V = q.T.mT @ A
    return MEAN + A.mT @ q.mu, dense(kernel, X) - A.mT @ A + V.mT @ V


# -- the surrogate --------------------------------------------------------------------------------


def test_nuggets_are_kept_in_units_of_the_kernel() -> None:
    q = random_posterior(data(5, d=2).X, 3, 1e-3)
    kernel = se_kernel(1.3, (0.4, 0.5))
    assert torch.allclose(nugget(q, kernel), torch.full((5,), 1.3e-3).double(), rtol=1e-6)


def test_a_stream_comes_near_the_exact_gp_and_hyperparameters_follow_when_asked() -> None:
    model, X, Y = stream(n=60, num_inducing=25, initial_steps=300)
    held = copy.deepcopy(model.covar_module.state_dict())
    second = data(40, d=2, seed=9)
    model.observe(second.X, second.y.unsqueeze(-1))
    assert model.num_observed == 100
    assert all(torch.equal(v, held[k]) for k, v in model.covar_module.state_dict().items())
    learning, _, _ = stream(learn_hyperparameters=True, initial_steps=30)
    lengthscale = learning.covar_module.base_kernel.lengthscale
    assert not torch.allclose(lengthscale, torch.tensor([[0.4, 0.5]]).double())


@pytest.mark.parametrize("wrong", [{"lr": 2.0}, {"beta": -1.0}, {"num_inducing": 0}])
def test_options_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="lr in"):
        stream(**wrong)


def test_the_evidence_of_all_data_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="keeps only its last batch"):
        stream(initial_steps=2)[0].log_evidence()
