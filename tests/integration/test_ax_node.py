"""Ax generates with the streaming node; skipped where Ax is not installed."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bo_stream import CountGP
from bo_stream.campaign.effort import Optimiser
from bo_stream.errors import BoStreamError, InputError, UnsupportedError

pytest.importorskip("ax", reason="Ax is not installed (pip install ax-platform)")

from ax import ChoiceParameterConfig, Client, RangeParameterConfig
from ax.adapter.registry import Generators
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials

from bo_stream.integrations.ax import StreamingNode
from tests.integration.small_surrogates import QUICK, Peak, counting

pytestmark = pytest.mark.filterwarnings("ignore")

X = RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 4.0))
RATE = RangeParameterConfig(name="rate", parameter_type="float", bounds=(1e-4, 1.0), scaling="log")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def node(**changes: Any) -> StreamingNode:
    return StreamingNode(**{**QUICK, "seed": 0, **changes})


def client(
    *nodes: Any, objective: str = "-loss", space: Any = (X, RATE), **optimisation: Any
) -> Any:
    made = Client(random_seed=0)
    made.configure_experiment(list(space), parameter_constraints=optimisation.pop("within", None))
    made.configure_optimization(objective, **optimisation)
    made.set_generation_strategy(GenerationStrategy(name="stream", nodes=list(nodes)))
    return made


def bowl(point: dict[str, Any]) -> float:
    """Least, zero, at x = 3 and rate = 0.01."""
    return float((point["x"] - 3.0) ** 2 + (np.log10(point["rate"]) + 2.0) ** 2)


def run(client: Any, trials: int, at_once: int = 1, sign: float = 1.0, sem: Any = None) -> None:
    for _ in range(trials // at_once):
        for index, point in client.get_next_trials(at_once).items():
            mean = sign * bowl(point)
            client.complete_trial(index, {"loss": mean if sem is None else (mean, sem)})


def losses(client: Any) -> list[float]:
    return [bowl(trial.arm.parameters) for trial in client._experiment.trials.values()]


def points(client: Any) -> np.ndarray:
    arms = [trial.arm.parameters for trial in client._experiment.trials.values()]
    return np.array([[a["x"], np.log10(a["rate"])] for a in arms])


def test_it_finds_the_best_point() -> None:
    """Maximised, unlike in the other tests; with the first trials it spreads points."""
    surrogate = {"name": "wiski", "grid_size": 12}
    thorough = node(surrogate=surrogate, optimiser=Optimiser(2, 32, {"maxiter": 20}))
    ours = client(thorough, objective="loss")
    run(ours, 14, sign=-1.0)
    sobol = GeneratorSpec(generator_enum=Generators.SOBOL, generator_kwargs={"seed": 0})
    random = client(GenerationNode(name="sobol", generator_specs=[sobol]))
    run(random, 14)
    assert min(losses(ours)) < 0.02 < min(losses(random))


def test_the_surrogate_observes_each_trial_once() -> None:
    batches: list[int] = []
    ours = node(initial=4, surrogate=counting(batches))
    running = client(ours)
    run(running, 5)
    model = ours.model
    assert model is not None and model.num_observed == 4
    batches.clear()
    run(running, 4)
    assert ours.model is model
    assert batches == [1] * 4 and model.num_observed == 8
    x, rate = model.bounds.T.tolist()
    assert x == [0.0, 4.0] and np.allclose(rate, np.log([1e-4, 1.0]))


def test_trials_at_once_get_different_points() -> None:
    """Those of one call, and those of calls before it that are still running."""
    ours = client(node())
    first = ours.get_next_trials(3)
    assert len({tuple(point.values()) for point in first.values()}) == 3
    for index, point in first.items():
        ours.complete_trial(index, {"loss": bowl(point)})
    run(ours, 3)
    ours.get_next_trials(2), ours.get_next_trials(2)
    asked = points(ours)[6:]
    gaps = np.linalg.norm(asked[:, None] - asked, axis=-1) + 9 * np.eye(4)
    assert gaps.min() > 0.02


def test_a_corner_may_be_measured_again() -> None:
    """Ax would otherwise put a random point in its place."""
    ours = client(node(optimiser=Optimiser(2, 32, {"maxiter": 20})))
    for _ in range(12):
        for index, point in ours.get_next_trials(1).items():
            ours.complete_trial(index, {"loss": point["x"] + np.log10(point["rate"])})
    trials = ours._experiment.trials.values()
    assert len(np.unique(points(ours), axis=0)) < 12
    assert {t.generator_runs[0]._generator_key for t in trials} == {"Streaming"}


def test_it_follows_another_node() -> None:
    ours = node()
    sobol = GenerationNode(
        name="sobol",
        generator_specs=[GeneratorSpec(generator_enum=Generators.SOBOL)],
        transition_criteria=[MinTrials(threshold=6, transition_to="Streaming")],
    )
    running = client(sobol, ours)
    run(running, 7)
    assert ours.model is not None and ours.model.num_observed == 6
    assert running._experiment.trials[6].generator_runs[0]._generation_node_name == "Streaming"


@pytest.mark.parametrize("sem", [None, 0.1, 0.0])
def test_noise(sem: float | None) -> None:
    ours = node()
    run(client(ours), 7, sem=sem)
    assert ours.model is not None
    assert ours.model.noise_mode == ("learned" if sem is None else "known")


def test_noise_that_is_no_longer_known_begins_anew() -> None:
    ours = node()
    running = client(ours)
    run(running, 7, sem=0.1)
    before = ours.model
    run(running, 2)
    assert ours.model is not before and ours.model is not None
    assert ours.model.noise_mode == "learned" and ours.model.num_observed == 8


def test_data_that_change_begin_anew() -> None:
    ours = node()
    running = client(ours)
    run(running, 7)
    before = ours.model
    running.attach_data(0, {"loss": 50.0})
    run(running, 1)
    assert ours.model is not before and ours.model is not None
    assert ours.model.num_observed == 7


def test_failed_trials_are_not_observed_and_not_proposed_again() -> None:
    """Though the acquisition function prefers them."""
    ours = node(acquisition=Peak)
    running = client(ours)
    run(running, 7)
    ((index, point),) = running.get_next_trials(1).items()
    running.mark_trial_failed(index)
    (other,) = running.get_next_trials(1).values()
    assert ours.model is not None and ours.model.num_observed == 7
    assert point["x"] == pytest.approx(2.0, abs=1e-3)
    apart = abs(other["x"] - point["x"]), abs(np.log10(other["rate"] / point["rate"]))
    assert max(apart) > 2e-3


def test_an_experiment_goes_on_with_a_new_node() -> None:
    """As after loading it: the node learns what it missed."""
    running = client(node())
    run(running, 7)
    ours = node()
    running.set_generation_strategy(GenerationStrategy(name="again", nodes=[ours]))
    run(running, 2)
    assert ours.model is not None and ours.model.num_observed == 8


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    """Its settings, and the criteria by which another node takes over."""
    criterion = MinTrials(threshold=99, transition_to="Other")
    other = node(name="Other", acquisition={"name": "qucb", "beta": 1.0})
    running = client(node(transition_criteria=[criterion]), other)
    run(running, 7)
    running.save_to_json_file(str(tmp_path / "experiment.json"))
    again = Client.load_from_json_file(str(tmp_path / "experiment.json"))
    before, after = (c._generation_strategy.nodes_by_name for c in (running, again))
    for name in ("Streaming", "Other"):
        assert after[name].to_dict() == before[name].to_dict()
    assert list(after["Streaming"].transition_criteria) == [criterion]
    run(again, 1)
    assert after["Streaming"].model.num_observed == 7
    assert (points(again)[:7] == points(running)).all()


def test_fixed_parameters_of_the_space_are_kept() -> None:
    one = ChoiceParameterConfig(name="kind", parameter_type="str", values=["a"])
    ours = node()
    running = client(ours, space=(X, RATE, one))
    run(running, 7)
    assert ours.model is not None and ours.model.bounds.shape[-1] == 2
    assert {t.arm.parameters["kind"] for t in running._experiment.trials.values()} == {"a"}


Z = RangeParameterConfig(name="z", parameter_type="float", bounds=(0.0, 1.0))
COUNT = RangeParameterConfig(name="n", parameter_type="int", bounds=(1, 5))
KIND = ChoiceParameterConfig(name="kind", parameter_type="str", values=["a", "b"])


LEVEL = ChoiceParameterConfig(
    name="level", parameter_type="int", values=[1, 4, 16], is_ordered=True
)


def test_every_kind_of_parameter_and_constraints_are_modelled() -> None:
    ours = StreamingNode(seed=0, budget=20)
    space = (X, RATE, Z, COUNT, KIND, LEVEL)
    running = client(ours, space=space, within=["x + z + n <= 6"])
    for _ in range(16):
        for index, point in running.get_next_trials(1).items():
            assert point["x"] + point["z"] + point["n"] <= 6.0 + 1e-9
            kinds = {"n": int, "kind": str, "level": int}
            assert all(isinstance(point[name], kind) for name, kind in kinds.items())
            loss = bowl(point) + point["n"] + (point["kind"] == "a") + abs(point["level"] - 4)
            running.complete_trial(index, {"loss": float(loss)})
    assert ours.model is not None and ours.model.bounds.shape[-1] == 6
    best, *_ = running.get_best_parameterization(use_model_predictions=False)
    assert (best["n"], best["kind"], best["level"]) == (1, "b", 4)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"objective": "loss, other"}, "one objective"),
        ({"objective": "loss + other"}, "one objective"),
        ({"outcome_constraints": ["other >= 1"]}, "1 constraints"),
    ],
    ids=["two objectives", "a sum", "outcome constraint"],
)
def test_experiments_that_it_cannot_model_are_refused(changes: Any, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        client(node(), **changes).get_next_trials(1)


def test_parameters_fixed_for_one_call_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="fixed_parameters"):
        client(node()).get_next_trials(1, fixed_parameters={"x": 1.0})


@pytest.mark.parametrize(
    "options",
    [{"surrogate": x} for x in ("nonesuch", CountGP)]
    + [{"acquisition": "nonesuch"}, {"initial": 1}],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        StreamingNode(**options)
    assert issubclass(InputError, BoStreamError)
