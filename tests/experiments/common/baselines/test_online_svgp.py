"""OnlineSVGP: its objective written out, and the optimum, which is Titsias' bound."""

import copy
import functools
from dataclasses import replace

import pytest
import torch
from gpytorch.means import ConstantMean
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from bo_stream import OnlineSGPR
from bo_stream.base.fitting.objective import log_prior
from bo_stream.growth import FixedGrid
from bo_stream.mathematics.inducing.state import Batch, dense
from bo_stream.mathematics.posterior.factor import frozen_kernel
from bo_stream.mathematics.variational.network import Network, best_mean, objective
from bo_stream.mathematics.variational.posterior import VariationalProcess
from bo_stream.mathematics.variational.state import Past, condition, factor, past_divergence
from bo_stream.testing import oracles
from tests.bo_stream.mathematics.inducing.sgpr_cases import data
from tests.bo_stream.surrogates.svgp_cases import (
    JITTER,
    likelihood,
    random_state,
    se_kernel,
    stream,
)
from tests.raw import RAW

OLD_SHARE = 1e-3
"""The nuggets of old inducing values in `case`, large enough to be seen."""


def case():
    """A network and its past under other inducing points, hyperparameters and mean."""
    pool = data(8, d=2, seed=5).X
    old, new = random_state(pool[:4], 0), random_state(pool[3:8], 1)
    old = replace(old, share=torch.full_like(old.share, OLD_SHARE))
    k_old, k_new = se_kernel(1.3, (0.5, 0.7)), se_kernel(0.8, (0.3, 0.4))
    past = Past(old, factor(old, k_old)[0].detach(), torch.tensor(0.4, dtype=torch.float64))
    mean = ConstantMean().double()
    mean.constant = torch.tensor(-0.3, dtype=torch.float64)
    network = Network(new, k_new, mean, likelihood())
    batch = data(6, d=2, seed=6)
    return network, past, Batch(batch.X, batch.y, torch.linspace(0.5, 2.0, 6).double())


# -- the objective --------------------------------------------------------------------------------


def dense_objective(network, past, batch, beta):
    """The four terms as they are printed, with dense matrices and torch's own divergences."""
    k, c = network.covar_module, network.mean_module.constant
    Z, mu, T = network.state().Z, network.state().mu, network.state().T
    L = torch.linalg.cholesky(dense(k, Z) + JITTER * k.outputscale * torch.eye(len(Z)).double())
    q_b, p_b = (
        MultivariateNormal(c + L @ mu, L @ T @ T.T @ L.T),
        MultivariateNormal(c.expand(len(Z)), L @ L.T),
    )

    def law(X, nugget):
        P = torch.linalg.solve(L @ L.T, dense(k, Z, X)).T
        cov = dense(k, X) + nugget * torch.eye(len(X)).double()
        cov = cov + P @ (q_b.covariance_matrix - L @ L.T) @ P.T
        return MultivariateNormal(c + P @ (q_b.mean - c), 0.5 * (cov + cov.T))

    a = law(past.state.Z, OLD_SHARE * 1.3)
    L_o, T_o = past.L, past.state.T
    q_o = MultivariateNormal(past.mean + L_o @ past.state.mu, L_o @ T_o @ T_o.T @ L_o.T)
    p_o = MultivariateNormal(past.mean.expand(len(L_o)), L_o @ L_o.T)
    f, d = law(batch.X, 0.0), network.likelihood.noise * batch.noise
    fit = Normal(f.mean, d.sqrt()).log_prob(batch.y).sum() - 0.5 * (f.variance / d).sum()
    return fit - beta * (kl_divergence(q_b, p_b) + kl_divergence(a, q_o) - kl_divergence(a, p_o))


@pytest.mark.parametrize("beta", [1.0, 1e-3])
def test_the_objective_is_the_printed_one(beta):
    network, past, batch = case()
    with torch.no_grad():
        value = objective(network, past, batch, beta)
        assert abs(value - dense_objective(network, past, batch, beta)) < 1e-6 * (1 + abs(value))


def test_the_divergences_to_the_past():
    network, past, _ = case()
    with torch.no_grad():
        mean, A, V = network.at(past.state.Z)
        covariance = dense(network.covar_module, past.state.Z) - A.mT @ A + V.mT @ V
        covariance = covariance + 1e-8 * torch.eye(4).double()
        L_o, T_o = past.L, past.state.T
        q = MultivariateNormal(mean, covariance)
        q_o = MultivariateNormal(past.mean + L_o @ past.state.mu, L_o @ T_o @ T_o.T @ L_o.T)
        p_o = MultivariateNormal(past.mean.expand(4), L_o @ L_o.T)
        expected = kl_divergence(q, q_o) - kl_divergence(q, p_o)
        assert abs(past_divergence(past, mean, covariance) - expected) < 1e-8 * (1 + abs(expected))
        assert abs(expected) > 1.0


def test_the_gradient_is_that_of_difference_quotients():
    network, past, batch = case()
    parameters = dict(network.named_parameters())
    assert len(parameters) == 7  # Z, mu, T; two of the kernel, mean, noise
    value = objective(network, past, batch, 0.7)
    gradients = torch.autograd.grad(value, list(parameters.values()))
    for (name, p), gradient in zip(parameters.items(), gradients, strict=True):

        def at(x, p=p):
            kept = p.data.clone()
            p.data.copy_(x)
            result = objective(network, past, batch, 0.7).detach()
            p.data.copy_(kept)
            return result

        quotient = oracles.difference_quotient(at, p.detach())
        assert torch.allclose(gradient, quotient, rtol=1e-5, atol=1e-5), name


def test_the_best_mean_is_stationary_and_higher():
    network, past, batch = case()
    before = objective(network, past, batch, 0.7)
    network.mean_module.constant = best_mean(network, past, batch, 0.7)
    value = objective(network, past, batch, 0.7)
    (slope,) = torch.autograd.grad(value, network.mean_module.raw_constant)
    assert abs(slope) < 1e-8 * (1 + abs(value)) and value > before + 0.1


# -- the optimum ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def converged():
    """On a first batch until nothing moves, and online SGPR on the same inducing points."""
    model, X, Y = stream(learn_inducing=False, initial_steps=1500, lr=1e-4)
    sgpr = OnlineSGPR(
        X,
        Y,
        growth=FixedGrid(model.inducing_points),
        covar_module=se_kernel(1.3, (0.4, 0.5)),
        likelihood=likelihood(),
        **RAW,
    )
    return model, sgpr


def assert_near(model, sgpr, tolerance):
    X = data(20, d=2, seed=3).X
    p, q = model.posterior(X), sgpr.posterior(X)
    assert torch.allclose(p.mean, q.mean, atol=tolerance)
    assert torch.allclose(p.variance.sqrt(), q.variance.sqrt(), atol=tolerance)


def test_the_optimum_is_titsias(converged):
    """With fixed inducing points and beta = 1: bound and posterior of batch SGPR, from below."""
    model, sgpr = converged
    bound = (model.make_mll()() - log_prior(model)).item()
    best = float(sgpr.bound_sum)
    assert best - 0.01 < bound < best + 1e-5
    assert_near(model, sgpr, 0.01)


def test_the_online_optimum_is_titsias_on_all_data(converged):
    """A second batch, climbed to the end: nothing is forgotten (MATHS 3.5)."""
    model, sgpr = (copy.deepcopy(m) for m in converged)
    second = data(15, d=2, seed=8)
    Y = second.y.unsqueeze(-1)
    model.lr = 3e-3
    model.observe(second.X, Y, steps=1500)
    before = sgpr.bound_sum
    sgpr.observe(second.X, Y, refit=False)
    gain = float(sgpr.bound_sum - before)
    bound = (model.make_mll()() - log_prior(model)).item()
    assert gain - 0.1 < bound < gain + 0.05
    assert_near(model, sgpr, 0.03)


@pytest.mark.parametrize("noise", [1e-2, 1e-6, 2e-8, 1e-8, 1e-9, 1e-10, 1e-12])
def test_conditioning_is_exact(noise):
    """Against the oracle on the joint posterior, whatever q and the noise are: jitter is 1e-8."""
    state = random_state(data(5, d=2).X, 3)
    kernel, batch, X = se_kernel(1.3, (0.4, 0.5)), data(4, d=2, seed=4, spread=0.5), data(3, d=2).X
    mean = torch.tensor(0.3, dtype=torch.float64)
    batch = Batch(batch.X, batch.y, 1e2 * noise * batch.noise)
    given = condition(state, batch, kernel, mean)
    assert given.size == 9 and bool((given.T.diagonal() > 0).all()) and not given.T.triu(1).any()
    prior = VariationalProcess.of(frozen_kernel(kernel), state, mean)
    joint = prior.at(torch.cat([batch.X, X]))
    law = oracles.condition(joint.mean[0], joint.covariance(joint)[0], batch.y, batch.noise)
    after = VariationalProcess.of(frozen_kernel(kernel), given, mean).at(X)
    sd = law[1].diagonal().sqrt()
    tolerance = 1e-9 + 1e-15 / noise  # what doubles allow
    assert ((after.mean[0] - law[0]) / sd).abs().max() < tolerance
    off = (after.covariance(after)[0] - law[1]) / sd / sd.unsqueeze(-1)
    assert off.abs().max() < tolerance


def test_points_of_little_noise_and_those_after_them():
    """Each value keeps its own nugget: through more conditioning, a climb and other units."""
    model, X, Y = stream(Yvar=1e-10)
    given = model.condition_on_observations(X[:2] + 0.03, Y[:2])
    shares = given.held().now.share
    near = functools.partial(torch.allclose, rtol=1e-6, atol=0.0)
    assert near(shares, torch.tensor([1e-8] * 10 + [5e-11 / 1.3] * 2).double())
    more = given.condition_on_observations(X[2:4] + 0.03, Y[2:4])
    assert near(more.held().now.share[:12], shares)
    given.observe(X[:2], Y[:2], torch.full_like(Y[:2], 0.01))
    assert near(given.held().now.share, shares)
    assert near(given.held().past.nugget, 1.3 * shares)
