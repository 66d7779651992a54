"""The search for shorter lengthscales: what it tries, what it takes, and when a stream searches."""

import copy

import gpytorch
import pytest
import torch
from botorch.models.transforms import Standardize

from bo_stream import OnlineSGPR
from bo_stream.growth import VIPS, FixedGrid
from bo_stream.growth.starts import scale_lengthscales, shares, shorter
from tests.bo_stream.mathematics.inducing.sgpr_cases import data, se_kernel

BOUNDS = torch.tensor([[-17.0, 12.0], [-11.0, 17.0]], dtype=torch.float64)


def table(n, seed=0, amplitude=3.0):
    """A slow function, a quick one, and noise of deviation 2: a fit that starts long takes the
    quick one for noise.
    """
    g = torch.Generator().manual_seed(seed)
    X = BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * torch.rand(n, 2, generator=g, dtype=torch.float64)
    x, y = X.T
    f = 40.0 + 12.0 * (1.7 * x).sin() * (1.3 * y).cos() + amplitude * (6.0 * x + y).sin()
    return X, (f + 2.0 * torch.randn(n, generator=g, dtype=torch.float64)).unsqueeze(-1)


class Sparing(OnlineSGPR):
    """Searches on fewer rows, and fits to the bound however few the rows are."""

    search_rows = 200
    explores = False


def made(n, kind=OnlineSGPR, **kw):
    X, Y = table(2_000)
    scaled = Standardize(1)
    scaled(Y)
    model = kind(X[:n], Y[:n], bounds=BOUNDS, outcome_transform=scaled.eval(), **kw)
    return model, X, Y, float(scaled.stdvs)


def noise(model, scale):
    return scale * float(model.likelihood.noise.detach().sqrt())


# -- what is tried -------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "count"), [(4, 0), (20, 1), (2_000, 2)])
def test_lengthscales_are_shortened_while_a_batch_can_tell(n, count):
    """0.5, in the unit square: 4 points are too far apart for a third of it, 2,000 near enough for
    a ninth.
    """
    kernel = se_kernel(1.3, (0.5, 0.5)).requires_grad_(True)
    assert shares(kernel, data(n, d=2).X) == [(1 / 3) ** (i + 1) for i in range(count)]
    assert kernel.base_kernel.lengthscale.detach().tolist() == [[0.5, 0.5]]


def test_nothing_to_shorten():
    X = data(500, d=2).X
    assert shares(se_kernel(1.3, (0.5, 0.5)), X) == []  # held
    assert shares(gpytorch.kernels.LinearKernel().double(), X) == []
    assert shares(se_kernel(1.3, (0.5, 0.5)).requires_grad_(True), X[:1]) == []


def test_all_parts_are_shortened_within_their_constraints():
    part = gpytorch.kernels.RBFKernel(lengthscale_constraint=gpytorch.constraints.GreaterThan(0.2))
    held = gpytorch.kernels.MaternKernel().requires_grad_(False)
    free = gpytorch.kernels.MaternKernel(ard_num_dims=2)
    kernel = (gpytorch.kernels.ScaleKernel(part) + free * held).double()
    part.lengthscale, free.lengthscale, held.lengthscale = 0.5, torch.tensor([[3.0, 6.0]]), 0.5
    scaled = shorter(kernel, 1 / 3)
    scale_lengthscales(kernel, 1 / 3)
    for model in (kernel, scaled):
        lengths = [m.lengthscale for m in model.modules() if getattr(m, "has_lengthscale", False)]
        flat = torch.cat([v.detach().flatten() for v in lengths]).tolist()
        assert flat == pytest.approx([0.2, 1.0, 2.0, 0.5], rel=1e-3)
        assert flat[0] > 0.2


# -- a first batch -------------------------------------------------------------------------------


def test_a_first_fit_finds_what_few_points_hide():
    model, X, Y, scale = made(400)
    plain = copy.deepcopy(model)
    plain.fit(200)  # one climb from where it is
    report = model.fit()
    assert noise(plain, scale) > 2.6  # the quick function, of deviation 2.1, is taken for noise
    assert noise(model, scale) < 2.3
    error = (model.posterior(X[1_000:]).mean - Y[1_000:]).detach().square().mean().sqrt()
    assert float(error) < 2.3
    assert 40 < len(model.inducing_points) < 120
    value = float(model.make_mll()().detach())
    assert report.value == pytest.approx(value, abs=1e-6)
    again = model.fit()  # the search is for the first fit
    assert again.evaluations < 15 < 60 < report.evaluations


def test_a_first_fit_chooses_points_under_what_it_taught():
    """Where nothing is hidden, it is `fit`, `reselect`, `fit`."""
    batch = data(60, d=2)
    make = [OnlineSGPR(batch.X, batch.y.unsqueeze(-1), growth=VIPS(0.02)) for _ in range(2)]
    begun = len(make[1].inducing_points)
    make[0].fit()
    make[1].fit(200)
    make[1].reselect()
    make[1].fit(200)
    first, second = (model.inducing_points for model in make)
    assert len(first) != begun
    assert torch.equal(first, second)
    lengths = [model.covar_module.base_kernel.lengthscale.detach() for model in make]
    torch.testing.assert_close(*lengths, rtol=0.1, atol=0)


def test_a_limit_on_evaluations_is_kept():
    model, *_ = made(300)
    assert model.fit(7).evaluations <= 7
    assert not bool(model.watch.sought)


def test_points_that_do_not_follow_the_data():
    model, X, Y, _ = made(100, growth=FixedGrid(data(25, d=2, seed=5).X))
    model.fit()
    model.observe(X[100:200], Y[100:200])
    assert model.posterior(X).variance.min() > 0.0
    assert len(model.inducing_points) == 25


def test_known_noise_and_kernels_without_lengthscales():
    X, Y = table(200)
    for kernel in (None, gpytorch.kernels.LinearKernel()):
        model = OnlineSGPR(
            X[:100], Y[:100], torch.full((100, 1), 4.0).double(), bounds=BOUNDS, covar_module=kernel
        )
        model.fit()
        model.observe(X[100:], Y[100:], torch.full((100, 1), 4.0).double())
        assert model.watch.density.count == 100


# -- later batches -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def first_batch():
    model, X, Y, scale = made(100, Sparing)
    model.fit(200)
    model.reselect()
    return model, X, Y, scale


@pytest.fixture
def stuck(first_batch):
    """A stream in batches of 100 whose first fit ended long, and its data."""
    return copy.deepcopy(first_batch[0]), *first_batch[1:]


def test_later_batches_notice_and_search(stuck):
    model, X, Y, scale = stuck
    assert noise(model, scale) > 2.3
    gathered = set()
    for k in range(100, 900, 100):
        model.observe(X[k : k + 100], Y[k : k + 100])
        gathered.add(model.state.gathered.size)
    assert {0, 100} <= gathered and max(gathered) < 200
    assert model.watch.sought > 0 and not model.watch.misses_structure
    assert noise(model, scale) < 2.4
    assert len(model.inducing_points) < 150


def test_bytes_are_constant_but_for_the_rows_gathered():
    model, X, Y, _ = made(100, growth=FixedGrid(data(8, d=2).X))
    without, gathered = set(), set()
    for k in range(100, 800, 100):
        model.observe(X[k : k + 100], Y[k : k + 100])
        rows = model.state.gathered.size
        gathered.add(rows)
        without.add(model.state_bytes - 8 * (2 + 2) * rows)
    assert len(without) == 1 and len(gathered) > 2


def test_with_trust_it_is_said_and_left(stuck):
    model, X, Y, scale = stuck
    model.trust = 0.1
    for k in range(100, 1_600, 100):
        model.observe(X[k : k + 100], Y[k : k + 100])
    assert model.watch.misses_structure and model.watch.behind
    assert model.watch.structure.size > 0.2
    assert not bool(model.watch.sought) and not model.state.gathered.size
    assert noise(model, scale) > 2.4


def test_nothing_is_sought_where_nothing_is_hidden():
    X, Y = table(600, amplitude=0.0)
    model = OnlineSGPR(X[:100], Y[:100], bounds=BOUNDS)
    model.fit()
    for k in range(100, 600, 100):
        model.observe(X[k : k + 100], Y[k : k + 100])
        assert not model.watch.misses_structure
    assert float(model.watch.sought) == 100.0  # by the first fit
    assert not model.state.gathered.size


def test_a_stream_that_gathers_is_saved_and_goes_on_as_before(stuck):
    model, X, Y, _ = stuck
    k = 100
    while not model.state.gathered.size:
        model.observe(X[k : k + 100], Y[k : k + 100])
        k += 100
    twin = made(0, Sparing)[0]
    twin.load_state_dict(model.state_dict())
    for _ in range(3):
        for m in (model, twin):
            m.observe(X[k : k + 100], Y[k : k + 100])
        k += 100
    assert model.watch.sought > 0
    assert torch.equal(model.posterior(X[:50]).mean, twin.posterior(X[:50]).mean)


def test_what_is_gathered_changes_units_with_the_rest(stuck):
    model, X, Y, scale = stuck
    k = 100
    while not model.state.gathered.size:
        model.observe(X[k : k + 100], Y[k : k + 100])
        k += 100
    before = model.state
    model.restandardise(3.0 * Y)
    after = model.state
    torch.testing.assert_close(after.gathered.y, after.batch.y[-after.gathered.size :])
    assert not torch.allclose(after.gathered.y, before.gathered.y)
