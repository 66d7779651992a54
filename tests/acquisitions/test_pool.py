"""Selection from a pool against scoring every extension of the batch anew."""

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from botorch.acquisition.analytic import UpperConfidenceBound
from botorch.acquisition.monte_carlo import qUpperConfidenceBound
from botorch.exceptions.errors import UnsupportedError as BotorchUnsupportedError
from botorch.models.transforms import Standardize
from botorch.sampling.normal import SobolQMCNormalSampler
from gpytorch.kernels import RBFKernel
from torch import Tensor

from acquisitions import NIPV, MaxVariance, Random, select_from_pool
from bo_stream import WISKI, ExactGP
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import InputError, NoiseError, ShapeError, UnsupportedError
from tests.raw import RAW

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def points(n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 2, dtype=torch.float64, generator=generator)


X, T, POOL = points(12, 0), points(20, 1), points(25, 2)
Y = 5.0 + 3.0 * torch.sin(6.0 * X[:, :1]) * X[:, 1:]
NOISE = 10.0 ** (-3.0 + 4.0 * points(25, 3)[:, 0])


def wiski() -> WISKI:
    return WISKI(
        X, Y, bounds=BOUNDS, grid_size=10, outcome_transform=Standardize(1), input_transform=None
    )


def exact() -> ExactGP:
    return ExactGP(X, Y, bounds=BOUNDS, outcome_transform=Standardize(1), input_transform=None)


FAMILIES = pytest.mark.parametrize("family", [wiski, exact])


def conditioned(model: StreamingGP, chosen: list[int], noise: Tensor) -> object:
    """The model given (imagined) values at chosen points with their own raw noise."""
    scaled = noise[chosen].unsqueeze(-1) / Y.std() ** 2
    X_new = POOL[chosen].clone().requires_grad_()  # asks for a conditioned posterior
    return model.condition_on_observations(X_new, torch.zeros(len(chosen), 1).double(), scaled)


def greedy(value: Callable[[list[int]], float], q: int) -> tuple[list[int], list[float]]:
    """The batch grown by the best of all extensions, each scored anew."""
    chosen: list[int] = []
    best: list[float] = []
    for _ in range(q):
        scores = [-torch.inf if i in chosen else value([*chosen, i]) for i in range(len(POOL))]
        best.append(max(scores))
        chosen.append(scores.index(best[-1]))
    return chosen, best


@FAMILIES
@pytest.mark.parametrize("chunk_size, pending", [(4096, points(3, 4)), (7, None), (2, None)])
@pytest.mark.parametrize("kind", [NIPV, MaxVariance])
def test_it_is_greedy(
    family: Callable[[], StreamingGP], chunk_size: int, kind: type, pending: Tensor | None
) -> None:
    model = family()
    acqf = NIPV(model, T) if kind is NIPV else MaxVariance(model)
    acqf.set_X_pending(pending)
    indices, values = select_from_pool(acqf, POOL, 3, chunk_size=chunk_size)
    expected, best = greedy(lambda batch: float(acqf(POOL[batch])), 3)
    assert indices.tolist() == expected
    torch.testing.assert_close(
        values, torch.tensor(best, dtype=torch.float64), rtol=1e-9, atol=1e-12
    )
    assert acqf.X_pending is None if pending is None else torch.equal(acqf.X_pending, pending)


@FAMILIES
def test_noise_per_candidate(family: Callable[[], StreamingGP]) -> None:
    model = family()

    def left(batch: list[int]) -> float:
        given = conditioned(model, batch, NOISE)
        return -float(given.posterior(T).variance.mean().detach())  # type: ignore[attr-defined]

    expected, best = greedy(left, 3)
    for noise in (NOISE, NOISE.unsqueeze(-1)):
        indices, values = select_from_pool(NIPV(model, T), POOL, 3, noise=noise)
        assert indices.tolist() == expected
        torch.testing.assert_close(
            values, torch.tensor(best, dtype=torch.float64), rtol=1e-8, atol=1e-12
        )
    assert expected != select_from_pool(NIPV(model, T), POOL, 3)[0].tolist()


@FAMILIES
@pytest.mark.parametrize("kind", [NIPV, MaxVariance])
def test_exact_measurements_of_known_points_do_no_harm(
    family: Callable[[], StreamingGP], kind: type
) -> None:
    model = family()
    acqf = NIPV(model, T) if kind is NIPV else MaxVariance(model)
    pool = torch.cat([POOL[:5], POOL[:5]])
    indices, values = select_from_pool(acqf, pool, 5, noise=torch.zeros(10))
    assert sorted(i % 5 for i in indices.tolist()) == [0, 1, 2, 3, 4]  # no place measured twice
    assert bool(values.isfinite().all())


@FAMILIES
@pytest.mark.parametrize("make", [NIPV, MaxVariance, Random])
def test_no_point_is_taken_twice(family: Callable[[], StreamingGP], make: type) -> None:
    model = family()
    acqf = NIPV(model, T) if make is NIPV else make(model)
    repeated = POOL[:4].repeat(3, 1)
    indices, _ = select_from_pool(acqf, repeated, 4)
    assert len(repeated[indices].unique(dim=0)) == 4
    with pytest.raises(InputError, match="at least 5 different points"):
        select_from_pool(acqf, repeated, 5)


def test_ties_go_to_the_lowest_index() -> None:
    empty = WISKI(X[:0], Y[:0], bounds=BOUNDS, grid_size=10, **RAW)
    nodes = torch.cartesian_prod(*[torch.linspace(0, 1, 6).double()] * 2)  # the grid's own nodes
    indices, _ = select_from_pool(MaxVariance(empty), nodes, 1)
    scores = MaxVariance(empty)(nodes.unsqueeze(-2))
    assert indices.tolist() == [int((scores == scores.max()).nonzero()[0])]


class Counted(RBFKernel):
    """Notes how many pairs it is evaluated at with the test points."""

    pairs: ClassVar[list[int]] = []

    def forward(self, x1: Tensor, x2: Tensor, **options: Any) -> Any:
        if x2.shape[-2] == len(T):
            self.pairs.append(x1.shape[-2] * len(T))
        return super().forward(x1, x2, **options)


def test_the_kernel_between_pool_and_test_points_is_evaluated_once() -> None:
    kernel = Counted(ard_num_dims=2)
    model = ExactGP(X, Y, bounds=BOUNDS, covar_module=kernel, input_transform=None)
    acqf = NIPV(model, T)
    Counted.pairs.clear()
    select_from_pool(acqf, POOL, 5, chunk_size=9)
    assert len(POOL) * len(T) <= sum(Counted.pairs) < 2.5 * len(POOL) * len(T)  # 5 picks


def test_any_other_acquisition_goes_one_by_one_with_picks_pending() -> None:
    model, pending = wiski(), points(2, 5)
    sampler = SobolQMCNormalSampler(torch.Size([32]), seed=0)
    acqf = qUpperConfidenceBound(model, beta=4.0, sampler=sampler, X_pending=pending)
    indices, values = select_from_pool(acqf, POOL, 3, chunk_size=16)
    assert torch.equal(acqf.X_pending, pending)  # restored
    chosen: list[int] = []
    for value in values:
        acqf.set_X_pending(torch.cat([pending, POOL[chosen]]))
        scores = acqf(POOL.unsqueeze(-2))
        scores[chosen] = -torch.inf
        chosen.append(int(scores.argmax()))
        torch.testing.assert_close(value, scores.max(), rtol=1e-9, atol=1e-9)
    assert indices.tolist() == chosen


def test_an_acquisition_without_pending_points_picks_one_but_not_two() -> None:
    model = wiski()
    acqf = UpperConfidenceBound(model, beta=4.0)
    indices, values = select_from_pool(acqf, POOL, 1)
    assert indices.tolist() == [int(acqf(POOL.unsqueeze(-2)).argmax())]
    with pytest.raises(BotorchUnsupportedError, match="pending"):
        select_from_pool(acqf, POOL, 2)


def test_a_conditioned_posterior_serves_as_well() -> None:
    model = wiski()
    more = points(4, 6)
    given = model.condition_on_observations(more.clone().requires_grad_(), Y[:4])
    absorbed = copy.deepcopy(model).observe(more, Y[:4])
    for kind in (lambda m: NIPV(m, T), MaxVariance):
        indices, values = select_from_pool(kind(given), POOL, 4)
        expected, scores = select_from_pool(kind(absorbed), POOL, 4)
        assert indices.tolist() == expected.tolist()
        torch.testing.assert_close(values, scores, rtol=1e-8, atol=1e-12)


def test_a_pool_asked_again_may_have_changed_in_place_and_data_been_added() -> None:
    model, pool = exact(), POOL.clone()
    for n, factor in ((0, 1.0), (0, 1.0), (0, 0.9), (3, 1.0)):
        pool *= factor
        fresh = exact()
        for surrogate in (model, fresh):
            surrogate.observe(X[:n] / 2.0, Y[:n])
        for got, expected in zip(
            select_from_pool(NIPV(model, T), pool, 3),
            select_from_pool(NIPV(fresh, T), pool, 3),
            strict=True,
        ):
            torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_what_does_not_fit_is_refused() -> None:
    model = wiski()
    acqf = NIPV(model, T)
    with pytest.raises(ShapeError, match="N x d"):
        select_from_pool(acqf, POOL.unsqueeze(0), 2)
    with pytest.raises(ShapeError, match="q >= 1"):
        select_from_pool(acqf, POOL, 0)
    with pytest.raises(NoiseError, match="one variance per candidate"):
        select_from_pool(acqf, POOL, 2, noise=NOISE[:5])
    with pytest.raises(NoiseError, match="non-negative"):
        select_from_pool(acqf, POOL, 2, noise=-NOISE)
    with pytest.raises(UnsupportedError, match="noise for Random"):
        select_from_pool(Random(model), POOL, 2, noise=NOISE)
    fantasies = model.condition_on_observations(
        X[:1].clone().requires_grad_(), torch.zeros(4, 1, 1).double()
    )
    with pytest.raises(UnsupportedError, match="unbatched"):
        select_from_pool(MaxVariance(fantasies), POOL, 2)


def test_forty_thousand_candidates() -> None:
    pool = points(40_000, 7)
    indices, values = select_from_pool(NIPV(wiski(), points(10_000, 8)), pool, 6)
    assert len(set(indices.tolist())) == 6
    assert bool((values.diff() > 0).all())  # every measurement leaves less variance
