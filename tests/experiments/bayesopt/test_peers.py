"""Every peer behind the same ask and tell; those whose packages are missing are skipped aloud."""

import sys
from typing import Any

import pytest
import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from bo_stream.campaign.proposing.proposals import Optimiser
from bo_stream.errors import InputError, OptionError, ShapeError, StateError
from experiments.bayesopt.peers.modelled import ModelPeer, means_at
from experiments.bayesopt.peers.peer import MissingPackageError, Peer
from experiments.bayesopt.peers.registry import PEERS, peer
from experiments.bayesopt.peers.turbo import TuRBO

BOX = torch.tensor([[-1.0, 0.0], [1.0, 4.0]], dtype=torch.float64)
OPTIMUM = torch.tensor([0.3, 1.2], dtype=torch.float64)
# Budgets of seconds for all peers together.
SMALL: dict[str, dict[str, Any]] = {
    "botorch_sparse": {"steps": 30},
    "turbo": {"candidates": 100},
    "vbll": {"width": 16, "first": 100, "later": 20},
    "optuna_tpe": {"n_startup_trials": 5},
}
ASKS = {"optuna_tpe": 10, "optuna_gp": 4, "random": 12, "sobol": 12, "cma": 8, "turbo": 4}
OBSERVED = ("optuna_tpe", "optuna_gp", "random", "sobol")
MODELLED = [name for name, made in PEERS.items() if issubclass(made, ModelPeer)]


def quadratic(X: Tensor) -> Tensor:
    return -((X - OPTIMUM) / (BOX[1] - BOX[0])).square().sum(-1, keepdim=True)


def made(name: str, seed: int = 0, **options: Any) -> Peer:
    """A peer with little to spend that was told six points."""
    for package in PEERS[name].packages:
        pytest.importorskip(package)
    options = SMALL.get(name, {}) | options
    if name in MODELLED:
        options["optimiser"] = Optimiser(2, 16, {"maxiter": 20})
    one = peer(name, BOX, seed, **options)
    X = draw_sobol_samples(BOX, n=6, q=1, seed=seed).squeeze(-2)
    one.tell(X, quadratic(X))
    return one


def run(one: Peer, asks: int, q: int) -> Tensor:
    """The points asked, ``asks q x d``."""
    batches = []
    for _ in range(asks):
        batches.append(one.ask(q))
        one.tell(batches[-1], quadratic(batches[-1]))
    return torch.cat(batches)


@pytest.mark.parametrize("q", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "botorch_sparse")) for n in PEERS]
)
def test_a_peer_improves_within_its_box_and_is_repeatable(name: str, q: int) -> None:
    one = made(name)
    first, best, asks = float(one.Y[0]), float(one.Y.max()), ASKS.get(name, 4 if q == 1 else 2)
    outside = torch.get_rng_state()
    X = run(one, asks, q)
    assert X.shape == (asks * q, 2) and X.dtype == torch.float64
    assert (BOX[0] <= X).all() and (BOX[1] >= X).all()
    assert float(quadratic(X).max()) > (best if q == 3 else first)
    point = one.recommend()
    assert point.shape == (1, 2) and float(quadratic(point)) > first
    assert torch.equal(one.recommend(), point)  # asking for it changes nothing
    assert torch.equal(torch.get_rng_state(), outside)
    assert len(one.X) == 6 + asks * q and torch.equal(one.Y, quadratic(one.X))
    if q == 3:
        assert torch.equal(made(name).ask(q), X[:q])


@pytest.mark.parametrize("name", OBSERVED)
def test_peers_without_a_model_recommend_the_best_point_observed(name: str) -> None:
    one = made(name)
    run(one, 2, 3)
    assert torch.equal(one.recommend()[0], one.X[one.Y[:, 0].argmax()])


@pytest.mark.parametrize("name", MODELLED)
def test_peers_with_a_model_recommend_the_maximiser_of_its_mean(name: str) -> None:
    one = made(name)
    assert isinstance(one, ModelPeer)
    everywhere = torch.cat([one.X, draw_sobol_samples(BOX, n=512, q=1, seed=7).squeeze(-2)])
    best = float(means_at(one._fitted(), everywhere).max())
    assert float(means_at(one._fitted(), one.recommend())) >= best - 1e-3


def test_cma_recommends_the_mean_of_its_distribution_once_a_population_is_known() -> None:
    one = made("cma", options={"popsize": 6})
    for _ in range(2):
        assert torch.equal(one.recommend()[0], one.X[one.Y[:, 0].argmax()])
        run(one, 1, 3)
    mean = one._point(one._strategy.result.xfavorite)
    assert torch.equal(one.recommend()[0], mean) and not (mean == one.X).all(-1).any()


def test_cma_takes_its_population_in_batches_of_any_size_and_starts_again() -> None:
    one = made("cma", options={"maxiter": 2, "popsize": 5})
    strategy = None
    for _ in range(2):
        run(one, 1, 3)
        strategy = strategy or one._strategy
    assert strategy.popsize == 6 and strategy.countiter == 1  # in whole batches
    run(one, 1, 4)
    run(one, 1, 5)  # two of the population were left, and three more were drawn
    assert strategy.countiter == 2 and strategy.stop()
    run(one, 1, 3)
    assert one._strategy is not strategy and one._strategy.popsize == 12
    assert torch.isfinite(one.recommend()).all()


@pytest.mark.parametrize("name", ["cma", "optuna_tpe"])
def test_points_that_failed_are_given_up(name: str) -> None:
    one = made(name)
    for _ in range(4):
        X = one.ask(3)
        one.tell(X[1:], quadratic(X[1:]))
    assert len(one.X) == 6 + 4 * 2
    if name == "cma":
        one.ask(3)  # the last batch's failure is known by now
        assert one._strategy.countiter == 2
    if name == "optuna_tpe":
        states = [trial.state.name for trial in one._study.trials]
        assert states.count("FAIL") == 3 and states.count("RUNNING") == 1  # of the last batch


@pytest.mark.slow
def test_a_trust_region_halves_doubles_and_starts_again() -> None:
    one = made("turbo", design=3)
    assert isinstance(one, TuRBO)

    def told(value: float) -> float:
        one.tell(one.ask(1), torch.tensor([[value]]))
        return one._region.side

    assert [told(-1.0) for _ in range(4)] == [0.8, 0.8, 0.8, 0.4]  # four failures in a row
    assert [told(value) for value in (1.0, 2.0, 3.0, 3.001)] == [0.4, 0.4, 0.8, 0.8]
    assert one._region.successes == 0  # a gain of less than a thousandth is none
    best, one._region.side, one._region.failures = one.recommend(), 0.5**7, 3
    told(-1.0)
    assert one._model is None and one._region.begin == len(one.X)
    assert torch.equal(one.recommend(), one._closed[0].X)
    assert torch.allclose(one.recommend(), best, atol=0.5)
    X = run(one, 1, 3)
    assert one._model is not None and len(one._model.train_targets) == 3
    assert float((X.max(0).values - X.min(0).values).min()) > 0.3  # a design of the whole box
    assert torch.equal(one.recommend(), one._closed[0].X)  # that region's mean is the higher one
    told(0.5)
    assert one._region.successes == 1  # it beats this region's best, not the other's
    for _ in range(3):
        told(9.0)
    assert not torch.equal(one.recommend(), one._closed[0].X)


def test_sobol_search_goes_on_with_the_design() -> None:
    X = torch.cat([made("sobol", seed=3).X, made("sobol", seed=3).ask(4)])
    assert torch.allclose(X, draw_sobol_samples(BOX, n=10, q=1, seed=3).squeeze(-2))


@pytest.mark.parametrize("name", ["cma", "optuna_tpe", "optuna_gp", "vbll"])
def test_a_missing_package_is_named_with_its_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in PEERS[name].packages:
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            named = rf"package '{package}'.*bo_stream\[peers\]"
            with pytest.raises(MissingPackageError, match=named):
                peer(name, BOX)


def test_what_a_peer_cannot_use_is_refused() -> None:
    with pytest.raises(InputError, match="nobody"):
        peer("nobody", BOX)
    with pytest.raises(OptionError, match="fast"):
        peer("botorch", BOX, fast=True)
    one = peer("random", BOX)
    for early in (one.ask, one.recommend):
        with pytest.raises(StateError, match="initial design"):
            early()
    with pytest.raises(ShapeError, match="3, 2.*3,"):
        one.tell(torch.rand(3, 2), torch.rand(3))
    assert len(one.X) == 0


def test_points_are_kept_in_the_box_and_outcomes_in_order() -> None:
    class Far(Peer):
        def _propose(self, q: int) -> Tensor:
            return 9.0 * torch.ones(q, 2, dtype=torch.float64)

    one = Far(BOX.float())
    one.tell(BOX[:1].float(), torch.ones(1, 1))
    assert torch.equal(one.ask(2), BOX[[1, 1]])
    one.tell(BOX[1:], torch.zeros(1, 1))
    assert torch.equal(one.X, BOX) and one.Y.tolist() == [[1.0], [0.0]]
    assert torch.equal(one.recommend(), BOX[:1])
