"""OnlineSGPR: fits, refits on arrival, and inducing points chosen again."""

import copy

import pytest
import torch

from bo_stream import OnlineSGPR
from bo_stream.growth import VIPS, FixedGrid, Selection
from bo_stream.mathematics.inducing.update import best_mean, update
from bo_stream.surrogates.exact import ExactGP
from tests.bo_stream.mathematics.inducing.sgpr_cases import data, scalar
from tests.bo_stream.mathematics.inducing.sgpr_streams import NOTHING, assert_close, stream
from tests.raw import RAW


def flat_hyperparameters(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def test_a_fit_climbs_the_bound_and_replays_the_update():
    model, *_ = stream(25, likelihood=None, covar_module=None)
    more = data(30, d=2, seed=3)
    model.observe(more.X, more.y.unsqueeze(-1), refit=False)
    first, before = model.bound_sum, model.last_update
    report = model.fit()
    assert report.value > float(before.lower_bound)
    assert_close(model._objective(False)[0].detach(), model.last_update.lower_bound, 1e-9)
    assert_close(model.bound_sum - first, model.last_update.lower_bound - before.lower_bound, 1e-9)
    assert torch.equal(model.last_update.entered, before.entered)
    out = update(  # the same by hand: only the second batch is seen under the new hyperparameters
        model.state.before,
        model.state.window(model._noise_scale()[0]),
        model.covar_module,
        model._prior_mean()[0],
        model.inducing_points,
        model.state.old_index,
    )
    assert_close(out.state.G.detach(), model.state.now.G, 1e-8)
    assert model.fit().evaluations <= 3


@pytest.mark.parametrize("seed", range(3))
def test_the_best_mean_is_where_the_bound_is_flat(seed):
    model, *_ = stream(25, known=True)
    more = data(10, d=2, seed=seed + 5, spread=0.5)
    model.observe(more.X, more.y.unsqueeze(-1), more.noise.unsqueeze(-1), refit=False)
    batch, state = model.state.window(model._noise_scale()[0]), model.state.before
    Z, index = model.inducing_points, model.state.old_index

    def bound(m):
        return update(state, batch, model.covar_module, m, Z, index)

    best, value = best_mean(bound(scalar(-0.7)), batch)
    at = best.detach().requires_grad_()
    top = bound(at).bound
    assert_close(value, top.detach(), 1e-10)
    assert abs(float(torch.autograd.grad(top, at)[0])) < 1e-6
    assert top > bound(best + 0.01).bound and top > bound(best - 0.01).bound


@pytest.mark.parametrize(("n", "refit", "learns"), [(19, None, 0), (20, None, 1), (2, True, 1)])
def test_twenty_new_rows_teach(n, refit, learns):
    model, *_ = stream(25, likelihood=None, covar_module=None)
    model.fit(3)
    before = flat_hyperparameters(model)
    more = data(n, d=2, seed=3)
    model.observe(more.X, more.y.unsqueeze(-1), refit=refit)
    assert torch.equal(before, flat_hyperparameters(model)) != bool(learns)
    assert OnlineSGPR(*NOTHING, **RAW).observe(*NOTHING, refit=True).num_observed == 0


@pytest.mark.parametrize(
    ("side", "expected"), [(16, [True] * 5), (17, [False, False, True, False, True])]
)
def test_batches_are_fitted_as_the_data_grow_or_surprise(side, expected):
    axis = torch.linspace(-2.0, 2.0, side, dtype=torch.float64)
    Z = torch.cartesian_prod(axis, axis)  # 256 or 289 points
    model, *_ = stream(200, FixedGrid(Z), likelihood=None, covar_module=None, trust=0.1)
    model.fit(5)
    moved = []
    for factor, seed in ((1.0, 3), (1.0, 4), (1.0, 5), (1.0, 6), (9.0, 7)):
        before, more = flat_hyperparameters(model), data(20, d=2, seed=seed)
        model.observe(more.X, factor * more.y.unsqueeze(-1))
        moved.append(not torch.equal(before, flat_hyperparameters(model)))
    assert moved == expected  # 260 is over 1.25 x 200 points


def test_the_default_bounds_the_number_of_inducing_points():
    assert OnlineSGPR(*NOTHING, **RAW).growth == VIPS(max_points=1024)


def test_trust_bounds_a_refit():
    model, *_ = stream(25, likelihood=None, covar_module=None, trust=0.1)
    more = data(40, d=2, seed=3)
    read = [lambda: model.likelihood.noise, lambda: model.covar_module.base_kernel.lengthscale]
    before = [f().detach().log() for f in read]
    model.observe(more.X, more.y.unsqueeze(-1) * 3.0)
    moved = [float((f().detach().log() - b).abs().max()) for f, b in zip(read, before, strict=True)]
    assert 0.09 < max(moved) < 0.1 + 1e-6
    model.fit()
    assert float((model.likelihood.noise.detach().log() - before[0]).abs().max()) > 0.1


def test_reselect_replaces_the_last_choice():
    model, X, Y, _ = stream(40, VIPS(0.02), likelihood=None, covar_module=None)
    model.fit()
    fitted = flat_hyperparameters(model)
    model.reselect()
    fresh = OnlineSGPR(
        *NOTHING,
        growth=VIPS(0.02),
        covar_module=model.covar_module,
        likelihood=model.likelihood,
        **RAW,
    )
    fresh.mean_module.load_state_dict(model.mean_module.state_dict())
    fresh.observe(X, Y, refit=False)
    assert torch.equal(fitted, flat_hyperparameters(model))
    assert torch.equal(model.last_update.entered, fresh.last_update.entered)
    assert_close(model.bound_sum, fresh.bound_sum, 1e-10)
    assert model.num_observed == 40


# -- batches of a few rows -----------------------------------------------------------------------


def error_and_coverage(model, X, Y):
    """Root mean squared error, and coverage of the central 90 % intervals."""
    posterior = model.posterior(X, observation_noise=True)
    errors = (posterior.mean - Y).abs()
    inside = errors < 1.645 * posterior.variance.sqrt()
    return float(errors.square().mean().sqrt()), float(inside.double().mean())


@pytest.mark.parametrize(("initial", "q"), [(10, 6), pytest.param(20, 3, marks=pytest.mark.slow)])
def test_small_batches_learn_as_the_exact_gp_does(initial, q):
    """Within a tenth of its error at n = 160, with intervals that cover."""
    field = data(700, d=2, seed=1)
    X, box = field.X, torch.stack([field.X.amin(0), field.X.amax(0)])
    noise = 0.3 * torch.randn(700, 1, generator=torch.Generator().manual_seed(0)).double()
    Y = (3.0 * X[:, :1]).sin() * (2.0 * X[:, 1:]).cos() + noise
    model = OnlineSGPR(X[:initial], Y[:initial], bounds=box)
    for k in range(initial, 160, q):
        model.observe(X[k : k + q], Y[k : k + q])
    seen = model.num_observed
    exact = ExactGP(X[:seen], Y[:seen], bounds=box)
    exact.fit()
    error, coverage = error_and_coverage(model, X[200:], Y[200:])
    assert error < 1.1 * error_and_coverage(exact, X[200:], Y[200:])[0]
    assert coverage > 0.85


def test_the_window_is_bounded_and_resumes():
    """It starts anew once full; a state of it goes on bit-identically, with fits in between."""
    whole = data(700, d=2)
    Y = whole.y.unsqueeze(-1)
    options = {"growth": FixedGrid(data(8, d=2, seed=5).X), **RAW}
    model, sizes = OnlineSGPR(whole.X[:30], Y[:30], **options), []
    for k in range(30, 600, 6):
        model.observe(whole.X[k : k + 6], Y[k : k + 6], refit=False)
        sizes.append(model.state.batch.size)
    assert max(sizes) == 510 and sizes[-1] == 90
    again = OnlineSGPR(*NOTHING, **options)
    again.load_state_dict(model.state_dict())
    for m in (model, again):
        for k in range(600, 690, 6):
            m.observe(whole.X[k : k + 6], Y[k : k + 6])
        m.fit(5)
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_a_window_of_small_batches_is_replayed_as_one_batch():
    rows = data(30, d=2)
    Y = rows.y.unsqueeze(-1)
    model, *_ = stream(25, FixedGrid(data(8, d=2, seed=5).X), likelihood=None, covar_module=None)
    one = copy.deepcopy(model)
    for k in range(0, 18, 3):
        model.observe(rows.X[k : k + 3], Y[k : k + 3], refit=False)
    one.observe(rows.X[:18], Y[:18], refit=False)
    for m in (model, one):
        m.covar_module.outputscale = 0.7
        m._replay(reselect=False)
    assert_close(model.posterior(rows.X).mean, one.posterior(rows.X).mean, 1e-9)
    assert_close(model.bound_sum, one.bound_sum, 1e-9)


class New:
    """All rows of a batch enter, as is right for batches of one row only."""

    def select(self, state, batch, kernel):
        few = torch.arange(batch.size if state.size < 4 else 0)
        return Selection(torch.arange(state.size), few)


def test_a_policy_for_single_rows_is_not_given_the_window():
    rows = data(60, d=2)
    Y = rows.y.unsqueeze(-1)
    model = OnlineSGPR(rows.X[:1], Y[:1], growth=New(), **RAW)
    for k in range(1, 60):
        model.observe(rows.X[k : k + 1], Y[k : k + 1])
    assert int(model.state.fitted) > 20 and len(model.inducing_points) == 4
