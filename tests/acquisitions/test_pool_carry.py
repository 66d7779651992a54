"""What is kept between steps of a pool, against distributions made anew at every step."""

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.transforms import Standardize
from gpytorch.kernels import MaternKernel
from torch import Tensor

from acquisitions import NIPV, MaxVariance, select_from_pool
from bo_stream import HSGP, SVDGP, CaGP, ExactGP, NodeWISKI, OnlineSGPR
from bo_stream.actions import BlockSparse
from bo_stream.actions.top_eigenvectors import TopEigenvectors
from bo_stream.base.botorch_model import BoTorchModel
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.growth import VIPS
from bo_stream.mathematics.posterior.pool import PoolCovariances
from tests.calls import calls_of

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def points(n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 2, dtype=torch.float64, generator=generator)


def values(X: Tensor, outputs: int = 1) -> Tensor:
    columns = [torch.sin(6.0 * X[:, 0]) * X[:, 1], X[:, 0] - X[:, 1] ** 2]
    noise = torch.Generator().manual_seed(len(X))
    Y = 5.0 + 3.0 * torch.stack(columns[:outputs], -1)
    return Y + 0.3 * torch.randn(Y.shape, generator=noise, dtype=torch.float64)


X, T, POOL = points(30, 0), points(16, 1), points(40, 2)
Y = values(X)


def made(kind: Any, outputs: int = 1, **options: Any) -> StreamingGP:
    Yo = values(X, outputs)
    model: StreamingGP = kind(
        X, Yo, bounds=BOUNDS, outcome_transform=Standardize(outputs), **options
    )
    return model


FAMILIES: dict[str, Callable[..., StreamingGP]] = {
    "exact": lambda **kw: made(ExactGP, **kw),
    "exact, Matern": lambda **kw: made(ExactGP, covar_module=MaternKernel(nu=2.5), **kw),
    "blocks": lambda **kw: made(CaGP, actions=BlockSparse(20), max_actions=60, **kw),
    "blocks, merged": lambda **kw: made(CaGP, actions=BlockSparse(20), max_actions=21, **kw),
    "eigenvectors": lambda **kw: made(CaGP, actions=TopEigenvectors(12), **kw),
    "sines": lambda **kw: made(HSGP, num_features=40, main_effects=False, **kw),
    "nodes below the cap": lambda **kw: made(NodeWISKI, cap=100, **kw),
    "nodes at the cap": lambda **kw: made(NodeWISKI, cap=20, **kw),
    "inducing points": lambda **kw: made(OnlineSGPR, growth=VIPS(0.1), **kw),
    "decoupled": lambda **kw: made(SVDGP, covar_basis=20, window=30, slack=5, **kw),
}


def families(quick: list[str], slow: list[str]) -> Any:
    return pytest.mark.parametrize(
        "family", [*quick, *(pytest.param(f, marks=pytest.mark.slow) for f in slow)]
    )


FEW = ["exact", "sines", "inducing points"]
OTHERS = ["blocks", "nodes below the cap", "decoupled"]
VARIANTS = ["exact, Matern", "blocks, merged", "eigenvectors", "nodes at the cap"]
EVERY, ONE_EACH = families(FEW + OTHERS, VARIANTS), families(FEW + OTHERS, [])
A_FEW = families(FEW, OTHERS)  # where what families do differently hardly matters
# `observe` merges actions, or learns hyperparameters
ANEW = ("blocks, merged", "eigenvectors")
EXACT = ("exact", "exact, Matern", "blocks", "sines")  # new data do nothing but condition


def absorb(model: StreamingGP, rows: Tensor, outputs: int = 1) -> None:
    keep = {"refit": False} if isinstance(model, OnlineSGPR) else {}
    model.observe(rows, values(rows, outputs), **keep)


def agreed(model: BoTorchModel, pool: Tensor = POOL, q: int = 3, **options: Any) -> list[int]:
    """The picks, which are those of distributions made anew, value for value."""
    acqf = NIPV(model, options.pop("T", T), **options)
    anew, expected = select_from_pool(acqf, pool, q, chunk_size=len(pool) - 1)  # keeps nothing
    indices, scores = select_from_pool(NIPV(model, acqf.mc_points, **options), pool, q)
    assert indices.tolist() == anew.tolist()
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-13)
    picks: list[int] = indices.tolist()
    return picks


def steps(model: StreamingGP, count: int, outputs: int = 1, **options: Any) -> Tensor:
    """Steps of an active learner; what is left of the pool."""
    left = POOL
    for _ in range(count):
        picks = agreed(model, left, **options)
        absorb(model, left[picks], outputs)
        left = left[[i for i in range(len(left)) if i not in picks]]
    return left


@pytest.fixture
def fresh() -> Iterator[list[dict[str, Any]]]:
    """Grows by one whenever covariances are computed in full."""
    with calls_of(PoolCovariances.over) as calls:
        yield calls


@EVERY
def test_steps_go_on_from_the_last_and_agree_with_new_ones(family: str, fresh: list) -> None:
    steps(FAMILIES[family](), 3)
    assert len(fresh) == 1 or family in ANEW


@A_FEW
def test_hyperparameters_that_change_are_followed(family: str, fresh: list) -> None:
    model = FAMILIES[family]()
    agreed(model)
    changes: list[Callable[[], Any]] = [
        lambda: setattr(_base(model), "lengthscale", 0.3 * _base(model).lengthscale),
        lambda: setattr(model.likelihood, "noise", 3.0 * model.likelihood.noise),
        lambda: setattr(model.mean_module, "constant", 0.7),
        lambda: model.fit(3),
    ]
    for number, change in enumerate(changes):
        change()
        before = len(fresh)
        agreed(model)
        assert len(fresh) == before + 1
        absorb(model, POOL[number : number + 1])
        agreed(model)


def _base(model: StreamingGP) -> Any:
    return getattr(model.covar_module, "base_kernel", model.covar_module)


@A_FEW
def test_other_test_points_weights_and_candidates_are_noticed(family: str, fresh: list) -> None:
    model = FAMILIES[family]()
    weights = torch.rand(len(T), generator=torch.Generator().manual_seed(3)).double()
    for options in ({}, {"T": T[:-1]}, {"T": points(16, 9)}, {"weights": weights}):
        agreed(model, **options)
    assert len(fresh) == 4
    agreed(model, points(40, 10), weights=weights)
    agreed(model, torch.cat([POOL, points(1, 11)]), weights=weights)
    assert len(fresh) == 6
    agreed(model, POOL.flip(0)[:20], weights=weights)  # but some, in any order, are at hand
    agreed(model, POOL.flip(0)[:20], weights=weights)
    assert len(fresh) == 6


@pytest.mark.parametrize("family", EXACT)
def test_data_seen_without_a_pool_are_caught_up(family: str, fresh: list) -> None:
    model = FAMILIES[family]()
    agreed(model)
    for row in POOL[:8]:
        absorb(model, row.unsqueeze(0))
        model.posterior(T)
    agreed(model)
    assert len(fresh) == 1


@A_FEW
def test_a_state_that_is_loaded_is_followed(family: str) -> None:
    model = FAMILIES[family](loads_data=True)
    agreed(model)
    before = copy.deepcopy(model.state_dict())
    steps(model, 1)
    model.load_state_dict(before)
    steps(model, 2)


@pytest.mark.parametrize("kind", [ExactGP, CaGP, HSGP, NodeWISKI, OnlineSGPR, SVDGP])
def test_it_begins_before_any_data(kind: Any) -> None:
    options = {"bounds": BOUNDS, "outcome_transform": None}
    model = kind(X[:0], Y[:0], **options)
    for rows in (slice(0, 0), slice(0, 1), slice(1, 6)):
        absorb(model, X[rows])
        agreed(model)


@pytest.mark.parametrize("kind", [ExactGP, CaGP, HSGP, NodeWISKI, OnlineSGPR])
def test_small_noise_costs_no_accuracy(kind: Any, fresh: list) -> None:
    model = made(kind)
    model.likelihood.noise = 2e-4
    steps(model, 5)
    assert len(fresh) == 1


def test_other_units_are_followed() -> None:
    for family in ("exact", "blocks", "sines", "nodes at the cap", "inducing points"):
        model = FAMILIES[family]()
        agreed(model)
        model.restandardise(values(torch.cat([X, POOL])) * 2.0)
        agreed(model)


def test_merging_and_forgetting_are_followed() -> None:
    model = made(HSGP, num_features=40, lengthscales=[0.3, 0.3])
    other = made(HSGP, num_features=40, lengthscales=[0.3, 0.3])
    first = agreed(model)
    model.merge(other)
    agreed(model)
    model.forget(0.2)
    agreed(model)
    assert len(first) == 3


@pytest.mark.parametrize("kind", [ExactGP, NodeWISKI, HSGP])
def test_several_outputs(kind: Any, fresh: list) -> None:
    weights = torch.tensor([0.5, -2.0], dtype=torch.float64)
    transform = ScalarizedPosteriorTransform(weights)
    model = made(kind, outputs=2)
    steps(model, 3, 2, posterior_transform=transform)
    assert len(fresh) == 1


@A_FEW
def test_conditioned_posteriors_use_what_their_surrogate_keeps(family: str, fresh: list) -> None:
    model, pending = FAMILIES[family](), points(3, 4)
    agreed(model)
    for number in (1, 5):
        new = points(number, 20 + number).requires_grad_()
        given = model.condition_on_observations(new, values(new.detach()))
        assert not isinstance(given, StreamingGP)
        agreed(given, X_pending=None if number == 1 else pending)
    again = given.condition_on_observations(points(2, 30).requires_grad_(), Y[:2])
    agreed(again, X_pending=pending)
    assert len(fresh) == 1


@EVERY
def test_largest_variance_too(family: str, fresh: list) -> None:
    model = FAMILIES[family]()
    for _ in range(2):
        acqf = MaxVariance(model)
        expected, scores = select_from_pool(acqf, POOL, 3, chunk_size=30)
        indices, values_ = select_from_pool(acqf, POOL, 3)
        assert indices.tolist() == expected.tolist()
        torch.testing.assert_close(values_, scores, rtol=1e-9, atol=1e-12)
        absorb(model, POOL[indices])
    assert len(fresh) == 1 or family in ANEW


WEIGHTS = torch.full((len(T),), 1.0 / len(T), dtype=torch.float64)


@pytest.mark.parametrize("family", ["exact", "inducing points"])
def test_memory_is_bounded(family: str) -> None:
    model = FAMILIES[family]()
    kept = model.process().pool(POOL, T, WEIGHTS)
    assert isinstance(kept, PoolCovariances)
    numbers = len(POOL) * len(T) + kept.expansion.size * (len(POOL) + len(T))
    assert sum(c.numel() for c in kept.cov) + kept.rows.numel() == numbers
    process: Any = FAMILIES[family]().process()
    assert process.pool(POOL, T, WEIGHTS, largest=numbers) is not None
    assert process.pool(POOL[:-1], T[:-1], WEIGHTS[:-1], largest=numbers) is not None
    assert process.pool(points(41, 3), T, WEIGHTS, largest=numbers) is None
    assert process.carry.kept is None


@pytest.mark.parametrize("family", ["exact", "sines", "nodes at the cap"])
def test_changes_are_applied_in_time(family: str) -> None:
    """Pending changes of low rank, and then none, give the same covariances."""
    model = FAMILIES[family]()
    kept: Any = model.process().pool(POOL, T, WEIGHTS)
    ranks = []
    for seed in range(5):
        absorb(model, points(4, 50 + seed))
        process: Any = model.process()
        kept = kept.under(process.expansion(kept.expansion), deep=10)
        ranks.append(kept.left.shape[-2])
        at_pool, at_T = process.at(POOL), process.at(T)
        expected = at_pool.covariance(at_T).square() @ WEIGHTS
        torch.testing.assert_close(kept.gram_diagonal(), expected, rtol=1e-8, atol=1e-12)
    assert 0 in ranks and 0 < max(ranks) <= 10


def test_what_leaves_the_pool_is_forgotten_in_time() -> None:
    model = made(ExactGP)
    agreed(model)
    agreed(model, POOL[:32])
    kept = model.process().carry.kept[0]  # type: ignore[attr-defined]
    assert len(kept.X) == 40
    agreed(model, POOL[:20])
    kept = model.process().carry.kept[0]  # type: ignore[attr-defined]
    assert len(kept.X) == sum(c.shape[-2] for c in kept.cov) == 20


@ONE_EACH
def test_what_is_kept_is_no_state(family: str) -> None:
    model = FAMILIES[family]()
    untouched = set(model.state_dict())
    size, plain = model.state_bytes, len(pickle.dumps(model))
    model.posterior(T)
    agreed(model)
    assert set(model.state_dict()) == untouched
    assert model.state_bytes == size
    process = copy.deepcopy(model.process())
    assert process.carry.kept is None  # type: ignore[attr-defined]
    assert plain < 10_000_000
    assert pickle.loads(pickle.dumps(model)).process().carry.kept is None


@pytest.mark.parametrize("family", EXACT)
def test_a_process_keeps_its_meaning_when_the_surrogate_goes_on(family: str) -> None:
    model = FAMILIES[family]()
    agreed(model)
    before = model.condition_on_observations(points(1, 40).requires_grad_(), Y[:1])
    picks, scores = select_from_pool(NIPV(before, T), POOL, 4)
    steps(model, 3)
    again, same = select_from_pool(NIPV(before, T), POOL, 4)
    assert again.tolist() == picks.tolist()
    torch.testing.assert_close(same, scores, rtol=1e-9, atol=1e-13)


def test_threads_that_pick_beside_one_that_observes() -> None:
    model = made(ExactGP)
    seen: list[Exception] = []
    stop = threading.Event()

    def pick() -> None:
        while not stop.is_set():
            try:
                picks, scores = select_from_pool(NIPV(model, T), POOL, 3)
                assert bool(scores.isfinite().all()) and bool((scores.diff() > 0).all())
            except Exception as error:
                seen.append(error)

    threads = [threading.Thread(target=pick) for _ in range(2)]
    for thread in threads:
        thread.start()
    for row in POOL[:30]:
        absorb(model, row.unsqueeze(0))
    stop.set()
    for thread in threads:
        thread.join()
    assert not seen
    agreed(model)
