"""The objective as a function of one vector: failures, the best point, BFGS on known functions."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor, nn

from bo_stream.base.fitting import Ascent, AscentObjective, Coordinates, ascend, far_starts
from bo_stream.errors import StateError


class Modules(nn.Module):
    """Hyperparameters and nothing else."""

    def __init__(self, dim: int = 2, constraint: Interval | None = None) -> None:
        super().__init__()
        base = RBFKernel(ard_num_dims=dim, lengthscale_constraint=constraint)
        self.covar_module, self.likelihood = ScaleKernel(base), GaussianLikelihood()
        self.mean_module = ZeroMean()
        self.double()

    def logs(self) -> Tensor:
        kernel = self.covar_module
        values = (kernel.outputscale, kernel.base_kernel.lengthscale, self.likelihood.noise)
        return torch.cat([v.reshape(-1) for v in values]).log()


def bowl(modules: Modules, top: Tensor, sharp: Tensor) -> AscentObjective:
    """A quadratic of the logarithms, with its top where it is said to be."""
    names = [n for n, _ in modules.covar_module.named_parameters()]
    assert names == ["raw_outputscale", "base_kernel.raw_lengthscale"]

    def objective() -> tuple[Tensor, None]:
        return -0.5 * (sharp * (modules.logs() - top).square()).sum(), None

    return AscentObjective(objective, Coordinates(modules, skip_mean=True))


def test_it_climbs_a_quadratic_and_keeps_its_curvature() -> None:
    sharp = torch.tensor([1.0, 30.0, 0.5, 200.0]).double()
    top = torch.tensor([0.5, -1.0, 1.0, -2.0]).double()
    climb = bowl(Modules(), top, sharp)
    end = ascend(climb, Ascent(climb.start()), 100, 1e-9)
    assert end.converged and end.at.value > -1e-6
    torch.testing.assert_close(end.at.u, top, atol=1e-3, rtol=0.0)
    assert end.inverse is not None
    torch.testing.assert_close(end.inverse.diagonal(), 1.0 / sharp, rtol=0.2, atol=0.0)
    again = bowl(Modules(), top + 0.1, sharp)
    start = again.start()
    warm = ascend(again, Ascent(start, end.inverse), 100, 1e-6)
    assert warm.at.value > -1e-4 and again.evaluations <= 4


def test_bounds_are_kept() -> None:
    modules = Modules(constraint=Interval(0.4, 1.2, initial_value=0.7))
    climb = bowl(modules, torch.tensor([0.0, -3.0, 3.0, -1.0]).double(), torch.ones(4).double())
    end = ascend(climb, Ascent(climb.start()), 100, 1e-8)
    assert end.converged
    low, high = math.log(0.4), math.log(1.2)
    wanted = torch.tensor([0.0, low, high, -1.0]).double()
    torch.testing.assert_close(end.at.u, wanted, atol=1e-3, rtol=0.0)
    assert bool((climb.coordinates.clip(end.at.u) == end.at.u).all())


def test_the_limit_is_kept_and_counted() -> None:
    for most in range(1, 8):
        climb = bowl(Modules(), torch.full((4,), -3.0).double(), torch.ones(4).double())
        path = Ascent(climb.start())
        ascend(climb, path, most, 1e-9)
        assert climb.evaluations <= 1 + most


def test_a_step_too_far_is_minus_infinity_and_leaves_the_best() -> None:
    modules = Modules()

    def objective() -> tuple[Tensor, None]:
        x = modules.covar_module.outputscale
        if float(x) > 3.0:
            raise StateError("a covariance that is positive definite", "another", "Add noise.")
        return x.log() * (math.inf if float(x) > 2.0 else 1.0), None

    climb = AscentObjective(objective, Coordinates(modules, skip_mean=True))
    u = climb.start().u
    for scale in (2.5, 3.5):
        v = u.clone()
        v[0] = math.log(scale)
        found = climb.evaluate(v)
        assert found.value == -math.inf and not bool(found.gradient.any())
    assert climb.evaluations == 3 and climb.best is not None and climb.best.u is u
    end = ascend(climb, Ascent(climb.best), 50, 1e-6)
    assert math.log(1.9) < end.at.value < math.log(2.0)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_start_that_is_not_finite_is_refused(value: float) -> None:
    modules = Modules()
    before = {k: v.clone() for k, v in modules.state_dict().items()}
    climb = AscentObjective(
        lambda: (modules.logs().sum() * value, None), Coordinates(modules, True)
    )
    with pytest.raises(StateError, match="Standardize"):
        climb.start()
    climb.settle()
    assert climb.best is None
    assert all(torch.equal(v, before[k]) for k, v in modules.state_dict().items())
    assert all(p.grad is None for p in modules.parameters())


def test_further_parameters_follow_the_hyperparameters() -> None:
    modules, extra = Modules(), nn.Parameter(torch.zeros(3, 2).double())
    wanted = torch.arange(6.0).double().reshape(3, 2) - 2.0

    def objective() -> tuple[Tensor, None]:
        return -(extra - wanted).square().sum() - modules.logs().square().sum(), None

    coordinates = Coordinates(modules, skip_mean=True)
    coordinates.add(extra, "extra")
    climb = AscentObjective(objective, coordinates)
    end = ascend(climb, Ascent(climb.start()), 100, 1e-10)
    climb.settle()
    torch.testing.assert_close(extra.detach(), wanted, atol=1e-3, rtol=0.0)
    assert float(modules.logs().abs().max()) < 1e-3
    torch.testing.assert_close(climb.coordinates.get(), end.at.u)


def test_far_starts_are_told_by_names_and_stay_in_bounds() -> None:
    modules = Modules(dim=3, constraint=Interval(0.5, 2.0, initial_value=1.0))
    coordinates = Coordinates(modules, skip_mean=True)
    now = coordinates.get()
    assert coordinates.named("lengthscale").tolist() == [False, True, True, True, False]
    assert coordinates.named("noise").tolist() == [False] * 4 + [True]
    starts = far_starts(coordinates, now, now)
    assert len(starts) >= 3
    for u in starts:
        assert torch.equal(coordinates.clip(u), u) and u[0] == now[0]
    assert not any(torch.equal(u, v) for u in starts for v in starts if u is not v)
    again = far_starts(coordinates, now, now)
    assert all(torch.equal(u, v) for u, v in zip(starts, again, strict=True))
    moved = now + 0.1
    assert torch.equal(far_starts(coordinates, now, moved)[0], now)


@pytest.mark.parametrize("dim", [2, 6, 9])
def test_each_lengthscale_is_short_in_a_start_where_others_are_long(dim: int) -> None:
    modules = Modules(dim=dim)
    coordinates = Coordinates(modules, skip_mean=True)
    now = coordinates.get()
    lengths = coordinates.named("lengthscale")
    parts = torch.stack([u[lengths] < now[lengths] for u in far_starts(coordinates, now, now)])
    mixed = parts[parts.any(-1) & ~parts.all(-1)]
    assert mixed.sum(0).tolist() == [1] * dim
    assert len(mixed) <= 6 and int(mixed.sum(-1).max()) <= 2


def test_no_start_comes_twice_where_the_noise_is_known() -> None:
    modules = Modules(dim=1)
    modules.likelihood.noise_covar.raw_noise.requires_grad_(False)
    coordinates = Coordinates(modules, skip_mean=True)
    now = coordinates.get()
    assert len(far_starts(coordinates, now, now)) == 2


def test_nothing_to_explore_without_lengthscales_and_noise() -> None:
    modules = Modules()
    modules.covar_module.base_kernel.raw_lengthscale.requires_grad_(False)
    modules.likelihood.noise_covar.raw_noise.requires_grad_(False)
    coordinates = Coordinates(modules, skip_mean=True)
    assert far_starts(coordinates, coordinates.get(), coordinates.get()) == []
