"""OnlineSGPR as a surrogate: against oracles, conditioning, saving, and what it refuses."""

import copy

import gpytorch
import mpmath as mp
import pytest
import torch
from botorch.models.transforms import Normalize, Standardize

from bo_stream import OnlineSGPR
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.growth import VIPS, FixedGrid, FixedSize, Prescribed, Selection
from bo_stream.surrogates.exact import ExactGP
from tests.bo_stream.mathematics.sgpr_cases import CASES, data, numbers, scalar, se_kernel
from tests.bo_stream.mathematics.sgpr_oracle import SE, Oracle
from tests.bo_stream.mathematics.sgpr_streams import (
    NOTHING,
    assert_close,
    likelihood,
    stream,
)
from tests.raw import RAW


class EveryPoint:
    def select(self, state, batch, kernel):
        return Selection(torch.arange(state.size), torch.arange(batch.size))


def assign(model, os, ls, mean):
    model.covar_module.outputscale = torch.tensor(os, dtype=torch.float64)
    model.covar_module.base_kernel.lengthscale = torch.tensor([ls], dtype=torch.float64)
    model.mean_module.constant = torch.tensor(mean, dtype=torch.float64)


@pytest.mark.parametrize("spread", [0.0, 1.0], ids=["homoscedastic", "heteroscedastic"])
@pytest.mark.parametrize("name", [n for n in CASES if n != "from nothing"])
def test_golden(name, spread):
    """Posterior and bounds after each batch to 1e-6 (1 + |value|), the jitter of 1e-8 included."""
    mp.mp.dps = 60
    pool, Xs = data(8, d=2, seed=5).X, data(6, d=2, seed=6).X
    sets = [pool[list(rows)] for _, _, rows in CASES[name]]
    known = spread > 0.0
    (os, ls), m, _ = CASES[name][0]
    model = OnlineSGPR(
        *NOTHING,
        NOTHING[1] if known else None,
        growth=Prescribed(sets),
        covar_module=se_kernel(os, ls),
        likelihood=None if known else likelihood(),
        **RAW,
    ).double()
    oracle = Oracle()
    for t, ((os, ls), m, rows) in enumerate(CASES[name]):
        batch = data(7, d=2, seed=t, spread=spread)
        Yvar = batch.noise.unsqueeze(-1) if known else None
        assign(model, os, ls, m)
        model.observe(batch.X, batch.y.unsqueeze(-1), Yvar, refit=False)
        d, Z = numbers(batch.noise), numbers(pool[list(rows)])
        oracle.observe(numbers(batch.X), numbers(batch.y), d, Z, SE(os, ls), m)
        assert_close(model.last_update.lower_bound, scalar(float(oracle.bounds[-1])))
        assert_close(model.bound_sum, scalar(float(sum(oracle.bounds))))
        mean, cov = oracle.predict(numbers(Xs))
        posterior = model.posterior(Xs)
        assert_close(posterior.mean.squeeze(-1), mean)
        assert_close(posterior.distribution.covariance_matrix, cov)
        assert len(model.inducing_points) == len(rows)


def test_changed_hyperparameters_need_no_batch():
    """Assignment alone re-expresses the posterior: the likelihood of the values stays."""
    mp.mp.dps = 60
    model, X, Y, _ = stream(20, FixedGrid(data(5, d=2, seed=5).X), known=True)
    oracle = Oracle()
    batch = data(20, d=2, spread=0.5)
    Z = numbers(data(5, d=2, seed=5).X)
    d = numbers(batch.noise)
    oracle.observe(numbers(X), numbers(Y[:, 0]), d, Z, SE(1.3, [0.4, 0.4]), 0.0)
    assign(model, 0.9, [0.6, 0.3], 0.5)
    oracle.observe([], [], [], Z, SE(0.9, [0.6, 0.3]), 0.5)
    Xs = data(6, d=2, seed=6).X
    mean, cov = oracle.predict(numbers(Xs))
    assert_close(model.posterior(Xs).mean.squeeze(-1), mean)
    assert_close(model.posterior(Xs).distribution.covariance_matrix, cov)
    assign(model, 1.3, [0.4, 0.4], 0.0)
    again = stream(20, FixedGrid(data(5, d=2, seed=5).X), known=True)[0]
    assert_close(model.posterior(Xs).mean, again.posterior(Xs).mean, 1e-12)


def test_every_point_is_the_exact_gp():
    model, X, Y, Yvar = stream(20, EveryPoint(), known=True)
    more = data(15, d=2, seed=3, spread=0.5)
    model.observe(more.X, more.y.unsqueeze(-1), more.noise.unsqueeze(-1), refit=False)
    exact = ExactGP(X, Y, Yvar, covar_module=se_kernel(1.3, (0.4, 0.4)), **RAW)
    exact.observe(more.X, more.y.unsqueeze(-1), more.noise.unsqueeze(-1))
    Xs = data(20, d=2, seed=6).X
    assert_close(model.posterior(Xs).mean, exact.posterior(Xs).mean, 1e-4)
    assert_close(model.posterior(Xs).variance, exact.posterior(Xs).variance, 1e-4)
    assert_close(model.bound_sum, exact.log_evidence().detach(), 1e-4)


@pytest.mark.slow
def test_ten_thousand_one_point_updates_do_not_drift():
    whole = data(10_000, d=2, spread=0.5)
    Z, kernel = data(20, d=2, seed=5).X, se_kernel(1.3, (0.4, 0.4))
    Y, Yvar = whole.y.unsqueeze(-1), whole.noise.unsqueeze(-1)
    at_once = OnlineSGPR(whole.X, Y, Yvar, covar_module=kernel, growth=FixedGrid(Z), **RAW)
    model = OnlineSGPR(
        whole.X[:0],
        Y[:0],
        Yvar[:0],
        covar_module=se_kernel(1.3, (0.4, 0.4)),
        growth=FixedGrid(Z),
        **RAW,
    )
    for i in range(10_000):
        model.observe(whole.X[i : i + 1], Y[i : i + 1], Yvar[i : i + 1], refit=False)
    Xs = data(20, d=2, seed=9).X
    assert_close(model.posterior(Xs).mean, at_once.posterior(Xs).mean, 1e-9)
    assert_close(model.posterior(Xs).variance, at_once.posterior(Xs).variance, 1e-9)
    assert_close(model.bound_sum, at_once.bound_sum, 1e-9)


def test_more_points_than_the_cap_are_not_kept():
    model, *_ = stream(40, VIPS(1e-4, max_points=7))
    assert len(model.inducing_points) == 7
    more = data(40, d=2, seed=3)
    model.observe(more.X, more.y.unsqueeze(-1), refit=False)
    assert len(model.inducing_points) == 7
    assert model.last_update.kept.tolist() == list(range(7))


@pytest.mark.parametrize(
    "kernel",
    [
        gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2)),
        gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        + gpytorch.kernels.LinearKernel(),
        gpytorch.kernels.RBFKernel(active_dims=[0]) * gpytorch.kernels.PeriodicKernel(),
    ],
    ids=["matern", "non-stationary", "product"],
)
@pytest.mark.parametrize("growth", [VIPS(), pytest.param(FixedSize(10), marks=pytest.mark.slow)])
def test_any_kernel(kernel, growth):
    model, *_ = stream(30, growth, covar_module=copy.deepcopy(kernel))
    more = data(30, d=2, seed=3)
    model.observe(more.X, more.y.unsqueeze(-1))
    last = model.last_update
    assert last.lower_bound <= last.optimal_bound + 1e-6
    assert model.posterior(more.X).variance.min() > 0.0


def test_what_it_refuses():
    X, Y = data(5, d=2).X, torch.randn(5, 2).double()
    with pytest.raises(UnsupportedError, match="ModelListGP"):
        OnlineSGPR(X, Y, **RAW)
    model = OnlineSGPR(X, Y[:, :1], **RAW)
    with pytest.raises(UnsupportedError, match="bound_sum"):
        model.log_evidence()
    for growth in (VIPS, "vip", 0.035):
        with pytest.raises(InputError, match="growth"):
            OnlineSGPR(X, Y[:, :1], growth=growth, **RAW)
    for kw in ({"jitter": 0.0}, {"jitter": 1.0}):
        with pytest.raises(InputError):
            OnlineSGPR(X, Y[:, :1], **{**RAW, **kw})


def test_a_failing_policy_leaves_the_surrogate_alone():
    model, *_ = stream(10, Prescribed([data(5, d=2, seed=5).X]))
    before = {k: v.clone() for k, v in model.state_dict().items() if k != "_extra_state"}
    more = data(5, d=2, seed=3)
    with pytest.raises(InputError, match="batch 1"):
        model.observe(more.X, more.y.unsqueeze(-1))
    assert all(torch.equal(model.state_dict()[k], v) for k, v in before.items())


def test_raw_units():
    """Transforms change units only."""
    batch = data(30, d=2)
    X, Y = 5.0 + 10.0 * batch.X, 3.0 + 4.0 * batch.y.unsqueeze(-1)
    transforms = {
        "input_transform": Normalize(2, bounds=torch.tensor([[5.0, 5.0], [15.0, 15.0]])),
        "outcome_transform": Standardize(1),
    }
    model = OnlineSGPR(X, Y, **{**RAW, **transforms})
    rows = {tuple(x) for x in X.round(decimals=9).tolist()}
    assert all(tuple(z) in rows for z in model.inducing_points.round(decimals=9).tolist())
    posterior = model.posterior(X)
    assert float((posterior.mean - Y).abs().mean()) < 1.0
    chosen = X[model.last_update.entered]
    torch.testing.assert_close(model.inducing_points, chosen)


def test_a_state_of_another_jitter_is_refused():
    model, *_ = stream(25, likelihood=None, covar_module=None)
    with pytest.raises(StateError):
        OnlineSGPR(*NOTHING, jitter=1e-6, **RAW).load_state_dict(model.state_dict())
