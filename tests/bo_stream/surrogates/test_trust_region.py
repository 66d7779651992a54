"""TrustRegionGP as a surrogate: its local posterior, its batches, its memory, its results."""

import copy

import pytest
import torch
from botorch.models.transforms.outcome import Standardize
from gpytorch.kernels import RBFKernel

from acquisitions.trust_region import region_samples
from bo_stream import TrustRegionGP, load
from bo_stream.errors import BoundsError, InputError, StateError, UnsupportedError
from bo_stream.testing.base import assert_same_state, close, snapshot
from tests.raw import RAW

D = 4
BOUNDS = torch.tensor([[-1.0], [3.0]], dtype=torch.float64).expand(2, D)


def data(n, seed=0, noise=0.0):
    g = torch.Generator().manual_seed(seed)
    X = BOUNDS[0] + 4.0 * torch.rand(n, D, generator=g, dtype=torch.float64)
    return X, outcomes(X) + noise * torch.randn(n, 1, generator=g, dtype=torch.float64)


def outcomes(X):
    return -(X - 0.5).square().sum(-1, keepdim=True)


def run(model, batches, pieces=1, noise=0.0):
    """Batches of ten, each told in pieces."""
    for _ in range(batches):
        X = region_samples(model, 10)
        Y = outcomes(X) + noise * torch.randn(10, 1, dtype=torch.float64)
        for part in range(pieces):
            cut = slice(part * 10 // pieces, (part + 1) * 10 // pieces)
            model.observe(X[cut], Y[cut])
    return model


def made(n=20, **kw):
    torch.manual_seed(0)
    return TrustRegionGP(*data(n), **{"bounds": BOUNDS, "batch_size": 10, **kw})


@pytest.mark.parametrize("noise", ["none", "learned"])
def test_the_posterior_is_that_of_the_window(noise):
    """Dense algebra on the window, more points than which have been seen."""
    model = run(made(600, noise=noise), 3)
    window = model.state.rows
    assert len(window) == 512 and model.num_observed == 630
    Z = model.transformed(data(5, seed=3)[0])
    kernel, mean = model.covar_module, model.mean_module.constant.detach()
    C = kernel(window.X).to_dense() + model.likelihood.noise * torch.eye(512)
    cross = kernel(Z, window.X).to_dense()
    wanted = mean + cross @ torch.linalg.solve(C, window.y - mean)
    variance = kernel(Z).to_dense() - cross @ torch.linalg.solve(C, cross.mT)
    found = model.process().at(Z)
    close(found.mean[0], wanted, 1e-6)
    close(found.variance()[0], variance.diagonal(), 1e-6)
    normal = torch.distributions.MultivariateNormal(mean.expand(512), C)
    close(model.log_evidence(), normal.log_prob(window.y), 1e-6)


def test_batches_told_in_pieces():
    """The state is the same to the last bit, whatever the pieces."""
    whole = run(made(), 6)
    for pieces in (2, 5):
        assert_same_state(snapshot(run(made(), 6, pieces)), snapshot(whole))


def test_the_factor_is_kept_while_a_batch_is_incomplete():
    model = run(made(), 3)
    before = model.factor()
    model.observe(*data(3, seed=2))
    factor = model.factor()
    assert factor is model.factor() and len(factor.L) == len(before.L) + 3


@pytest.mark.parametrize("noise", ["none", "learned"])
def test_a_resumed_stream_goes_on_as_the_other(noise, tmp_path):
    """All of the region is in the state: proposals too are the same."""
    model = run(made(noise=noise), 6)
    model.save(tmp_path / "model.pt")
    for other in (load(tmp_path / "model.pt"), copy.deepcopy(model)):
        torch.manual_seed(3)
        run(other, 4)
        torch.manual_seed(3)
        assert_same_state(snapshot(other), snapshot(run(copy.deepcopy(model), 4)))


def test_fits():
    """Due with a complete design, with growth, with a change of size; the value is the mll's."""
    model = made(9)
    assert not model.refit_due
    model.observe(*data(1, seed=2))
    assert model.refit_due
    report = model.fit()
    assert not model.refit_due
    close(torch.tensor(report.value), model.make_mll()().detach().float(), 1e-5)
    run(model, 1)
    assert model.refit_due  # 20 observations instead of 10


def test_restandardised():
    """In other units the same region, the same proposals."""
    model = run(made(noise="none"), 5)
    twin = copy.deepcopy(model)
    twin.restandardise(3.0 + 2.0 * data(30)[1])
    old, new = model.outcome_transform, twin.outcome_transform
    assert isinstance(new, Standardize) and not torch.equal(old.stdvs, new.stdvs)
    (x, value), (other_x, other) = model.recommendation, twin.recommendation
    assert torch.equal(x, other_x) and abs(value - other) < 1e-10
    for m in (model, twin):
        torch.manual_seed(5)
        m.fit()
        run(m, 2)
    close(model.region.size, twin.region.size, 1e-6)
    close(model.recommendation[0], twin.recommendation[0], 1e-2)


def test_recommendations():
    """Raw: the best observation if exact; under noise near the optimum, and not the luckiest."""
    with pytest.warns():
        empty = made(0)
    with pytest.raises(StateError):
        _ = empty.recommendation
    model = run(made(noise="none"), 12)
    x, value = model.recommendation
    assert abs(value - float(outcomes(x))) < 1e-9 and value > -0.01
    noisy = run(made(noise="learned"), 15, noise=0.5)
    x, value = noisy.recommendation
    assert float(outcomes(x)) > -0.5 and abs(value - float(outcomes(x))) < 0.5


def test_what_is_refused():
    X, Y = data(8)
    with pytest.raises(BoundsError):
        TrustRegionGP(X, Y)
    with pytest.raises(InputError, match="noise"):
        TrustRegionGP(X, Y, bounds=BOUNDS, noise="some")
    with pytest.raises(InputError, match="batch_size"):
        TrustRegionGP(X, Y, bounds=BOUNDS, batch_size=0)
    with pytest.raises(UnsupportedError):
        TrustRegionGP(X, X, bounds=BOUNDS)
    with pytest.raises(UnsupportedError, match="kernel"):
        TrustRegionGP(X, Y, bounds=BOUNDS, covar_module=RBFKernel())


def test_equal_outcomes():
    """Nothing to fit and nothing to gain: no error."""
    X, Y = data(12)
    model = TrustRegionGP(X, torch.zeros_like(Y), bounds=BOUNDS, batch_size=4, **RAW)
    X = region_samples(model, 4)
    model.observe(X, torch.zeros(4, 1, dtype=torch.float64))
    assert region_samples(model, 4).isfinite().all()
