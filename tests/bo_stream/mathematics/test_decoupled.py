"""The posterior of a decoupled stream against dense algebra (MATHS 6.1, 6.8)."""

import pytest
import torch
from botorch.models.transforms.outcome import Standardize

from bo_stream.mathematics.inducing import dense
from bo_stream.testing.base import close
from tests.bo_stream.mathematics.decoupled_cases import (
    MEAN,
    NOISE,
    exact,
    kernel,
    rows,
    sgpr,
    stream,
)

Xs = rows(15, seed=9)[0]
Z = rows(12, seed=8)[0]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("cuts", [(), (1, 2, 40), (30, 59)])
def test_the_mean_is_the_exact_gps_while_nothing_is_folded(known, cuts):
    X, y, D = rows(60)
    D = D if known else torch.full_like(D, NOISE)
    model = stream(X, y, D if known else None, cuts, Z, tolerance=1e-9)
    k = kernel()
    mean, _ = exact(dense(k, Xs, X), dense(k, Xs), dense(k, X), y - MEAN, D)
    close(model.posterior(Xs).mean.squeeze(-1), MEAN + mean, 1e-8)


def test_at_a_looser_tolerance_it_is_within_a_fraction_of_its_deviation():
    """More rows than are factorised."""
    X, y, _ = rows(300, d=3)
    model = stream(X, y, None, range(50, 300, 10), rows(40, d=3, seed=8)[0], tolerance=0.01)
    k, points = kernel(3), rows(100, d=3, seed=9)[0]
    D = torch.full_like(y, NOISE)
    mean, cov = exact(dense(k, points, X), dense(k, points), dense(k, X), y - MEAN, D)
    gap = (model.posterior(points).mean.squeeze(-1) - MEAN - mean).abs()
    assert 0.0 < float((gap / cov.diagonal().sqrt()).max()) < 0.03


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("cuts", [(), (1, 2, 40), tuple(range(1, 120))])
def test_the_covariance_is_that_of_sgpr_on_all_data(known, cuts):
    """Whatever was folded, in any chunks."""
    X, y, D = rows(120)
    D = D if known else torch.full_like(D, NOISE)
    model = stream(X, y, D if known else None, cuts, Z, window=40, slack=7)
    assert model.num_in_window in range(40, 48)
    nugget = model.state.points.nugget
    cov = sgpr(kernel(), X, y - MEAN, D, Z, nugget, Xs, Xs)[1]
    close(model.posterior(Xs).distribution.covariance_matrix, cov, 1e-10)


def conditioned(model, X, e, D):
    """Mean at Xs, less the prior's: SGPR on what was folded, given the window by dense algebra."""
    held = {tuple(x) for x in model.state.window.rows.X.tolist()}
    stays = torch.tensor([tuple(x) in held for x in X.tolist()])
    assert int(stays.sum()) == model.num_in_window < 50
    old = X[~stays], e[~stays], D[~stays]
    dist = lambda A, B: sgpr(kernel(), *old, Z, model.state.points.nugget, A, B)  # noqa: E731
    R = X[stays]
    mean, cross = dist(Xs, R)
    gap, C = e[stays] - dist(R, R)[0], dist(R, R)[1] + torch.diag(D[stays])
    return mean + cross @ torch.linalg.solve(C, gap)


@pytest.mark.parametrize("known", [False, True])
def test_the_mean_is_sgprs_of_what_was_folded_given_the_window(known):
    X, y, D = rows(120)
    D = D if known else torch.full_like(D, NOISE)
    cuts = range(9, 120, 9)
    model = stream(X, y, D if known else None, cuts, Z, window=40, slack=7, tolerance=1e-9)
    mean = MEAN + conditioned(model, X, y - MEAN, D)
    close(model.posterior(Xs).mean.squeeze(-1), mean, 1e-9)


@pytest.mark.parametrize("known", [False, True])
def test_folded_rows_follow_their_units(known):
    """What was folded in other units counts as if it had come in those of now."""
    X, y, D = rows(120)
    unit = Standardize(1).eval()
    kw = {"window": 40, "slack": 7, "tolerance": 1e-9, "outcome_transform": unit}
    model = stream(X, y, D if known else None, range(9, 120, 9), Z, **kw)
    model.restandardise(3.0 * y.unsqueeze(-1) + 1.0)
    means, stdvs = model.outcome_transform.means.squeeze(), model.outcome_transform.stdvs.squeeze()
    D = D / stdvs.square() if known else torch.full_like(D, NOISE)
    prior = (MEAN - means) / stdvs  # a value of the function, too
    model.mean_module.constant = prior
    mean = prior + conditioned(model, X, (y - MEAN) / stdvs, D)
    close(model.process().at(Xs).mean[0], mean, 1e-7)


def test_it_is_a_decoupled_posterior():
    """MATHS 6.1 with ``alpha = Z u R`` and ``beta = Z``."""
    X, y, _ = rows(90)
    model = stream(X, y, None, (30, 60), Z, window=40, slack=7)
    state, process, k = model.state, model.process(), kernel()
    L, own = state.points.L, state.window
    alpha = torch.cat([Z, own.rows.X])
    a = torch.cat([torch.linalg.solve(L.mT, process.u[0, : len(Z)]), own.w])
    L_inv = torch.linalg.inv(L)
    B = L_inv.mT @ state.G @ L_inv
    nugget = torch.diag(state.points.nugget)
    R = torch.linalg.solve(torch.eye(len(Z)).double() + B @ (dense(k, Z) + nugget), B)
    cov = dense(k, Xs) - dense(k, Xs, Z) @ R @ dense(k, Z, Xs)
    posterior = model.posterior(Xs)
    close(posterior.mean.squeeze(-1), MEAN + dense(k, Xs, alpha) @ a, 1e-10)
    close(posterior.distribution.covariance_matrix, cov, 1e-8)


def test_the_rows_that_say_least_are_folded():
    X, y, _ = rows(60)
    model = stream(X[:50], y[:50], None, (), Z, window=50, slack=3)
    more = stream(X[:54], y[:54], None, (50,), Z, window=54)
    own, k = more.state.window, kernel()
    says = own.w.abs() * (dense(k, own.rows.X).diagonal() - own.A.square().sum(0)).sqrt()
    model.observe(X[50:54], y[50:54].unsqueeze(-1))
    left = model.state.window.rows.X
    expected = own.rows.X[says.argsort()[4:].sort().values]
    assert torch.equal(left, expected)
    assert int(model.state.folded) == 4
