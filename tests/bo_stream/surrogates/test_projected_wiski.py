"""A grid behind a learned projection: what it climbs, when it moves, and how it is saved."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor, nn

from bo_stream import WISKI, ProjectedWISKI, load
from bo_stream.errors import InputError, StateError
from bo_stream.mathematics.grid import Grid, matrix_of
from bo_stream.mathematics.projected import gradient_step, moved, predictive
from bo_stream.testing.base import assert_same_posterior, assert_same_state, close, snapshot
from tests.bo_stream.mathematics.grid_cases import dense_interpolation
from tests.bo_stream.surrogates.projected_cases import ALONG, BOUNDS, D, build, data, frozen_rows
from tests.calls import failing
from tests.raw import RAW


def own_module() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(D, 4), nn.Tanh(), nn.Linear(4, 2), nn.Sigmoid())


def model_nodes(model: Any) -> Grid:
    """The nodes without the projection."""
    grid = model.grid
    return Grid(grid.origin, grid.step, grid.sizes, grid.folded)


def unit_nodes(model: Any) -> Tensor:
    return torch.cartesian_prod(*[torch.linspace(0.0, 1.0, g).double() for g in model.grid.sizes])


def dist(model: Any, rows: Tensor) -> Tensor:
    """The covariance that past rows and new ones have, noise included, by dense matrices."""
    K = model.covar_module(unit_nodes(model)).to_dense().detach()
    return rows @ K @ rows.mT + model.likelihood.noise.detach() * torch.eye(len(rows)).double()


def dense_evidence(model: Any, rows: Tensor, y: Tensor) -> Tensor:
    mean = model.mean_module.constant.detach().expand(len(y))
    density = torch.distributions.MultivariateNormal(mean, dist(model, rows))
    return density.log_prob(y)


# -- what is climbed -----------------------------------------------------------------------------


@pytest.mark.parametrize("projection", [2, own_module()])
def test_j_is_the_gain_in_evidence(projection: int | nn.Module) -> None:
    """J(phi) = MLL_t - MLL_{t-1}, past rows under the phi of then; and its gradient (MATHS 2.5)."""
    model = build(12, projection=projection, opening=12)
    X, Y = data(12)[0], data(12)[1].squeeze(-1)
    x, y = data(3, seed=1)[0], data(3, seed=1)[1].squeeze(-1)
    past, noise = frozen_rows(model, X), model.likelihood.noise.detach().expand(1, 3)
    grid, process = model.grid, model.process()
    phi = grid.phi + 0.1 * torch.randn(grid.phi.shape, dtype=torch.float64)

    def J(at: Tensor) -> Tensor:
        new = predictive(moved(process, replace(grid, phi=at)), x, noise)
        return new.log_prob(y.unsqueeze(0)).sum()

    def oracle(at: Tensor) -> Tensor:
        new = dense_interpolation(replace(grid, phi=at).interpolate(x))
        rows, targets = torch.cat([past, new]), torch.cat([Y, y])
        return dense_evidence(model, rows, targets) - dense_evidence(model, past, Y)

    close(J(phi), oracle(phi), 1e-6)
    free = phi.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(J(free), free)
    (slow,) = torch.autograd.grad(oracle(free), free)
    close(gradient, slow, 1e-6)
    assert torch.autograd.gradcheck(J, free, atol=1e-6)


def test_the_gradient_of_the_paper_as_corrected() -> None:
    """dJ/dw = (e/S) al + (e^2/S - 1) (s2/S) v for one point, against autograd through phi."""
    model = build(12, projection=2, opening=12)
    x, y, noise = data(1, seed=1)[0], data(1, seed=1)[1], model.likelihood.noise.detach()
    process, grid = model.process(), model.grid
    nodes = replace(process.basis.features, grid=model_nodes(model))
    at_nodes = replace(process, basis=replace(process.basis, features=nodes)).at(unit_nodes(model))
    al, Su = at_nodes.mean[0], at_nodes.covariance(at_nodes)[0]  # s2 M; al with the constant mean
    free = grid.phi.clone().requires_grad_()
    w = dense_interpolation(replace(grid, phi=free).interpolate(x)).squeeze(0)
    e, v = y[0, 0] - w @ al, Su @ w
    S = noise + w @ v
    dJ_dw = (e / S) * al + (e.square() / S - 1.0) * v / S
    (expected,) = torch.autograd.grad(w, free, dJ_dw.detach())
    new = predictive(moved(process, replace(grid, phi=free)), x, noise.expand(1, 1))
    value = new.log_prob(y.mT).sum()
    close(torch.autograd.grad(value, free)[0], expected, 1e-6)


def test_an_evidence_under_a_moving_projection() -> None:
    """Past rows stay where they were: the evidence is that of the rows as they were added."""
    X, Y, _ = data(8)
    model = build(8, opening=8, rate=0.05)
    rows, targets = [frozen_rows(model, X)], [Y]
    for seed in (1, 2):
        before, (X, Y, _) = model.grid.phi, data(5 + seed, seed)
        model.observe(X, Y)
        assert not torch.equal(model.grid.phi, before)
        rows.append(frozen_rows(model, X))
        targets.append(Y)
    expected = dense_evidence(model, torch.cat(rows), torch.cat(targets).squeeze(-1))
    close(model.log_evidence(), expected, 1e-6)
    forward = model.posterior(X).mean
    model.refresh()
    close(model.posterior(X).mean, forward)


@pytest.mark.parametrize("mode", ["learned", "known", "scaled"])
def test_an_observe_climbs_before_it_adds(mode: str) -> None:
    model = build(12, mode, outputs=2, opening=12, rate=0.05)
    X, Y, Yvar = data(6, seed=1, outputs=2)
    Yvar = None if mode == "learned" else Yvar
    process, grid = model.process(), model.grid
    before = model.log_predictive(X, Y, Yvar)
    R = torch.ones(1, 6).double() if Yvar is None else Yvar.mT
    noise = (model._noise_scale().detach().unsqueeze(-1) * R).expand(2, 6)
    close(predictive(process, X, noise).log_prob(Y.mT).sum(), before, 1e-10)
    phi = gradient_step(process, X, Y.mT, noise, 0.05, 12.0)
    length = float((phi - grid.phi).norm())
    assert 0.0 < length <= 0.05 * float(grid.phi.norm()) * (1.0 + 1e-12)
    after = predictive(moved(process, replace(grid, phi=phi)), X, noise)
    assert after.log_prob(Y.mT).sum() > before
    model.observe(X, Y, Yvar)
    assert torch.equal(model.grid.phi, phi)


def test_a_step_is_the_shorter_the_more_has_been_seen() -> None:
    """Fisher scoring along the gradient, with the information of the new points for each seen."""
    model, (X, Y, _) = build(12), data(3, seed=1)
    process, grid, noise = model.process(), model.grid, model.likelihood.noise.detach().expand(1, 3)

    def at(phi: Tensor) -> Any:
        return moved(process, replace(grid, phi=phi))

    free = grid.phi.clone().requires_grad_()
    (g,) = torch.autograd.grad(predictive(at(free), X, noise).log_prob(Y.mT).sum(), free)
    along = torch.autograd.functional.jacobian(lambda phi: at(phi).at(X).mean[0], grid.phi) @ g
    C = process.at(X).covariance(process.at(X))[0] + torch.diag_embed(noise[0])
    information = along @ torch.linalg.solve(C, along)
    for seen in (30.0, 3e4):
        step = gradient_step(process, X, Y.mT, noise, 1.0, seen) - grid.phi
        close(step, g * (g @ g) / (information * (1.0 + seen / 3.0)), 1e-6)
        assert float(step.norm()) > 1e-6


# -- when it moves -------------------------------------------------------------------------------


def test_it_stays_while_all_points_are_held_and_is_learned_by_a_fit() -> None:
    model = build(40, projection=1, grid_size=20, opening=64)
    first, (X, Y, _) = model.grid.phi, data(300, seed=1)
    model.observe(X[:20], Y[:20])
    assert torch.equal(model.grid.phi, first)
    model.fit()
    learned = model.grid.phi / model.grid.phi.norm()
    assert abs(float(learned @ ALONG / ALONG.norm())) > 0.99
    again = ProjectedWISKI(
        *(torch.cat(pair) for pair in zip(data(40)[:2], (X[:20], Y[:20]), strict=True)),
        **{**RAW, "bounds": BOUNDS, "projection": 1, "grid_size": 20, "opening": 64},
    )
    again.load_state_dict(model.state_dict())
    assert_same_posterior(model, again, X[:4])
    close(model.log_evidence(), again.log_evidence())
    rows = frozen_rows(model, torch.cat([data(40)[0], X[:20]]))
    close(
        matrix_of(model.state.A[0], model.grid.sizes), rows.mT @ rows, 1e-12
    )  # all on the grid anew
    kept = model.grid.phi
    model.fit()  # not due: no more data than the last time
    assert torch.equal(model.grid.phi, kept)
    assert float((model.posterior(X).mean - Y).square().mean().sqrt()) < 0.2


def test_a_first_batch_that_is_not_held_teaches_the_projection() -> None:
    model = build(120, projection=1, grid_size=20, opening=10)
    phi = model.grid.phi / model.grid.phi.norm()
    assert abs(float(phi @ ALONG / ALONG.norm())) > 0.95


def test_a_rate_of_nothing_keeps_it() -> None:
    model = build(12, opening=12, rate=0.0)
    phi = model.grid.phi
    model.observe(*data(4, seed=1)[:2])
    assert torch.equal(model.grid.phi, phi)
    other = build(12, opening=12, rate=0.0)
    for x, y in zip(*data(4, seed=1)[:2], strict=True):
        other.observe(x.unsqueeze(0), y.unsqueeze(0))
    assert_same_posterior(model, other, data(3)[0])


def test_as_many_functions_as_inputs_begin_with_the_inputs_themselves() -> None:
    X, Y, _ = data(14)
    kw = {"bounds": BOUNDS[:, :2], "grid_size": (9, 8), **RAW}
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2))
    mine = ProjectedWISKI(X[:, :2], Y, covar_module=kernel, **kw)
    kernel.base_kernel.lengthscale = torch.tensor([0.3, 0.4]).double()
    plain_kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2))
    plain = WISKI(X[:, :2], Y, covar_module=plain_kernel, **kw)
    plain_kernel.base_kernel.lengthscale = 3.0 * kernel.base_kernel.lengthscale
    assert_same_posterior(mine, plain, X[:5, :2])
    close(mine.log_evidence(), plain.log_evidence(), 1e-10)


def test_integrals_follow_the_projection() -> None:
    """What was kept of test points under another projection is not used again."""
    model, T = build(12, opening=12, rate=0.5), data(30, seed=4)[0]
    weights = torch.full((30,), 1.0 / 30.0).double()
    model.process().integral(T, weights)
    for seed in (1, 2):
        model.observe(*data(3, seed)[:2])
    process = model.process()
    at, each = process.at(data(4, seed=5)[0]), process.at(T)
    covariance = at.covariance(each)
    integral = process.integral(T, weights)
    close(integral.gram(at, at), covariance @ (weights * covariance).mT, 1e-9)


# -- all or nothing, saved and merged ------------------------------------------------------------


def test_an_observe_that_fails_after_the_step_leaves_all_as_it_was() -> None:
    model = build(12, opening=12, rate=0.05)
    before, Z = snapshot(model), data(3)[0]
    mean = model.posterior(Z).mean
    with failing(WISKI._absorb, ZeroDivisionError()), pytest.raises(ZeroDivisionError):
        model.observe(*data(4, seed=1)[:2])
    assert_same_state(before, snapshot(model))
    assert torch.equal(model.posterior(Z).mean, mean)


def test_a_fit_that_fails_after_learning_leaves_all_as_it_was() -> None:
    model = build(12)
    before = snapshot(model)
    with failing(ProjectedWISKI._covering, ZeroDivisionError()), pytest.raises(ZeroDivisionError):
        model.fit(3)
    assert_same_state(before, snapshot(model))


def test_a_checkpoint_holds_the_projection(tmp_path: Any) -> None:
    model = build(12, opening=12, rate=0.05, projection=3, grid_size=5)
    model.observe(*data(4, seed=1)[:2])
    model.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    assert again.rate == 0.05 and torch.equal(again.grid.phi, model.grid.phi)
    assert_same_posterior(model, again, data(3)[0])
    for each in (model, again):
        each.observe(*data(4, seed=2)[:2])
    assert torch.equal(again.grid.phi, model.grid.phi)


def test_a_module_of_ones_own_is_handed_in(tmp_path: Any) -> None:
    model = build(12, opening=12, rate=0.05, projection=own_module())
    model.observe(*data(4, seed=1)[:2])
    model.save(tmp_path / "model.pt")
    with pytest.raises(InputError, match="projection of class .*Sequential"):
        load(tmp_path / "model.pt")
    for each in (again := load(tmp_path / "model.pt", projection=own_module()), model):
        each.observe(*data(4, seed=2)[:2])
    assert torch.equal(again.grid.phi, model.grid.phi)
    again = build(0, projection=own_module(), opening=12)
    again.load_state_dict(model.state_dict())
    assert_same_posterior(model, again, data(3)[0])
    with pytest.raises(StateError, match="projection"):
        build(0, projection=1, grid_size=9).load_state_dict(model.state_dict())


def test_streams_merge_under_one_projection() -> None:
    first, second, all_of = build(6), build(8, seed=1), build(6)
    first.merge(second)
    assert_same_posterior(first, all_of.observe(*data(8, seed=1)[:2]), data(3)[0])
    moved = build(12, opening=12, rate=0.05).observe(*data(4, seed=1)[:2])
    other = build(12, opening=12, rate=0.05).observe(*data(4, seed=2)[:2])
    before = snapshot(moved)
    with pytest.raises(StateError):
        moved.merge(other)
    assert_same_state(before, snapshot(moved))


def test_refining_keeps_the_projection() -> None:
    model = build(12)
    phi = model.grid.phi
    model.refine((12, 11))
    assert model.grid.sizes == (12, 11) and torch.equal(model.grid.phi, phi)
    assert_same_posterior(model, build(12, grid_size=(12, 11)), data(3)[0])


def test_a_grid_is_too_coarse_for_the_projected_points() -> None:
    model, (X, Y, _) = build(40), data(40)
    kw = {"bounds": torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double(), "grid_size": (9, 8), **RAW}
    plain = WISKI(model.projected(X), Y, **kw)
    for each in (model, plain):
        each.covar_module.base_kernel.lengthscale = 0.05
        each.covar_module.outputscale = 1.0
        each.likelihood.noise = 0.01
        each.mean_module.constant = torch.tensor(0.0)
    assert "nats higher" in plain.grid_too_coarse
    assert model.grid_too_coarse == plain.grid_too_coarse
