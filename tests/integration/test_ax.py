"""Ax drives every family as it drives BoTorch's own models; skipped where Ax is not installed."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import qUpperConfidenceBound
from botorch.acquisition.multi_objective import qNoisyExpectedHypervolumeImprovement
from botorch.models import ModelListGP

from bo_stream.surrogates.registry import FAMILIES

pytest.importorskip("ax", reason="Ax is not installed (pip install ax-platform)")

from ax import Client, RangeParameterConfig
from ax.adapter.cross_validation import cross_validate
from ax.adapter.registry import Generators
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig

pytestmark = pytest.mark.filterwarnings("ignore")

WISKI_FIRST = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "wiski")) for n in FAMILIES]
)

SMALL: dict[str, dict[str, Any]] = {
    "wiski": {"grid_size": 12},
    "hsgp": {"num_features": 20},
    "svdgp": {"window": 10, "covar_basis": 8, "slack": 2},
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.INFO)
    yield
    logging.disable(logging.NOTSET)


def run(
    model_class: type,
    options: dict[str, Any] | None = None,
    *,
    bounds: tuple[float, float] = (0.0, 10.0),
    sem: float | None = None,
    objective: str = "f",
    pending: int = 1,
    start: int = 4,
    steps: int = 2,
    **generator: Any,
) -> Any:
    """A few steps of Bayesian optimisation in two dimensions; Ax's adapter at the end."""
    config = ModelConfig(botorch_model_class=model_class, model_options=options or {})
    generator["surrogate_spec"] = SurrogateSpec(model_configs=[config])
    sobol = GeneratorSpec(generator_enum=Generators.SOBOL, generator_kwargs={"seed": 0})
    bo = GeneratorSpec(generator_enum=Generators.BOTORCH_MODULAR, generator_kwargs=generator)
    first = MinTrials(threshold=start, transition_to="bo")
    client = Client(random_seed=0)
    client.configure_experiment(
        [RangeParameterConfig(name=k, parameter_type="float", bounds=bounds) for k in "xy"]
    )
    client.configure_optimization(objective=objective)
    client.set_generation_strategy(
        GenerationStrategy(
            name="stream",
            nodes=[
                GenerationNode(name="sobol", generator_specs=[sobol], transition_criteria=[first]),
                GenerationNode(name="bo", generator_specs=[bo]),
            ],
        )
    )
    for _ in range(-(-start // pending) + steps):
        for index, point in client.get_next_trials(max_trials=pending).items():
            x, y = (10.0 * (point[k] - bounds[0]) / (bounds[1] - bounds[0]) for k in "xy")
            seen = {"f": float(np.sin(x / 2) + np.cos(0.3 * y) + x * y / 100), "g": -x}
            data = {k: v if sem is None else (v, sem) for k, v in seen.items() if k in objective}
            client.complete_trial(index, raw_data=data)
    trials = client._experiment.trials.values()
    assert [g._generation_node_name for t in trials for g in t.generator_runs][-1] == "bo"
    return client._generation_strategy.adapter


def model_of(adapter: Any) -> Any:
    return adapter.generator.surrogate.model


UCB: dict[str, Any] = {
    "botorch_acqf_class": qUpperConfidenceBound,
    "acquisition_options": {"beta": 4.0},
}


@WISKI_FIRST
def test_families_with_pending_batches_and_known_noise(name: str) -> None:
    adapter = run(FAMILIES[name], SMALL.get(name), pending=2, sem=0.1, steps=1, **UCB)
    model = model_of(adapter)
    assert isinstance(model, FAMILIES[name])
    assert model.noise_mode == "known" and model.num_observed >= 4


@WISKI_FIRST
def test_families_with_the_default_acquisition(name: str) -> None:
    model = model_of(run(FAMILIES[name], SMALL.get(name)))
    assert isinstance(model, FAMILIES[name])
    assert model.noise_mode == "learned" and model.num_observed >= 5


@WISKI_FIRST
@pytest.mark.parametrize(
    "acqf",
    [
        qNoisyExpectedHypervolumeImprovement,
        pytest.param(None, marks=pytest.mark.slow, id="default"),  # compiles an extension
    ],
)
def test_two_objectives(name: str, acqf: type | None) -> None:
    """Ax builds one surrogate per outcome and joins them itself."""
    chosen = {} if acqf is None else {"botorch_acqf_class": acqf}
    models = model_of(run(FAMILIES[name], SMALL.get(name), objective="f, g", steps=1, **chosen))
    assert isinstance(models, ModelListGP)
    assert [type(m) for m in models.models] == [FAMILIES[name]] * 2


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        ("left out", (0.0, 1.0)),
        ("left out", (-30.0, -20.0)),
        ("unit cube", (-30.0, -20.0)),
        pytest.param("unit cube", (0.0, 1.0), marks=pytest.mark.slow),
        ("raw", (-30.0, -20.0)),
    ],
)
def test_bounds_come_from_the_search_space(given: str, bounds: tuple[float, float]) -> None:
    """Whether Ax hands over a `Normalize` or, on the unit cube, no transform at all."""
    box = torch.tensor([[low] * 2 for low in bounds], dtype=torch.double)
    cube = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    options = {"left out": {}, "unit cube": {"bounds": cube}, "raw": {"bounds": box}}[given]
    model = model_of(
        run(FAMILIES["wiski"], {**options, "grid_size": 12}, bounds=bounds, steps=1, **UCB)
    )
    assert torch.allclose(model.bounds, box)


def test_exact_evaluations() -> None:
    """Ax says so by a standard error of zero."""
    model = model_of(run(FAMILIES["wiski"], {"grid_size": 12}, sem=0.0, steps=1, **UCB))
    assert model.noise_mode == "known" and model.typical_noise() > 0


def test_cross_validation_leaves_points_out() -> None:
    """Its models learn from their part of the data only: they miss what those of all data hit."""
    torch.manual_seed(0)
    adapter = run(FAMILIES["wiski"], {"grid_size": 12}, start=10, steps=1, **UCB)
    results = cross_validate(adapter, folds=5)
    seen = [r.observed.data.means_dict["f"] for r in results]
    gaps = [r.predicted.means_dict["f"] - y for r, y in zip(results, seen, strict=True)]
    held = adapter.predict([r.observed.features for r in results])[0]["f"]
    known = [a - b for a, b in zip(held, seen, strict=True)]
    error, known_error = np.std(gaps) + abs(np.mean(gaps)), np.abs(known).max()
    assert 3.0 * known_error < error < 2.0 * np.std(seen)
