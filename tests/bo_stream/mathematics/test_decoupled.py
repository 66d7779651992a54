"""The posterior of a decoupled stream against dense algebra (MATHS 6.1, 6.8)."""

import pytest
import torch
from botorch.models.transforms.outcome import Standardize

from bo_stream.mathematics.inducing import dense, noisy_kernel
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
    model = stream(X, y, D if known else None, cuts, Z)
    k = kernel()
    mean, _ = exact(dense(k, Xs, X), dense(k, Xs), dense(k, X), y - MEAN, D)
    close(model.posterior(Xs).mean.squeeze(-1), MEAN + mean, 1e-8)


def test_copies_of_a_row_with_little_noise_are_taken():
    """Rows that their doubles tell of but for rounding, one by one and together."""
    X, y, _ = rows(30)
    D = torch.full_like(y, 1e-13)
    X, y, D = X.repeat(2, 1), y.repeat(2), D.repeat(2)
    for cuts in ((30,), range(30, 60)):
        posterior = stream(X, y, D, cuts, Z).posterior(X)
        assert bool(posterior.mean.isfinite().all() and (posterior.variance >= 0.0).all())


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("cuts", [(), (1, 2, 40), tuple(range(1, 120))])
def test_the_covariance_is_that_of_sgpr_on_all_data(known, cuts):
    """Whatever was folded, in any chunks."""
    X, y, D = rows(120)
    D = D if known else torch.full_like(D, NOISE)
    model = stream(X, y, D if known else None, cuts, Z, window=40, slack=7)
    assert model.num_in_window in range(40, 48)
    cov = sgpr(kernel(), X, y - MEAN, D, Z, Xs, Xs)[1]
    close(model.posterior(Xs).distribution.covariance_matrix, cov, 1e-10)


def conditioned(model, X, e, D):
    """Mean at Xs, less the prior's: SGPR on what was folded, given the window by dense algebra."""
    held = {tuple(x) for x in model.state.window.X.tolist()}
    stays = torch.tensor([tuple(x) in held for x in X.tolist()])
    assert int(stays.sum()) == model.num_in_window < 50
    old = X[~stays], e[~stays], D[~stays]
    dist = lambda A, B: sgpr(kernel(), *old, Z, A, B)  # noqa: E731
    R = X[stays]
    mean, cross = dist(Xs, R)
    gap, C = e[stays] - dist(R, R)[0], dist(R, R)[1] + torch.diag(D[stays])
    return mean + cross @ torch.linalg.solve(C, gap)


@pytest.mark.parametrize("known", [False, True])
def test_the_mean_is_sgprs_of_what_was_folded_given_the_window(known):
    X, y, D = rows(120)
    D = D if known else torch.full_like(D, NOISE)
    cuts = range(9, 120, 9)
    model = stream(X, y, D if known else None, cuts, Z, window=40, slack=7)
    mean = MEAN + conditioned(model, X, y - MEAN, D)
    close(model.posterior(Xs).mean.squeeze(-1), mean, 1e-9)


@pytest.mark.parametrize("known", [False, True])
def test_folded_rows_follow_their_units(known):
    """What was folded in other units counts as if it had come in those of now."""
    X, y, D = rows(120)
    unit = Standardize(1).eval()
    kw = {"window": 40, "slack": 7, "outcome_transform": unit}
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
    L, w = state.points.L, state.coefficients(model._frozen_prior())
    alpha = torch.cat([Z, state.window.X])
    a = torch.cat([torch.linalg.solve(L.mT, process.u[0, : len(Z)]), w])
    L_inv = torch.linalg.inv(L)
    B = L_inv.mT @ state.G @ L_inv
    R = torch.linalg.solve(torch.eye(len(Z)).double() + B @ noisy_kernel(k, Z, 1e-8), B)
    cov = dense(k, Xs) - dense(k, Xs, Z) @ R @ dense(k, Z, Xs)
    posterior = model.posterior(Xs)
    close(posterior.mean.squeeze(-1), MEAN + dense(k, Xs, alpha) @ a, 1e-10)
    close(posterior.distribution.covariance_matrix, cov, 1e-8)


def test_the_rows_that_say_least_are_folded():
    X, y, _ = rows(60)
    model = stream(X[:50], y[:50], None, (), Z, window=50, slack=3)
    more = stream(X[:54], y[:54], None, (50,), Z, window=54)
    state, X_w, k = more.state, more.state.window.X, kernel()
    missed = dense(k, X_w).diagonal() - state.A.square().sum(0)
    says = state.coefficients(more._frozen_prior()).abs() * missed.sqrt()
    model.observe(X[50:54], y[50:54].unsqueeze(-1))
    left = model.state.window.X
    expected = X_w[says.argsort()[4:].sort().values]
    assert torch.equal(left, expected)
    assert int(model.state.folded) == 4
