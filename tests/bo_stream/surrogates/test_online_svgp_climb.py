"""OnlineSVGP: how it climbs and learns, and what it refuses."""

import copy
import warnings

import gpytorch
import pytest
import torch
from botorch.models.transforms import Normalize
from gpytorch.constraints import Interval
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import ZeroMean

from bo_stream import OnlineSVGP
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.mathematics.inducing.state import dense
from bo_stream.mathematics.posterior.factor import frozen_kernel
from bo_stream.mathematics.variational.posterior import VariationalProcess
from bo_stream.mathematics.variational.state import empty_state, grow
from tests.bo_stream.mathematics.inducing.sgpr_cases import data
from tests.bo_stream.surrogates.svgp_cases import (
    JITTER,
    likelihood,
    random_state,
    se_kernel,
    stream,
)
from tests.raw import RAW


def buffers(model):
    return {k: v.clone() for k, v in model.state_dict().items() if torch.is_tensor(v)}


# -- the climb ------------------------------------------------------------------------------------


class Reference(gpytorch.models.ApproximateGP):
    """The same law on gpytorch's variational classes."""

    def __init__(self, model):
        state = model.state.now
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
    network = model._copied_network(model.state.now)
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
    assert float(model.state.memory.step) == 50
    forgetful = copy.deepcopy(model)
    forgetful.state.memory.step.zero_()
    for m in (model, forgetful):
        m.observe(X[:1], Y[:1])
    assert float(model.state.memory.step) == 60
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
    now = model.state.now
    assert torch.equal(before["stream.state_now_Z"], now.Z)
    assert torch.equal(before["stream.state_now_T"], now.T)
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
    learned = ("covar", "likelihood", "stream.fits")
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
    assert torch.equal(*(m.state.now.T for m in models))
