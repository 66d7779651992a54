"""OnlineSGPR: fits to a sample of rows, refits on arrival, and inducing points chosen again."""

import pytest
import torch

from bo_stream import OnlineSGPR
from bo_stream.growth import VIPS, FixedGrid
from bo_stream.surrogates.exact import ExactGP
from tests.bo_stream.mathematics.sgpr_cases import data
from tests.bo_stream.mathematics.sgpr_streams import NOTHING, assert_close, stream
from tests.raw import RAW


def flat_hyperparameters(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def over(X, Y, growth=None, **kw):
    """A surrogate with default modules that has seen these rows at once."""
    return OnlineSGPR(*NOTHING, growth=growth, **RAW, **kw).observe(X, Y, refit=False)


def test_a_fit_climbs_the_evidence_of_all_rows():
    model, X, Y, _ = stream(25, likelihood=None, covar_module=None)
    more = data(30, d=2, seed=3)
    model.observe(more.X, more.y.unsqueeze(-1), refit=False)
    exact = ExactGP(torch.cat([X, more.X]), torch.cat([Y, more.y.unsqueeze(-1)]), **RAW)
    first, best = model.fit(), exact.fit()
    assert first.value == pytest.approx(best.value, abs=0.05)
    assert model.fit().evaluations <= 4


def test_a_fit_chooses_the_points_of_all_rows_again():
    """As if they had come in one batch under the new hyperparameters."""
    model, X, Y, _ = stream(25, VIPS(0.02), likelihood=None, covar_module=None)
    more = data(15, d=2, seed=3)
    model.observe(more.X, more.y.unsqueeze(-1), refit=False)
    model.fit()
    modules = {name: getattr(model, name) for name in ("covar_module", "likelihood", "mean_module")}
    whole = torch.cat([X, more.X]), torch.cat([Y, more.y.unsqueeze(-1)])
    fresh = over(*whole, VIPS(0.02), **modules)
    assert torch.equal(model.inducing_points, fresh.inducing_points)
    assert torch.equal(model.last_update.entered, fresh.last_update.entered)
    assert_close(model.bound_sum, fresh.bound_sum, 1e-10)
    assert model.num_observed == 40


def test_beyond_the_sample_a_fit_keeps_what_was_learned():
    """The likelihood of the values at the inducing points, and the points."""
    rows = data(2100, d=2)
    first, rest = rows.y.unsqueeze(-1).split([2090, 10])
    model = over(rows.X[:2090], first, VIPS(max_points=60))
    assert len(model.state.sample) == 2090  # kept whole until the next batch
    model.observe(rows.X[2090:], rest, refit=False)
    before, points = flat_hyperparameters(model), model.state.points
    model.fit(6)
    assert len(model.state.sample) == 2048
    assert not torch.equal(before, flat_hyperparameters(model))
    assert torch.equal(model.state.points.G, points.G)
    assert torch.equal(model.state.points.Z, points.Z)
    noisy = model.posterior(rows.X).mean[:, 0] - rows.y
    assert float(noisy.square().mean().sqrt()) < 0.15


@pytest.mark.parametrize(
    ("n", "refit", "learns"), [(19, None, 0), (20, None, 1), (2, True, 1), (30, False, 0)]
)
def test_twenty_new_rows_teach(n, refit, learns):
    model, *_ = stream(25, likelihood=None, covar_module=None)
    model.fit(3)
    before = flat_hyperparameters(model)
    more = data(n, d=2, seed=3)
    model.observe(more.X, more.y.unsqueeze(-1), refit=refit)
    assert torch.equal(before, flat_hyperparameters(model)) != bool(learns)
    assert OnlineSGPR(*NOTHING, **RAW).observe(*NOTHING, refit=True).num_observed == 0


def test_it_is_fitted_as_the_data_grow():
    model, *_ = stream(200, FixedGrid(data(8, d=2, seed=5).X), likelihood=None, covar_module=None)
    model.fit(5)
    moved = []
    for seed in range(4):
        before, more = flat_hyperparameters(model), data(20, d=2, seed=seed + 3)
        model.observe(more.X, more.y.unsqueeze(-1))
        moved.append(not torch.equal(before, flat_hyperparameters(model)))
    assert moved == [False, False, True, False]  # 60 of 260 are over a fifth


def test_the_default_bounds_the_number_of_inducing_points():
    assert OnlineSGPR(*NOTHING, **RAW).growth == VIPS(max_points=1024)


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


def test_more_rows_than_the_evidence_is_of_resume():
    """A state goes on bit-identically, with fits in between."""
    whole = data(700, d=2)
    Y = whole.y.unsqueeze(-1)
    options = {"growth": FixedGrid(data(8, d=2, seed=5).X), **RAW}
    model = OnlineSGPR(whole.X[:590], Y[:590], **options)
    model.fit(3)
    model.observe(whole.X[590:610], Y[590:610], refit=False)
    again = OnlineSGPR(*NOTHING, **options)
    again.load_state_dict(model.state_dict())
    for m in (model, again):
        for k in range(610, 690, 20):
            m.observe(whole.X[k : k + 20], Y[k : k + 20])
        m.fit(5)
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
