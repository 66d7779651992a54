"""SVDGP as a surrogate: against other families, refits, conditioning, streams, what it refuses."""

from dataclasses import replace

import gpytorch
import pytest
import torch
from botorch.fit import fit_gpytorch_mll

from bo_stream import SVDGP, ExactGP
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.growth import VIPS, Covering, FixedGrid
from bo_stream.mathematics.inducing import DecoupledState, dense
from bo_stream.testing.base import close
from tests.bo_stream.mathematics.decoupled_cases import rows, stream
from tests.calls import calls_of
from tests.raw import RAW

Z = rows(12, seed=8)[0]
Xs = rows(15, seed=9)[0]


def data(n, d=6, seed=0, noise=0.1):
    """A smooth function of several inputs, noisy and clean."""
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=g, dtype=torch.float64)
    clean = (4.0 * X).sin().sum(-1, keepdim=True)
    return X, clean + noise * torch.randn(n, 1, generator=g, dtype=torch.float64), clean


def rmse(model, X, clean):
    with torch.no_grad():
        return float((model.posterior(X).mean - clean).square().mean().sqrt())


def test_six_inputs_as_well_as_the_exact_gp():
    X, Y, _ = data(400)
    T, _, clean = data(300, seed=1)
    model = SVDGP(X[:300], Y[:300], covar_basis=60, input_transform=None)
    model.fit(20)
    model.observe(X[300:], Y[300:])
    modules = {name: getattr(model, name) for name in ("covar_module", "mean_module", "likelihood")}
    scale = model.outcome_transform
    exact = ExactGP(X, Y, **modules, input_transform=None, outcome_transform=scale)
    assert abs(rmse(model, T, clean) / rmse(exact, T, clean) - 1.0) < 0.01


def test_its_evidence_is_the_exact_gps():
    X, y, _ = rows(60)
    model = stream(X, y, None, (20,), window=40, slack=7)
    few = model.state.sample
    assert len(few) == 40  # no more than the window holds
    whole = stream(X, y)
    modules = {name: getattr(whole, name) for name in ("covar_module", "mean_module", "likelihood")}
    exact = ExactGP(X, y.unsqueeze(-1), **modules, **RAW)
    close(whole.log_evidence().detach(), exact.log_evidence().detach(), 1e-9)


def test_noise_is_not_learned_from_the_rows_that_stay():
    """They stay because of their residuals."""
    X, Y, _ = data(900, d=2)
    model = SVDGP(X[:0], Y[:0], window=100, slack=10, covar_basis=20, **RAW)
    for part in torch.arange(900).split(30):
        model.observe(X[part], Y[part])
    model.fit(30)
    assert 0.007 < model.likelihood.noise.item() < 0.014
    rank = torch.rand(model.num_in_window, generator=torch.Generator().manual_seed(0)).double()
    model._replace(state=replace(model.state, sample=model.state.window, rank=rank))
    model.fit(30)
    assert model.likelihood.noise.item() > 0.02


def test_a_fit_rebuilds_the_state():
    """Under what it learned: as if all had been seen under that."""
    X, y, _ = rows(80)
    model = stream(X, y, None, (30, 50), covar_module=None, growth=Covering(15))
    before = model.inducing_points
    model.fit()
    assert not torch.equal(model.inducing_points, before)
    fresh = stream(X, y, None, (), covar_module=model.covar_module, growth=Covering(15))
    fresh.load_state_dict({**fresh.state_dict(), **dict(model.named_parameters())})
    fresh.fit(1)
    assert torch.equal(model.inducing_points, fresh.inducing_points)
    close(model.posterior(Xs).mean, fresh.posterior(Xs).mean, 1e-9)
    close(model.posterior(Xs).variance, fresh.posterior(Xs).variance, 1e-9)


def test_a_fit_by_botorch_rebuilds_the_state_too():
    X, y, _ = rows(40)
    model = stream(X, y, covar_module=None)
    fit_gpytorch_mll(model.make_mll())
    assert torch.equal(model.state.made_with, model._frozen_prior().numbers)


def test_what_was_folded_is_carried_over():
    """Under other hyperparameters the folded rows' likelihood of the values at Z stays."""
    X, y, _ = rows(90)
    model = stream(X, y, None, (30, 60), Z, window=40, slack=7)
    past = model.state.points
    model.covar_module.outputscale = 0.8
    model.covar_module.base_kernel.lengthscale = torch.tensor([[0.5, 0.6]])
    model.observe(Xs[:1], Xs[:1, :1])
    now = model.state.points
    inverses = [torch.linalg.inv(s.L) for s in (past, now)]
    precisions = [a.mT @ s.G @ a for a, s in zip(inverses, (past, now), strict=True)]
    linear = [a.mT @ s.c for a, s in zip(inverses, (past, now), strict=True)]
    for was, carried in (precisions, linear):
        close(carried, was, 1e-4 * float(was.abs().max()))
    assert not torch.equal(past.L, now.L)


def test_a_large_batch_passes_through_the_window_in_parts():
    X, y, _ = rows(300)
    with calls_of(DecoupledState._joined) as joined:
        model = stream(X, y, None, (), Z, window=40, slack=8)
    parts = [len(call["rows"]) for call in joined]
    assert parts == [48, 20, 20, *[20] * 10, 12]
    assert sum(parts) == 300 and model.num_observed == 300
    assert 40 <= model.num_in_window <= 48


def test_inducing_points_follow_a_sorted_stream():
    """Where the stream began there are fewer once it has gone on, and the mean holds everywhere."""
    g = torch.Generator().manual_seed(0)
    X = torch.rand(600, 2, generator=g, dtype=torch.float64)
    X = X[X[:, 0].argsort()] * torch.tensor([6.0, 1.0]).double()
    y = torch.sin(3.0 * X).sum(-1) + 0.1 * torch.randn(600, generator=g, dtype=torch.float64)
    model = stream(X, y, None, range(20, 600, 20), window=60, slack=20, covar_basis=50)
    thirds = (model.inducing_points[:, 0] / 2.0).long().bincount(minlength=3)
    assert int(thirds.min()) >= 8
    clean = torch.sin(3.0 * X).sum(-1, keepdim=True)
    assert rmse(model, X, clean) < 0.15
    stopped = stream(
        X, y, None, range(20, 600, 20), window=60, slack=20, growth=VIPS(1e-6, max_points=50)
    )
    assert rmse(stopped, X, clean) > 2.0 * rmse(model, X, clean)


def test_what_it_refuses():
    X, Y = rows(5)[0], torch.randn(5, 2).double()
    with pytest.raises(UnsupportedError, match="ModelListGP"):
        SVDGP(X, Y, **RAW)
    for kw in (
        {"window": 1},
        {"covar_basis": 0},
        {"slack": -1},
        {"slack": 2.5},
        {"growth": Covering},
        {"growth": 512},
    ):
        with pytest.raises(InputError):
            SVDGP(X, Y[:, :1], **{**RAW, **kw})


@pytest.mark.slow
def test_five_thousand_updates_leave_the_mean_where_a_fresh_solve_has_it():
    X, Y, _ = data(5_200, d=3)
    model = SVDGP(X[:200], Y[:200], window=300, slack=16, covar_basis=60, input_transform=None)
    model.fit()
    for i in range(200, 5_200):
        model.observe(X[i : i + 1], Y[i : i + 1])
    state, prior = model.state, model._frozen_prior()
    past, own, noise = state.points, state.window, prior.s2 * state.window.r
    eye = torch.eye(past.size, dtype=torch.float64)
    A = torch.linalg.solve(past.L, dense(prior.kernel, past.Z, own.X))
    B_inv = torch.linalg.inv(eye + past.G)
    C = dense(prior.kernel, own.X) - A.mT @ A + A.mT @ B_inv @ A + torch.diag(noise)
    w = torch.linalg.solve(C, own.y - prior.mean - A.mT @ B_inv @ past.c)
    T = data(500, d=3, seed=1)[0]
    A_t = torch.linalg.solve(past.L, dense(prior.kernel, past.Z, T))
    h = B_inv @ (past.c + A @ w) - A @ w
    fresh = prior.mean + A_t.mT @ h + dense(prior.kernel, T, own.X) @ w
    mean = model.process().at(T).mean[0]
    close(mean, fresh, 1e-6)
    root = A / noise.sqrt()
    close(state.G, past.G + root @ root.mT, 1e-9 * float(state.G.abs().max()))


@pytest.mark.parametrize("growth", [Covering(10), FixedGrid(Z)])
def test_any_kernel(growth):
    base = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=2) + gpytorch.kernels.LinearKernel()
    X, y, _ = rows(60)
    model = stream(X, y, None, (30,), covar_module=base.double(), growth=growth, window=40, slack=7)
    assert bool((model.posterior(Xs).variance > 0.0).all())
    assert rmse(model, X, y.unsqueeze(-1)) < 0.5


def test_variances_beside_the_exact_ones() -> None:
    """Larger far from the inducing points, smaller near them, and by no more than a bound."""
    X, Y, _ = data(80, d=2)
    T = torch.cat([data(100, d=2, seed=1)[0], X])
    model = SVDGP(X, Y, covar_basis=15, input_transform=None, outcome_transform=None)
    model.likelihood.noise = 0.1
    k, points = model.covar_module, model.inducing_points
    noisy = dense(k, X) + 0.1 * torch.eye(80, dtype=torch.double)
    exact = dense(k, T) - dense(k, T, X) @ torch.linalg.solve(noisy, dense(k, X, T))
    ratio = exact.diagonal().detach() / model.posterior(T).variance.squeeze(-1).detach()
    told = dense(k, X, points) @ torch.linalg.solve(dense(k, points), dense(k, points, X))
    residual = dense(k, X) - told
    rho = float(torch.linalg.eigvalsh(residual.detach()).max()) / 0.1
    assert float(ratio.min()) < 0.95 and 1.05 < float(ratio.max()) <= 1.0 + rho + rho**0.5
