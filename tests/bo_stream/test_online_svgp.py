"""OnlineSVGP: its objective and optimum against oracles, its climb, and what it refuses."""

import copy
import functools
import warnings
from dataclasses import replace

import gpytorch
import pytest
import torch
from botorch.models.transforms import Normalize
from gpytorch.constraints import Interval
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from bo_stream import OnlineSGPR, OnlineSVGP
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.fitting.objective import log_prior
from bo_stream.growth import FixedGrid
from bo_stream.posterior.factor import frozen_kernel
from bo_stream.sparse.state import Batch, dense
from bo_stream.testing import oracles
from bo_stream.variational.network import Network, best_mean, objective
from bo_stream.variational.posterior import VariationalProcess
from bo_stream.variational.state import (
    Past,
    SVGPState,
    condition,
    empty_state,
    factor,
    grow,
    past_divergence,
)
from tests.bo_stream import sgpr_cases
from tests.bo_stream.sgpr_cases import data
from tests.raw import RAW

JITTER = 1e-8
OLD_SHARE = 1e-3
"""The nuggets of old inducing values in `case`, large enough to be seen."""


def se_kernel(*args):
    """A kernel that can learn."""
    return sgpr_cases.se_kernel(*args).requires_grad_()


def likelihood(noise=0.05):
    module = GaussianLikelihood().double()
    module.noise = torch.tensor(noise, dtype=torch.float64)
    return module


def stream(n=30, Yvar=None, **kw):
    """A surrogate with fixed hyperparameters that has seen n points, and its data."""
    batch = data(n, d=2)
    X, Y = batch.X, batch.y.unsqueeze(-1)
    defaults = {"covar_module": se_kernel(1.3, (0.4, 0.5)), "likelihood": likelihood()}
    options = {"num_inducing": 10, "initial_steps": 50, **defaults, **kw}
    noise = None if Yvar is None else torch.full_like(Y, Yvar)
    if noise is not None:
        options.pop("likelihood")
    return OnlineSVGP(X, Y, noise, **{**RAW, **options}), X, Y


def buffers(model):
    return {k: v.clone() for k, v in model.state_dict().items() if torch.is_tensor(v)}


def random_state(Z, seed):
    """Any law of ``f(Z)``."""
    generator = torch.Generator().manual_seed(seed)
    M = len(Z)
    mu = torch.randn(M, generator=generator, dtype=torch.float64)
    T = 0.3 * torch.randn(M, M, generator=generator, dtype=torch.float64).tril(-1)
    share = torch.full_like(mu, JITTER)
    return SVGPState(Z, mu, T + torch.diag(0.4 + 0.1 * mu.square()), share, JITTER)


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


# -- the climb ------------------------------------------------------------------------------------


class Reference(gpytorch.models.ApproximateGP):
    """The same law on gpytorch's variational classes."""

    def __init__(self, model):
        state = model.held().now
        law = gpytorch.variational.CholeskyVariationalDistribution(state.size)
        jitter = JITTER * float(model.covar_module.outputscale.detach())
        super().__init__(
            gpytorch.variational.VariationalStrategy(self, state.Z, law, jitter_val=jitter)
        )
        self.double()
        self.covar_module, self.mean_module = model.covar_module, model.mean_module
        self.variational_strategy.variational_params_initialized.fill_(1)
        with torch.no_grad():
            law.variational_mean.copy_(state.mu)
            law.chol_variational_covar.copy_(state.T)

    def forward(self, X):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))


def test_posterior_and_divergence_are_gpytorchs():
    model, X, _ = stream()
    reference = Reference(model).eval()
    law, posterior = reference(X), model.posterior(X)
    assert torch.allclose(posterior.mean[:, 0], law.mean, atol=1e-7)
    assert torch.allclose(
        posterior.distribution.covariance_matrix, law.covariance_matrix, atol=1e-6
    )
    network = model._copied_network(model.held().now)
    mean, A, V = network.at(X)
    assert torch.allclose(mean, law.mean, atol=1e-7)
    covariance = dense(model.covar_module, X) - A.mT @ A + V.mT @ V
    assert torch.allclose(covariance, law.covariance_matrix, atol=1e-6)
    divergence = reference.variational_strategy.kl_divergence()
    assert torch.allclose(network.divergence(), divergence, rtol=1e-10)


def test_nothing_warns():
    """Of sparse tensors, for one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, X, Y = stream(initial_steps=2, learn_hyperparameters=True)
        model.observe(X[:3], Y[:3])
        model.fit(3)
        assert model.posterior(X).mean.isfinite().all()


@pytest.mark.parametrize("beta", [0.0, 1e-3])
def test_at_the_first_step_beta_makes_no_difference(beta):
    one, X, Y = stream(steps=1)
    other = stream(steps=1, beta=beta)[0]
    for model in (one, other):
        model.observe(X[:1], Y[:1] + 1.0)
    a, b = one.posterior(X), other.posterior(X)
    assert torch.allclose(a.mean, b.mean, atol=1e-6)
    for model in (one, other):
        model.observe(X[:1], Y[:1] + 1.0, steps=5)
    assert not torch.allclose(one.posterior(X).mean, other.posterior(X).mean, atol=1e-4)


def test_nothing_is_random():
    models, states = [], []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        model, X, Y = stream()
        model.observe(X[:3], Y[:3]).condition_on_observations(X[:2], Y[:2])
        model.fit(3)
        assert torch.equal(torch.get_rng_state(), before)
        models.append(model)
        states.append(buffers(model))
    assert all(torch.equal(v, states[1][k]) for k, v in states[0].items())


def test_inducing_points_grow_to_their_number_and_then_move():
    batch = data(9, d=2)
    X, Y = batch.X, batch.y.unsqueeze(-1)
    model = OnlineSVGP(
        X[:0], Y[:0], num_inducing=6, initial_steps=3, covar_module=se_kernel(), **RAW
    )
    assert model.inducing_points.shape == (0, 2)
    sizes = [len(model.observe(X[i : i + 1], Y[i : i + 1]).inducing_points) for i in range(4)]
    assert sizes == [1, 2, 3, 4]
    model.observe(X[:4], Y[:4], steps=0)
    assert len(model.inducing_points) == 8 - 2  # moved: the points themselves are new again
    before = model.inducing_points
    model.observe(X[5:], Y[5:])
    assert len(model.inducing_points) == 6
    assert not torch.equal(model.inducing_points, before)
    fixed = OnlineSVGP(X, Y, num_inducing=6, initial_steps=3, learn_inducing=False, **RAW)
    assert all(bool((z == X).all(-1).any()) for z in fixed.inducing_points)


def test_growing_leaves_the_law_and_repeated_points_out():
    state, kernel, X = random_state(data(4, d=2).X, 2), se_kernel(), data(9, d=2, seed=7).X
    grown = grow(state, torch.cat([X, X, state.Z]), kernel, 50)
    assert grown.size == 4 + 9
    laws = [
        VariationalProcess.of(frozen_kernel(kernel), s, state.mu.new_zeros(())).at(X + 0.1)
        for s in (state, grown)
    ]
    assert torch.allclose(laws[0].mean, laws[1].mean, atol=1e-6)
    assert torch.allclose(*(law.covariance(law) for law in laws), atol=1e-6)
    assert grow(empty_state(X, JITTER), X, kernel, 3).size == 3


def test_conditioning_adds_points_that_stay():
    model, X, Y = stream()
    given = model.condition_on_observations(X[:3] + 0.05, Y[:3])
    assert len(given.inducing_points) == 13 and len(model.inducing_points) == 10
    assert len(given.observe(X[:2], Y[:2]).inducing_points) == 13


def test_moments_are_carried():
    model, X, Y = stream()
    assert float(model.held().memory.step) == 50
    forgetful = copy.deepcopy(model)
    forgetful.held().memory.step.zero_()
    for m in (model, forgetful):
        m.observe(X[:1], Y[:1])
    assert float(model.held().memory.step) == 60
    held_out = data(40, d=2, seed=9)
    score, other = (m.log_predictive(held_out.X, held_out.y[:, None]) for m in (model, forgetful))
    assert score != other


def test_inducing_points_move_alike_in_any_units():
    """Inputs in other units, lengthscales to match: the same surrogate."""
    model, X, Y = stream()
    scale = torch.tensor([100.0, 1e-3], dtype=torch.float64)
    kernel = se_kernel(1.3, tuple((scale * torch.tensor([0.4, 0.5])).tolist()))
    other = OnlineSVGP(
        scale * X, Y, covar_module=kernel, likelihood=likelihood(), num_inducing=10,
        initial_steps=50,
    **RAW)  # fmt: skip
    for m, U in ((model, X), (other, scale * X)):
        m.observe(U[:3], Y[:3])
    assert torch.allclose(model.posterior(X).mean, other.posterior(scale * X).mean, atol=1e-6)
    assert torch.allclose(scale * model.inducing_points, other.inducing_points, rtol=1e-5)


def test_inducing_points_are_shown_raw():
    bounds = torch.tensor([[-3.0, -3.0], [3.0, 3.0]], dtype=torch.float64)
    model, X, _ = stream(input_transform=Normalize(2, bounds=bounds), learn_inducing=False)
    assert all(bool(torch.isclose(z, X).all(-1).any()) for z in model.inducing_points)


def test_steps_of_one_batch():
    model, X, Y = stream()
    before = buffers(model)
    model.observe(X[:1], Y[:1], steps=0)
    assert all(torch.equal(before[f"_now_{k}"], model.get_buffer(f"_now_{k}")) for k in "ZT")
    assert model.num_observed == 31


# -- hyperparameters ------------------------------------------------------------------------------


def test_adam_moves_hyperparameters_only_if_asked():
    still, X, Y = stream()
    kernel = se_kernel(1.3, (0.4, 0.5))
    kernel.raw_outputscale.requires_grad_(False)
    moving = stream(covar_module=kernel, learn_hyperparameters=True)[0]
    given = [p.clone() for p in still.parameters()]
    for model in (still, moving):
        model.observe(X[:5], Y[:5])
    assert all(torch.equal(p, q) for p, q in zip(given, still.parameters(), strict=True))
    names = [name for name, _ in moving.named_parameters()]
    changed = [
        not torch.equal(p, q) for p, q in zip(still.parameters(), moving.parameters(), strict=True)
    ]
    assert [n for n, c in zip(names, changed, strict=True) if not c] == [
        "covar_module.raw_outputscale"
    ]
    assert moving.observe(X[:5], Y[:5]).posterior(X).mean.isfinite().all()


@pytest.mark.parametrize("scaled", [False, True])
def test_adam_learns_under_known_noise(scaled):
    batch = data(12, d=2, spread=0.5)
    X, Y, Yvar = batch.X, batch.y.unsqueeze(-1), batch.noise.unsqueeze(-1)
    kw = {"likelihood": likelihood(1.0)} if scaled else {}
    model = OnlineSVGP(
        X, Y, Yvar, num_inducing=6, initial_steps=20, learn_hyperparameters=True, **{**RAW, **kw}
    )
    if scaled:
        assert model.likelihood.noise.item() != 1.0
    else:
        assert torch.allclose(model.likelihood.noise.mean(), Yvar.mean())


def test_a_fit_climbs_the_last_batch_and_keeps_q():
    model, X, Y = stream(mean_module=ZeroMean())
    model.observe(X[:8], Y[:8])
    before, value = buffers(model), float(model.make_mll()())
    assert model.fit().value > value
    after = buffers(model)
    learned = ("covar", "likelihood", "_curvature", "_explored")
    assert all(torch.equal(before[k], after[k]) for k in before if not k.startswith(learned))


# -- what it refuses ------------------------------------------------------------------------------


def test_a_climb_astray_changes_nothing():
    model, X, Y = stream(learn_hyperparameters=True)
    before = buffers(model)
    for steps in (1, 10):
        with pytest.raises(StateError, match="Lower `lr`"):
            model.observe(X[:2], torch.full_like(Y[:2], 1e200), steps=steps)
    after = buffers(model)
    assert all(torch.equal(v, after[k]) for k, v in before.items())
    assert model.observe(X[:2], Y[:2]).num_observed == 32


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_inducing", 0),
        ("steps", -1),
        ("initial_steps", 0),
        ("beta", -0.1),
        ("beta", float("nan")),
        ("lr", 0.0),
        ("lr", 2.0),
        ("jitter", 0.0),
        ("jitter", 0.1),
    ],
)
def test_bad_options(name, value):
    X = torch.zeros(0, 1).double()
    with pytest.raises(InputError, match=name):
        OnlineSVGP(X, X, **{**RAW, **{name: value}})


def test_bad_steps_of_one_batch():
    model, X, Y = stream()
    before = buffers(model)
    with pytest.raises(InputError, match="steps"):
        model.observe(X, Y, steps=-1)
    assert all(torch.equal(v, before[k]) for k, v in buffers(model).items())


def test_no_evidence():
    with pytest.raises(UnsupportedError, match="make_mll"):
        stream()[0].log_evidence()


def test_a_state_of_another_size_is_refused():
    model = stream()[0]
    with pytest.raises(StateError, match="num_inducing"):
        stream(num_inducing=9)[0].load_state_dict(model.state_dict())


def test_adam_keeps_to_the_constraints():
    X = torch.linspace(0.0, 1.0, 6).double().unsqueeze(-1)
    Y = torch.tensor([1.0, -1.0] * 3).double().unsqueeze(-1)
    kernel = ScaleKernel(RBFKernel(lengthscale_constraint=Interval(0.9, 1.1)))
    kernel.base_kernel.lengthscale = 1.0
    model = OnlineSVGP(
        X, Y, covar_module=kernel, num_inducing=6, learn_hyperparameters=True, lr=0.5, **RAW
    )
    for _ in range(3):
        model.observe(X, Y)
    lengthscale = float(model.covar_module.base_kernel.lengthscale.detach())
    assert 0.9 < lengthscale < 1.1 and lengthscale != 1.0


def test_a_first_batch_is_always_under_the_bound():
    """`beta` weighs divergences to a past, of which a first batch has none."""
    models = [stream(beta=beta)[0] for beta in (1.0, 1e-3)]
    assert torch.equal(*(m.make_mll()().detach() for m in models))
    assert torch.equal(*(m.get_buffer("_now_T") for m in models))
