"""Ensembles of kernels: weights against dense evidences, processes, snapshots."""

import json

import pytest
import torch
from botorch.models.transforms import Standardize
from torch import Tensor

from bo_stream import HSGP, WISKI, ExactGP, OnlineSGPR
from bo_stream.base.ensemble import KernelEnsemble
from bo_stream.base.fitting import Coordinates, log_prior
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.scores import marginals, quantiles
from bo_stream.surrogates.warped import WarpedGP
from tests.raw import RAW

BOUNDS = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
X = torch.linspace(0.02, 0.98, 60, dtype=torch.float64).unsqueeze(-1)
NOISE = torch.randn(60, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
Y = (9.0 * X).sin() + 0.4 * NOISE


@pytest.fixture(scope="module")
def model() -> WISKI:
    made = WISKI(X, Y, bounds=BOUNDS, grid_size=60, **RAW)
    made.fit()
    return made


@pytest.fixture(scope="module")
def ensemble(model: WISKI) -> KernelEnsemble:
    return KernelEnsemble.around(model, size=8, seed=1)


def exact_value(u: Tensor) -> float:
    """The objective of a fit by the dense n x n covariance, at some coordinates."""
    exact = ExactGP(X, Y, **RAW)
    Coordinates(exact, True).set(u)
    with torch.no_grad():
        return float(exact._objective(profile_mean=True)[0] + log_prior(exact))


def exact_curvature(u: Tensor) -> Tensor:
    """Minus the Hessian by second differences of values."""
    step, p = 1e-2, len(u)
    E = step * torch.eye(p, dtype=torch.float64)
    H = torch.empty(p, p, dtype=torch.float64)
    for i in range(p):
        for j in range(p):
            corners = [
                s * t * exact_value(u + s * E[i] + t * E[j]) for s in (1, -1) for t in (1, -1)
            ]
            H[i, j] = -sum(corners) / (4.0 * step**2)
    return H


def test_weights_are_ratios_of_evidence_and_proposal(ensemble: KernelEnsemble) -> None:
    u0 = ensemble.coordinates[0]
    H, first = exact_curvature(u0), exact_value(u0)
    assert float(torch.linalg.eigvalsh(H).min()) > 0.5  # no direction was flattened
    for u, weight in zip(ensemble.coordinates[1:], ensemble.weights[1:], strict=True):
        log = exact_value(u) - first + 0.5 * float((u - u0) @ H @ (u - u0))
        expected = min(1.0, float(torch.tensor(log).exp()))
        assert float(weight / ensemble.weights[0]) == pytest.approx(expected, abs=0.05)
    assert float(ensemble.weights.sum()) == pytest.approx(1.0)


def test_kernels_are_posteriors_of_the_same_state(model: WISKI, ensemble: KernelEnsemble) -> None:
    Z = X[::7]
    for u, mean, process in zip(
        ensemble.coordinates, ensemble.means, ensemble.processes(model), strict=True
    ):
        alone = WISKI(X, Y, bounds=BOUNDS, grid_size=60, **RAW)
        Coordinates(alone, True).set(u)
        alone._set_prior_mean(mean)
        torch.testing.assert_close(process.at(Z).mean, alone.process().at(Z).mean)
        torch.testing.assert_close(process.at(Z).variance(), alone.process().at(Z).variance())


def test_the_surrogate_is_unchanged_and_new_data_are_seen() -> None:
    model = HSGP(X, Y, bounds=BOUNDS, num_features=20)
    before = {k: v.clone() for k, v in model.state_dict().items() if torch.is_tensor(v)}
    ensemble = KernelEnsemble.around(model, size=3, seed=0)
    first = ensemble.processes(model)
    assert ensemble.processes(model) is first
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    model.observe(X[:9], Y[:9] + 1.0)
    Z = model.transformed(X[:3])
    moved = ensemble.processes(model)[0].at(Z).mean - first[0].at(Z).mean
    assert float(moved.min()) > 0.0


def test_draws_repeat_with_their_seed_and_go_through_json(
    model: WISKI, ensemble: KernelEnsemble
) -> None:
    again = KernelEnsemble.around(model, size=8, seed=1)
    loaded = KernelEnsemble.from_lists(json.loads(json.dumps(ensemble.to_lists())))
    for other in (again, loaded):
        for name in ("coordinates", "means", "weights"):
            assert torch.equal(getattr(other, name), getattr(ensemble, name))


def test_samples_are_shared_by_weight(ensemble: KernelEnsemble) -> None:
    torch.manual_seed(0)
    counts = torch.tensor([ensemble.counts(5) for _ in range(2000)], dtype=torch.float64)
    assert bool((counts.sum(-1) == 5).all()) and float(counts.min()) >= 0.0
    torch.testing.assert_close(counts.mean(0), 5.0 * ensemble.weights, atol=0.06, rtol=0.0)


def test_kernels_without_any_variance_can_be_drawn_from() -> None:
    """Lengthscales far beyond the box leave a constant function."""
    model = HSGP(X, Y, bounds=BOUNDS, num_features=20)
    model.covar_module.base_kernel.lengthscale = 1e6
    draws = model.process().path(torch.Size([3]))(model.transformed(X[:4]))
    assert bool(draws.isfinite().all())


def test_a_kernel_that_has_become_impossible_is_replaced(model: WISKI) -> None:
    u = KernelEnsemble.around(model, size=1).coordinates[0]
    coordinates = torch.stack([u, torch.full_like(u, torch.nan)])
    ensemble = KernelEnsemble(coordinates, torch.zeros(2, 1).double(), torch.ones(2).double() / 2)
    with pytest.warns(RuntimeWarning, match="replaces"):
        own = ensemble.processes(model)[1]
    assert own is model.process()


def test_refusals(model: WISKI, ensemble: KernelEnsemble) -> None:
    sparse = OnlineSGPR(X, Y)
    assert KernelEnsemble.serves(model) and not KernelEnsemble.serves(sparse)
    with pytest.raises(UnsupportedError, match="depends on its hyperparameters"):
        KernelEnsemble.around(sparse)
    with pytest.raises(InputError, match="size"):
        KernelEnsemble.around(model, size=0)
    wide = WISKI(X.expand(-1, 2), Y, bounds=BOUNDS.expand(-1, 2))
    with pytest.raises(StateError, match="free hyperparameters"):
        ensemble.processes(wide)


def test_predictions_average_over_kernels(model: WISKI, ensemble: KernelEnsemble) -> None:
    places = torch.rand(5, 1, dtype=torch.double)
    draws = []
    generator = torch.Generator().manual_seed(0)
    for process, weight in zip(ensemble.processes(model), ensemble.weights, strict=True):
        part = process.at(model.transformed(places))
        z = torch.randn(int(400_000 * weight), 1, dtype=torch.double, generator=generator)
        draws.append(part.mean[0] + part.variance()[0].sqrt() * z)
    values = torch.cat(draws)
    mean, variance = marginals(model, places, ensemble)
    cut = quantiles(model, places, (0.05, 0.6), ensemble=ensemble)
    sd = values.std(0)
    assert ((mean - values.mean(0)).abs() < 0.01 * sd).all()
    assert (variance.sqrt() / sd - 1.0).abs().max() < 0.01
    shares = (values.unsqueeze(0) < cut.unsqueeze(1)).double().mean(1)
    assert (shares - torch.tensor([[0.05], [0.6]])).abs().max() < 0.003


def test_kernels_share_the_warp_of_outcomes() -> None:
    X = torch.rand(24, 2, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    box = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    Y = -(8.0 * (X - 0.4).norm(dim=-1, keepdim=True)).exp()
    model = WarpedGP(X, Y, noise="none", bounds=box, outcome_transform=Standardize(m=1))
    model.fit()
    assert model.is_warped
    ensemble = KernelEnsemble.around(model, size=6, seed=0)
    assert len(ensemble.weights) > 1
    places = torch.rand(50, 2, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    low, middle, high = quantiles(model, places, (0.05, 0.5, 0.95), ensemble=ensemble)
    assert ((low < middle) & (middle < high)).all() and high.max() < 0.5
    alone = quantiles(model, places, (0.05, 0.95))
    assert (high - low).median() > 0.9 * (alone[1] - alone[0]).median()
