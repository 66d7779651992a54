"""A generation node for Ax that keeps one streaming surrogate between trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from ax.core.data import Data
from ax.core.experiment import Experiment
from ax.core.generator_run import GeneratorRun
from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.types import TParameterization
from ax.generation_strategy.external_generation_node import ExternalGenerationNode
from ax.generation_strategy.transition_criterion import TransitionCriterion
from ax.storage.json_store.decoder import object_from_json
from ax.storage.json_store.registry import CORE_CLASS_DECODER_REGISTRY, CORE_ENCODER_REGISTRY
from botorch.models.model import Model

from bo_stream.base.units import largest_outcome
from bo_stream.campaign.effort import FitPolicy, Optimiser
from bo_stream.campaign.outcomes.outcomes import Goal
from bo_stream.campaign.settings import NamedChoice, Noise
from bo_stream.errors import StateError, UnsupportedError
from bo_stream.integrations.following import (
    FinishedTrial,
    FollowsTrials,
    Inputs,
    Parameter,
    input_name,
)

if TYPE_CHECKING:
    from bo_stream.campaign.settings import AcquisitionBuilder

__all__ = ["StreamingNode"]


Varied = RangeParameter | ChoiceParameter
"""Parameters of Ax that vary."""


class StreamingNode(FollowsTrials, ExternalGenerationNode):
    """Bayesian optimisation in Ax with a surrogate that observes new trials as they complete.

    The node may be a whole generation strategy, which then starts with a Sobol sequence, or follow
    other nodes, whose trials it observes too. The search space may have floats and integers, also
    on a logarithmic scale, choices, fixed parameters, and linear constraints on parameters. The
    objective is one metric. If all outcomes have a
    standard error, it is their noise. Running trials are pending points. Failed and early-stopped
    trials are not observed, but their points are not proposed again. The surrogate is rebuilt if
    observed data, the search space or the objective change.

    Ax's own predictions and plots do not use the surrogate, which is the attribute `model`. Ax
    saves the node's settings unless the surrogate or the acquisition function is a callable. They
    can be loaded where this module has been imported, and the surrogate is then rebuilt from the
    experiment's data.

    Args:
        name: Name of the node.
        surrogate: As for `bo_stream.Campaign`: a name, a mapping of a name and options, or a
            callable. By default it is chosen by the number of parameters and the budget.
        acquisition: As for `bo_stream.Campaign`.
        budget: Approximate number of trials, which some defaults depend on.
        seed: Seed of everything random; None: a new one.
        initial: Number of outcomes from which a surrogate is built.
        fit: When hyperparameters are fitted; a step is an outcome.
        noise: As for `bo_stream.Campaign`.
        optimiser: Effort of maximising acquisition functions.
        transition_criteria: When another node takes over; None: never.

    Raises:
        InputError: for invalid settings.
        UnsupportedError: when it generates candidates for an experiment that it does not support.

    Example:
        >>> from ax.generation_strategy.generation_strategy import GenerationStrategy
        >>> strategy = GenerationStrategy(name="streaming", nodes=[StreamingNode(seed=0)])
    """

    def __init__(
        self,
        name: str = "Streaming",
        surrogate: NamedChoice | Callable[..., Model] | None = None,
        acquisition: NamedChoice | AcquisitionBuilder | None = None,
        *,
        budget: int | None = None,
        seed: int | None = None,
        initial: int | None = None,
        fit: FitPolicy | None = None,
        noise: Noise | None = None,
        optimiser: Optimiser | None = None,
        transition_criteria: Sequence[TransitionCriterion] | None = None,
    ) -> None:
        FollowsTrials.__init__(
            self,
            surrogate=surrogate,
            acquisition=acquisition,
            budget=budget,
            seed=seed,
            initial=initial,
            fit=fit,
            noise=noise,
            optimiser=optimiser,
        )
        # otherwise Ax would reject a corner that is proposed twice, and give up
        ExternalGenerationNode.__init__(
            self, name, should_deduplicate=False, transition_criteria=transition_criteria
        )

    # -- what Ax calls ---------------------------------------------------------------------------

    def gen(self, **given: Any) -> GeneratorRun | None:
        """Candidates for Ax.

        Raises:
            UnsupportedError: if parameters are fixed for these candidates only.
        """
        features = given.get("fixed_features")
        if features is not None and features.parameters:
            raise UnsupportedError(
                "candidates in the whole search space",
                f"fixed_parameters={features.parameters}",
                "Leave them out, or make them fixed parameters of the search space.",
            )
        return super().gen(**given)

    def update_generator_state(self, experiment: Experiment, data: Data) -> None:
        """Read the trials, which are observed when candidates are asked for."""
        metric, goal = _objective(experiment)
        self._varied, self._fixed = _parameters(experiment)
        constraints = _constraints(experiment, self._varied, self._fixed)
        parameters = {p.name: _parameter(p) for p in self._varied}
        fixed = tuple(self._fixed.items())
        self._follow(parameters, goal, constraints, metric=metric, fixed=fixed)
        values = _values(data, metric)
        self._finished: dict[Hashable, FinishedTrial] = {}
        for index, trial in experiment.trials.items():
            for arm in trial.arms:
                inputs = self._inputs(arm.parameters)
                if inputs is not None and trial.status.is_terminal:
                    known = trial.status.is_completed and values.get((index, arm.name))
                    self._finished[index, arm.name] = FinishedTrial(inputs, *(known or ()))
        self._count = sum(len(trial.arms) for trial in experiment.trials.values())

    def get_next_candidate(self, pending_parameters: list[TParameterization]) -> TParameterization:
        """The next candidate."""
        pending = [p for p in map(self._inputs, pending_parameters) if p is not None]
        chosen = self._next(self._count, self._finished, pending)
        self._count += 1
        new = {p.name: _cast(p, x) for p, x in zip(self._varied, chosen, strict=True)}
        return {**self._fixed, **new}

    # -- saving ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Its settings, for Ax's JSON."""
        return {
            "__type": type(self).__name__,
            "name": self.name,
            "transition_criteria": list(self.transition_criteria),
            "settings": self._choices.model_dump(exclude={"goal"}, exclude_unset=True),
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """A node from its settings in Ax's JSON."""
        criteria = object_from_json(saved["transition_criteria"])
        return cls(saved["name"], transition_criteria=criteria, **saved["settings"])

    def _inputs(self, parameters: Mapping[str, Any]) -> Inputs | None:
        """Inputs of an arm; None if it is outside the search space."""
        inside = all(parameters.get(name) == value for name, value in self._fixed.items())
        if inside and all(p.validate(parameters.get(p.name)) for p in self._varied):
            return tuple(_value(p, parameters[p.name]) for p in self._varied)
        return None


CORE_ENCODER_REGISTRY[StreamingNode] = StreamingNode.to_dict
CORE_CLASS_DECODER_REGISTRY[StreamingNode.__name__] = StreamingNode.from_dict


def _objective(experiment: Experiment) -> tuple[str, Goal]:
    """The metric, and whether it is maximised."""
    config = experiment.optimization_config
    if config is None:
        raise StateError("an objective", "none", "Call configure_optimization first.")
    objective, constraints = config.objective, config.outcome_constraints
    if not objective.is_single_objective or constraints:
        raise UnsupportedError(
            "one objective without outcome constraints",
            f"{objective.expression!r} and {len(constraints)} constraints",
            "Use Ax's own generation strategy.",
        )
    return objective.metric_names[0], "minimise" if objective.minimize else "maximise"


def _parameters(experiment: Experiment) -> tuple[list[Varied], TParameterization]:
    """The parameters that vary, and the values of the fixed ones."""
    varied: list[Varied] = []
    fixed: TParameterization = {}
    for name, parameter in experiment.search_space.parameters.items():
        if isinstance(parameter, FixedParameter) and not parameter.is_hierarchical:
            fixed[name] = parameter.value
        elif isinstance(parameter, RangeParameter | ChoiceParameter) and _plain(parameter):
            varied.append(parameter)
        else:
            kind = f"{parameter.domain_repr} of type {parameter.parameter_type.name}"
            raise UnsupportedError(
                "ranges, choices between two values or more, and fixed parameters",
                f"{parameter.name!r}, {kind}",
                "Fix it, run one experiment per value, or use Ax's own generation strategy.",
            )
    if not varied:
        raise UnsupportedError("a parameter that varies", "none", "Add one.")
    return varied, fixed


def _plain(parameter: Varied) -> bool:
    special = parameter.is_fidelity or parameter.is_disabled or parameter.is_hierarchical
    if isinstance(parameter, RangeParameter):
        return not (special or parameter.logit_scale)
    return not (special or parameter.is_task) and len(parameter.values) > 1


def _is_ordered(parameter: Varied) -> bool:
    """Whether a choice is between numbers in order."""
    return (
        isinstance(parameter, ChoiceParameter)
        and parameter.is_ordered
        and parameter.parameter_type in (ParameterType.INT, ParameterType.FLOAT)
    )


def _parameter(parameter: Varied) -> Parameter:
    """A parameter of Ax as the engine's."""
    if isinstance(parameter, RangeParameter):
        whole = parameter.parameter_type == ParameterType.INT
        ends = float(parameter.lower), float(parameter.upper)
        return Parameter(ends, parameter.log_scale, whole)
    if _is_ordered(parameter):
        return Parameter(sorted(float(cast(float, v)) for v in parameter.values))
    return Parameter(len(parameter.values))


def _value(parameter: Varied, value: Any) -> float:
    """A number within its bounds, or the position of a choice."""
    if isinstance(parameter, RangeParameter):
        return float(min(max(float(value), parameter.lower), parameter.upper))
    return float(value) if _is_ordered(parameter) else float(parameter.values.index(value))


def _cast(parameter: Varied, value: float) -> Any:
    """What Ax is given for a value."""
    if isinstance(parameter, ChoiceParameter) and not _is_ordered(parameter):
        return parameter.values[int(value)]
    return parameter.cast(value)


def _constraints(
    experiment: Experiment, varied: list[Varied], fixed: TParameterization
) -> list[str]:
    """The constraints on parameters, as texts about the inputs of the engine."""
    inputs = {p.name: input_name(i) for i, p in enumerate(varied)}
    values = {name: repr(value) for name, value in fixed.items()} | inputs
    texts = []
    for constraint in experiment.search_space.parameter_constraints:
        weights = constraint.constraint_dict
        if inputs.keys() & weights.keys():
            terms = [f"{weight!r} * {values[name]}" for name, weight in weights.items()]
            texts.append(f"{' + '.join(terms)} <= {constraint.bound!r}")
    return texts


def _values(data: Data, metric: str) -> dict[tuple[int, str], tuple[float, float | None]]:
    """Mean and noise variance (None: unknown) of a metric, by trial and arm."""
    frame = data.df
    frame = frame[frame["metric_name"] == metric]
    columns = (frame[name] for name in ("trial_index", "arm_name", "mean", "sem"))
    return {
        (int(index), str(arm)): (float(mean), None if math.isnan(sem) else float(sem) ** 2)
        for index, arm, mean, sem in zip(*columns, strict=True)
        if abs(mean) <= largest_outcome()
    }
