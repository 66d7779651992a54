"""Optuna runs on the streaming sampler, in one process and several; skipped without Optuna."""

import copy
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from bo_stream import CountGP
from bo_stream.campaign.effort import Optimiser
from bo_stream.errors import InputError, UnsupportedError

pytest.importorskip("optuna", reason="Optuna is not installed (pip install optuna)")

import optuna

from bo_stream.integrations.optuna import StreamingSampler
from tests.integration.small_surrogates import QUICK, Peak, counting

pytestmark = pytest.mark.usefixtures("quiet_optuna")


def sampler(**changes: Any) -> StreamingSampler:
    return StreamingSampler(**{**QUICK, "seed": 0, **changes})


def study(sampler: Any, direction: str = "minimize", **kw: Any) -> Any:
    return optuna.create_study(sampler=sampler, direction=direction, **kw)


def bowl(trial: Any) -> float:
    """Least, zero, at x = 3 and rate = 0.01."""
    x, rate = trial.suggest_float("x", 0.0, 4.0), trial.suggest_float("rate", 1e-4, 1.0, log=True)
    return float((x - 3.0) ** 2 + (np.log10(rate) + 2.0) ** 2)


def points(study: Any) -> np.ndarray:
    return np.array([[t.params["x"], np.log10(t.params["rate"])] for t in study.trials])


def test_it_finds_the_best_point() -> None:
    """Maximised, unlike in the other tests."""
    surrogate, losses = {"name": "wiski", "grid_size": 12}, {}
    for name, kind in {
        "streaming": sampler(surrogate=surrogate, optimiser=Optimiser(2, 32, {"maxiter": 20})),
        "random": optuna.samplers.RandomSampler(0),
    }.items():
        done = study(kind, "maximize")
        done.optimize(lambda trial: -bowl(trial), n_trials=15)
        losses[name] = -done.best_value
    assert losses["streaming"] < 0.02 < losses["random"]


def test_the_surrogate_observes_each_trial_once() -> None:
    batches: list[int] = []
    ours = sampler(initial=4, surrogate=counting(batches))
    running = study(ours)
    running.optimize(bowl, n_trials=5)
    model = ours.model
    assert model is not None and model.num_observed == 4
    batches.clear()
    running.optimize(bowl, n_trials=6)
    assert ours.model is model
    assert batches == [1] * 6 and model.num_observed == 10


def test_a_logarithmic_scale_is_modelled_as_such() -> None:
    ours = sampler()
    running = study(ours)
    running.optimize(bowl, n_trials=8)
    assert ours.model is not None
    rate, x = ours.model.bounds.T.tolist()  # by name
    assert np.allclose(rate, np.log([1e-4, 1.0])) and x == [0.0, 4.0]


def test_startup_points_are_spread() -> None:
    """Each quarter of the square gets two of eight Sobol points, after a first random one."""
    running = study(sampler(initial=20))
    running.optimize(bowl, n_trials=9)
    spread = points(running)[1:]
    halves = np.column_stack([spread[:, 0] > 2.0, spread[:, 1] > -2.0]) @ [1, 2]
    assert (np.bincount(halves, minlength=4) >= 1).all()


def test_threads_and_asks_at_once_get_different_points() -> None:
    """Trials that have not suggested anything yet are pending too: the sampler gave them points."""
    running = study(sampler())
    running.optimize(bowl, n_trials=8)
    space = {"x": (0.0, 4.0), "rate": (1e-4, 1.0)}
    for trial in [running.ask() for _ in range(4)]:
        trial.suggest_float("x", *space["x"]), trial.suggest_float("rate", *space["rate"], log=True)
    asked = points(running)[8:]
    gaps = np.linalg.norm(asked[:, None] - asked, axis=-1) + 9 * np.eye(4)
    assert gaps.min() > 0.02
    running.optimize(bowl, n_trials=6, n_jobs=2)
    assert len(np.unique(points(running), axis=0)) == len(running.trials)


def test_pending_points_are_avoided_before_they_are_suggested() -> None:
    ours = sampler()
    running = study(ours)
    running.optimize(bowl, n_trials=8)
    first, second = running.ask(), running.ask()
    assert first.params == {} == second.params
    one, two = (np.array([*t.relative_params.values()]) for t in (first, second))
    assert np.abs(one - two).max() > 0.02


def test_two_workers_share_a_storage(tmp_path: Path) -> None:
    """With the same seed: each sees the other's trials, under way and complete."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    workers = [
        study(sampler(), study_name="oven", storage=url, load_if_exists=True) for _ in range(2)
    ]
    for _ in range(5):
        trials = [worker.ask() for worker in workers]
        values = [bowl(trial) for trial in trials]
        for worker, trial, value in zip(workers, trials, values, strict=True):
            worker.tell(trial, value)
    for worker in workers:
        assert worker.sampler.model.num_observed == 8
    assert len(np.unique(points(workers[0]).round(6), axis=0)) == 10


def test_running_trials_of_others_are_pending() -> None:
    storage = optuna.storages.InMemoryStorage()
    study(sampler(), study_name="oven", storage=storage).optimize(bowl, n_trials=8)

    def next_after(others: list[dict[str, float]]) -> np.ndarray:
        alone = study(sampler(), study_name="oven", storage=storage, load_if_exists=True)
        trials = []
        for params in others:
            alone.enqueue_trial(params)
            trials.append(alone.ask())
            bowl(trials[-1])
        mine = study(sampler(), study_name="oven", storage=storage, load_if_exists=True)
        chosen = mine.ask()
        bowl(chosen)
        found = dict(chosen.params)
        for trial in (*trials, chosen):
            mine.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        return np.array([found["x"], np.log10(found["rate"])])

    free = next_after([])
    taken = next_after([{"x": float(free[0]), "rate": float(10.0 ** free[1])}])
    assert np.abs(taken - free).max() > 0.05


def mixed(trial: Any) -> float:
    """Least, zero, at x = 3, n = 40, step = .5, width = 6 and None."""
    x, n = trial.suggest_float("x", 0.0, 4.0), trial.suggest_int("n", 1, 1000, log=True)
    step = trial.suggest_float("step", 0.0, 1.0, step=0.25)
    width = trial.suggest_int("width", 2, 10, step=4)
    kind = trial.suggest_categorical("kind", ["a", None, 3])
    steps = (x - 3.0) ** 2 + np.log10(n / 40) ** 2 + (step - 0.5) ** 2 + (width - 6) ** 2 / 16
    trial.report(float(steps), 0)
    if trial.should_prune():
        raise optuna.TrialPruned
    return float(steps + (kind is not None))


def test_every_kind_of_parameter_is_modelled(tmp_path: Path) -> None:
    """With Optuna's own storage and pruning, and over a resume."""
    options: dict[str, Any] = {
        "storage": f"sqlite:///{tmp_path}/optuna.db",
        "pruner": optuna.pruners.MedianPruner(n_startup_trials=8),
        "study_name": "mixed",
    }
    ours = StreamingSampler(seed=0, budget=30)
    running = study(ours, **options)
    running.optimize(mixed, n_trials=14)
    assert ours.model is not None and ours.model.bounds.shape[-1] == 5
    again = study(StreamingSampler(seed=0, budget=30), load_if_exists=True, **options)
    again.optimize(mixed, n_trials=14)
    states = {trial.state.name for trial in again.trials}
    assert states == {"COMPLETE", "PRUNED"} and again.best_value < 0.05
    assert again.best_params["kind"] is None and again.best_params["width"] == 6


SUGGESTED: dict[str, Callable[[Any], Any]] = {
    "steps beyond the bound": lambda t: t.suggest_float("x", 0.1, 0.7, step=0.1),
    "negative steps": lambda t: t.suggest_float("x", -0.7, -0.1, step=0.2),
    "a step of 0.3": lambda t: t.suggest_float("x", 0.0, 0.9, step=0.3),
    "many steps": lambda t: t.suggest_float("x", 0.0, 1e6, step=1e-3),
    "a logarithm": lambda t: t.suggest_float("x", 1e-7, 0.3, log=True),
    "a huge range": lambda t: t.suggest_float("x", -1e60, 1e60),
    "a tiny range": lambda t: t.suggest_float("x", 0.1, 0.1 + 1e-13),
    "integers": lambda t: t.suggest_int("x", -7, 5),
    "stepped integers": lambda t: t.suggest_int("x", 3, 38, step=7),
    "integers on a logarithmic scale": lambda t: t.suggest_int("x", 1, 1_000, log=True),
    "huge integers": lambda t: t.suggest_int("x", -(2**62), 2**62),
    "categories": lambda t: t.suggest_categorical("x", ["a", None, 2.5, True]),
}


@pytest.mark.parametrize("name", SUGGESTED)
def test_every_proposal_is_one_that_optuna_takes(name: str) -> None:
    """Otherwise Optuna draws from the independent sampler and says nothing."""
    drawn: list[str] = []

    class Independent(optuna.samplers.RandomSampler):
        def sample_independent(self, *args: Any) -> Any:
            drawn.append(args[2])
            return super().sample_independent(*args)

    def objective(trial: Any) -> float:
        x = SUGGESTED[name](trial)
        return float(x) if type(x) in (int, float) else 0.0

    running = study(sampler(initial=4, independent_sampler=Independent(0)), "maximize")
    running.optimize(objective, n_trials=10)
    assert drawn == ["x"]


def test_the_top_of_a_stepped_range_is_proposed() -> None:
    """Computed as Optuna does: 0.1 + 6 * 0.1 is above 0.7."""
    running = study(sampler(), "maximize")
    running.optimize(lambda t: t.suggest_float("x", 0.1, 0.7, step=0.1), n_trials=15)
    values = [trial.value for trial in running.trials]
    assert values.count(0.7) >= 3
    allowed = {min(0.1 + k * 0.1, 0.7) for k in range(7)}
    assert set(values) <= allowed


def test_options_that_depend_on_the_number_of_parameters() -> None:
    """They are valid for some study; where they are not, it says so."""
    for surrogate in ("projected_wiski", {"name": "wiski", "grid_size": [30, 30]}):
        sampler(surrogate=surrogate)
    with pytest.raises(InputError):
        sampler(surrogate={"name": "wiski", "grid_size": [30, -1]})
    running = study(sampler(surrogate={"name": "wiski", "grid_size": [9, 9]}, initial=3))
    running.optimize(bowl, n_trials=5)
    assert running.sampler.model.grid.sizes == (9, 9)


def test_parameters_of_some_trials_only_are_sampled_independently() -> None:
    def objective(trial: Any) -> float:
        kind = trial.suggest_categorical("kind", ["a", "b"])
        return bowl(trial) + (trial.suggest_int("n", 1, 5) if kind == "a" else 0.0)

    ours = sampler()
    running = study(ours)
    running.optimize(objective, n_trials=12)
    assert ours.model is not None and ours.model.bounds.shape[-1] == 3
    assert any("n" in trial.params for trial in running.trials)


def test_a_space_that_changes_begins_anew() -> None:
    ours = sampler()
    running = study(ours)
    running.optimize(bowl, n_trials=8)
    before = ours.model

    def other(trial: Any) -> float:
        return (trial.suggest_float("x", 0.0, 4.0) - 3.0) ** 2

    running.optimize(other, n_trials=2)
    assert ours.model is not before
    assert ours.model is not None and ours.model.bounds.shape[-1] == 1
    assert ours.model.num_observed == 9


def test_failed_pruned_and_infinite_trials_teach_nothing() -> None:
    ours = sampler()
    running = study(ours)

    def objective(trial: Any) -> float:
        value = bowl(trial)
        match trial.number:
            case 7:
                raise RuntimeError("broken")
            case 8:
                raise optuna.TrialPruned
            case 9:
                return float("nan")
            case 10:
                return float("inf")
        return value

    running.optimize(objective, n_trials=12, catch=(RuntimeError,))
    assert ours.model is not None and ours.model.num_observed == 7


def test_points_that_failed_are_not_proposed_again() -> None:
    """Though the acquisition function prefers them."""
    running = study(sampler(acquisition=Peak))
    running.optimize(bowl, n_trials=8)

    def broken(trial: Any) -> float:
        bowl(trial)
        raise RuntimeError("broken")

    assert np.allclose(points(running)[7], [2.0, -2.0], atol=1e-3)
    running.optimize(broken, n_trials=1, catch=(RuntimeError,))
    running.optimize(bowl, n_trials=1)
    assert np.allclose(points(running)[8], [2.0, -2.0], atol=1e-3)
    assert np.abs(points(running)[9] - points(running)[8]).max() > 2e-3


def test_a_study_that_is_loaded_again_goes_on() -> None:
    storage = optuna.storages.InMemoryStorage()
    study(sampler(), study_name="oven", storage=storage).optimize(bowl, n_trials=10)
    ours = sampler()
    again = optuna.load_study(study_name="oven", storage=storage, sampler=ours)
    again.optimize(bowl, n_trials=6)
    assert ours.model is not None and ours.model.num_observed == 15
    assert len(again.trials) == 16 and again.best_value < 0.05


def test_a_trial_of_ones_own_outside_the_bounds_is_left_out() -> None:
    ours = sampler()
    running = study(ours)
    running.optimize(bowl, n_trials=4)
    running.enqueue_trial({"x": 9.0, "rate": 0.5})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        running.optimize(bowl, n_trials=6)
    assert running.trials[4].params["x"] == 9.0
    assert ours.model is not None and ours.model.num_observed == 8


def test_the_same_seed_gives_the_same_study() -> None:
    first, second, other = (study(sampler(seed=seed)) for seed in (1, 1, 2))
    for each in (first, second, other):
        each.optimize(bowl, n_trials=9)
    assert (points(first) == points(second)).all()
    assert not (points(first) == points(other)).any()


def test_another_study_begins_anew() -> None:
    ours, storage = sampler(), optuna.storages.InMemoryStorage()
    study(ours, storage=storage).optimize(bowl, n_trials=8)
    study(ours, storage=storage).optimize(bowl, n_trials=3)
    assert ours.model is None


def test_a_copy_follows_the_storage_itself() -> None:
    ours = sampler()
    running = study(ours)
    running.optimize(bowl, n_trials=8)
    for copied in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert copied.model is None
        running.sampler = copied
        running.optimize(bowl, n_trials=1)
        assert copied.model.num_observed == len(running.trials) - 1


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="'nonesuch'"):
        StreamingSampler("nonesuch")
    with pytest.raises(InputError, match="'nonesuch'"):
        StreamingSampler(acquisition="nonesuch")
    with pytest.raises(InputError, match="initial, an integer of 2 or more"):
        StreamingSampler(initial=1)
    for name in ("seed", "initial", "fit", "optimiser", "independent_sampler"):
        with pytest.raises(InputError, match=f"{name}.*'many'"):
            StreamingSampler(**cast(Any, {name: "many"}))
    running = study(sampler(surrogate=lambda *data, **options: None, initial=2))
    with pytest.raises(InputError, match="NoneType from the callable"):
        running.optimize(bowl, n_trials=4)
    with pytest.raises(InputError, match="Campaign with `outcome`"):
        StreamingSampler(cast(Any, CountGP))
    two = optuna.create_study(sampler=sampler(), directions=["minimize", "maximize"])
    with pytest.raises(UnsupportedError, match="one objective"):
        bowl(two.ask())
