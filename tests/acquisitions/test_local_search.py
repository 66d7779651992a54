"""Latent improvement, its batched search, and the trials that it proposes."""

import itertools

import numpy as np
import pytest
import torch
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.models.model import Model
from torch import Tensor

from acquisitions import LocalSearch, View
from acquisitions.climb import climb
from acquisitions.domain import Domain
from acquisitions.local_search import improvement, latent
from bo_stream import ExactGP, WarpedGP
from bo_stream.campaign.outcomes.outcome import Observations
from bo_stream.errors import UnsupportedError

BOX = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.float64)


def points(n: int, seed: int = 0) -> Tensor:
    U = torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return BOX[0] + (BOX[1] - BOX[0]) * U


def branin(X: Tensor) -> Tensor:
    """Minus Branin's function; its maximum is -.397887."""
    a, b = X.unbind(-1)
    inner = b - 5.1 / (4 * torch.pi**2) * a**2 + 5 / torch.pi * a - 6
    return -(inner**2 + 10 * (1 - 1 / (8 * torch.pi)) * a.cos() + 10).unsqueeze(-1)


def model(n: int = 20, **options: str) -> WarpedGP:
    made = WarpedGP(points(n), branin(points(n)), bounds=BOX, **options)  # type: ignore[arg-type]
    made.fit()
    return made


def view(model: Model, pending: Tensor = BOX[:0], failed: Tensor = BOX[:0]) -> View:
    return View(model, Observations(BOX[:0], BOX[:0, :1]), Domain.of(BOX), pending, failed)


@pytest.mark.parametrize("centre", [(0.3, 0.6, 0.2), (1.4, 0.6, -0.5)])
def test_every_start_reaches_the_maximum_within_the_box(centre: tuple[float, ...]) -> None:
    """Of a badly scaled, rotated quadratic, which may lie outside."""
    middle, bounds = np.array(centre), np.stack([np.zeros(3), np.ones(3)])
    A = np.array([[9.0, 2.0, 0.0], [2.0, 1.0, 0.1], [0.0, 0.1, 0.2]])

    def quadratic(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gap = X - middle
        return -((gap @ A) * gap).sum(-1), -2.0 * gap @ A

    starts = torch.rand(6, 3, generator=torch.Generator().manual_seed(0)).double().numpy()
    X, values = climb(quadratic, starts, bounds, np.ones(3), 60, 1e-8, hope=1e9)
    np.testing.assert_allclose(values, quadratic(X)[0])
    assert (bounds[0] <= X).all() and (bounds[1] >= X).all()
    grid = np.array(list(itertools.product(np.linspace(0, 1, 41), repeat=3)))
    assert (values >= quadratic(grid)[0].max() - 1e-4).all()


def test_the_search_never_ends_below_its_start() -> None:
    starts, box = points(5).numpy(), BOX.numpy()

    def waves(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.sin(3.0 * X).sum(-1), 3.0 * np.cos(3.0 * X)

    for evaluations in (1, 2, 25):
        X, values = climb(waves, starts, box, box[1] - box[0], evaluations, 1e-8)
        assert (values >= waves(starts)[0] - 1e-12).all()
        assert evaluations > 1 or np.allclose(X, starts, atol=1e-14)


def test_several_functions_are_climbed_apart_and_low_climbs_dropped() -> None:
    """Each start climbs its own function; a climb that cannot win ends before it is at its top."""
    tops, sizes = np.array([[1.0, 2.0], [7.0, 9.0]]), list[int]()

    def hills(X: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sizes.append(len(X))
        low = (X[:, 1] > 12.0)[:, None]  # another hill, flat and far below
        gap, height = X - np.where(low, 14.0, tops[of]), np.where(low, 0.01, 1.0)
        return -5.0 * low[:, 0] - (height * gap * gap).sum(1), -2.0 * height * gap

    starts, of = np.array([[0.0, 1.0], [2.0, 3.0], [6.5, 8.0], [9.0, 13.0]]), np.array([0, 0, 1, 1])
    X, values = climb(hills, starts, BOX.numpy(), np.ones(2), 30, 1e-9, of=of)
    np.testing.assert_allclose(X[:3], tops[of[:3]], atol=1e-4)
    assert values[3] < -5.1 and min(sizes) < sizes[0] == 4


def test_latent_improvement_is_botorchs_without_a_warp() -> None:
    """Values and gradients, from near certainty to forty standard deviations away."""
    made = model(warp="none")
    scale = made.outcome_transform
    for best in (-1e3, -20.0, -0.4, 2e3):
        goal = float((best - scale.means.squeeze()) / scale.stdvs.squeeze())
        X = points(6, 3).requires_grad_()
        values, slopes = improvement(latent(made), goal).of_one(X.detach().numpy())
        theirs = LogExpectedImprovement(made, best)(X.unsqueeze(-2)) - scale.stdvs.log().squeeze()
        np.testing.assert_allclose(values, theirs.numpy(force=True), rtol=1e-6, atol=1e-6)
        (expected,) = torch.autograd.grad(theirs.sum(), X)
        np.testing.assert_allclose(slopes, expected.numpy(), rtol=1e-4, atol=1e-6)


def test_the_search_finds_the_maximum_and_no_point_twice() -> None:
    """As high as the best of many candidates; a believed point is worth nothing more."""
    made = model(noise="none")
    process = latent(made)
    torch.manual_seed(0)
    found = LocalSearch().propose(view(made), 1).points.numpy()
    value = improvement(process).of_one(found)[0]
    assert value > improvement(process).of_one(points(4096, 5).numpy())[0].max() - 1e-6
    assert improvement(process.believing(found)).of_one(found)[0] < value - 2.0


@pytest.mark.parametrize("noise", ["none", "learned"])
def test_batches_are_spread_and_avoid_running_and_failed_trials(noise: str) -> None:
    made, search = model(noise=noise), LocalSearch()
    torch.manual_seed(0)
    first = search.propose(view(made), 3).points
    assert first.shape == (3, 2) and (BOX[0] <= first).all() and (BOX[1] >= first).all()
    assert torch.pdist(first).min() > 1e-3
    for avoided in ({"pending": first[:1]}, {"failed": first[:1]}):
        again = search.propose(view(made, **avoided), 2).points
        assert torch.cdist(again, torch.cat([first[:1], points(20)])).min() > 1e-3
    torch.manual_seed(0)
    assert torch.equal(search.propose(view(made), 3).points, first)


def test_it_finds_an_optimum_to_several_digits() -> None:
    torch.manual_seed(0)
    X = points(6)
    made, search = WarpedGP(X, branin(X), noise="none", bounds=BOX), LocalSearch()
    best = float(branin(X).max())
    for _ in range(34):
        made.fit()
        x = search.propose(view(made), 1).points
        made.observe(x, branin(x))
        best = max(best, float(branin(x)))
    assert -0.397887 - best < 1e-3


def test_it_refuses_what_it_cannot_search() -> None:
    exact = ExactGP(points(5), branin(points(5)))
    with pytest.raises(UnsupportedError, match="WarpedGP"):
        LocalSearch().propose(view(exact), 1)
    with pytest.raises(UnsupportedError, match="observation"):
        LocalSearch().propose(view(WarpedGP(BOX[:0], BOX[:0, :1], bounds=BOX)), 1)
