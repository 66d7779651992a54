"""A generation node for Ax that keeps one streaming surrogate from trial to trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

from ax.core.data import Data
from ax.core.experiment import Experiment
from ax.core.generator_run import GeneratorRun
from ax.core.parameter import FixedParameter, Parameter, ParameterType, RangeParameter
from ax.core.types import TParameterization
from ax.generation_strategy.external_generation_node import ExternalGenerationNode
from ax.generation_strategy.transition_criterion import TransitionCriterion
from ax.storage.json_store.decoder import object_from_json
from ax.storage.json_store.registry import CORE_CLASS_DECODER_REGISTRY, CORE_ENCODER_REGISTRY

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.fit_policy import FitPolicy
from bo_stream.campaign.proposals import Build, Optimiser
from bo_stream.campaign.settings import SCHEDULE, Goal, Named
from bo_stream.errors import StateError, UnsupportedError
from bo_stream.integrations.follower import ANYWHERE, Follower, Inputs, Outcome, box

__all__ = ["StreamingNode"]


class StreamingNode(ExternalGenerationNode):
    """Bayesian optimisation in Ax whose surrogate absorbs new trials instead of being rebuilt.

    It is a generation strategy by itself, which begins with a Sobol sequence, or may follow other
    nodes, whose trials it learns from. The space may have continuous parameters (logarithmic ones
    too) and fixed ones, the objective is one metric. Where every outcome has a standard error, that
    is its noise. Trials under way are pending points. Failed and early-stopped trials teach the
    surrogate nothing, but their points are not suggested again. If data that were absorbed change,
    or the search space or objective does, the surrogate begins anew.

    Ax's own predictions and plots of models do not see the surrogate, which is `model` here. Ax
    saves the node's settings, unless the surrogate or acquisition is a callable, and loads them
    where this module has been imported; the surrogate then learns anew from the experiment's data.

    Args:
        name: Of the node.
        surrogate: As for `bo_stream.Campaign`: a name, a mapping of a name and options, or a
            callable; left out, it is chosen by the number of parameters and the budget.
        acquisition: Likewise.
        budget: About how many trials there will be, for choosing defaults.
        seed: Of all that is drawn; None: a new one.
        initial: Outcomes to wait for before there is a surrogate.
        fit: When hyperparameters are fitted; its steps are outcomes.
        optimiser: How hard acquisition functions are maximised.
        transition_criteria: When another node takes over; None: never.

    Raises:
        InputError: for settings that cannot be.
        UnsupportedError: when it generates for an experiment that it cannot model.

    Example:
        >>> from ax.generation_strategy.generation_strategy import GenerationStrategy
        >>> strategy = GenerationStrategy(name="streaming", nodes=[StreamingNode(seed=0)])
    """

    def __init__(
        self,
        name: str = "Streaming",
        surrogate: Named | Callable[..., StreamingGP] | None = None,
        acquisition: Named | Build | None = None,
        *,
        budget: int | None = None,
        seed: int | None = None,
        initial: int | None = None,
        fit: FitPolicy = SCHEDULE,
        optimiser: Optimiser | None = None,
        transition_criteria: Sequence[TransitionCriterion] | None = None,
    ) -> None:
        # Ax would reject a point at a corner that is proposed twice, then give up.
        super().__init__(name, should_deduplicate=False, transition_criteria=transition_criteria)
        self._chosen: dict[str, Any] = {
            "surrogate": surrogate,
            "acquisition": acquisition,
            "budget": budget,
            "seed": seed,
            "initial": initial,
            "fit": fit,
            "optimiser": optimiser or Optimiser(),
        }
        Follower(ANYWHERE, "minimise", **self._chosen)  # refused now, if ever
        self._follower: Follower | None = None
        self._following: tuple[Any, ...] = ()
        self._varied: list[RangeParameter] = []
        self._fixed: TParameterization = {}
        self._failed: list[Inputs] = []
        self._count = 0

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate, of outcomes to be maximised, over the parameters that are not fixed.

        None before there are enough outcomes.
        """
        return None if self._follower is None else self._follower.model

    # -- what Ax calls ---------------------------------------------------------------------------

    def gen(self, **given: Any) -> GeneratorRun | None:
        """Candidates, as Ax asks for them.

        Raises:
            UnsupportedError: if parameters are to be fixed for these candidates only.
        """
        features = given.get("fixed_features")
        if features is not None and features.parameters:
            raise UnsupportedError(
                "candidates in all of the search space",
                f"fixed_parameters={features.parameters}",
                "Ask without them, or make them fixed parameters of the search space.",
            )
        return super().gen(**given)

    def update_generator_state(self, experiment: Experiment, data: Data) -> None:
        """Absorb the outcomes not seen before."""
        metric, goal = _objective(experiment)
        varied, fixed = _parameters(experiment)
        follower = self._follow(goal, metric, varied, fixed)
        values = _values(data, metric)
        outcomes: dict[Any, Outcome] = {}
        failed: list[Inputs] = []
        for index, trial in experiment.trials.items():
            if not trial.status.is_terminal:
                continue
            for arm in trial.arms:
                inputs = self._inputs(arm.parameters)
                if inputs is None:
                    continue
                value = values.get((index, arm.name)) if trial.status.is_completed else None
                if value is None:
                    failed.append(inputs)
                else:
                    outcomes[index, arm.name] = Outcome(inputs, *value)
        follower.follow(outcomes)
        self._failed = failed
        self._count = sum(len(trial.arms) for trial in experiment.trials.values())

    def get_next_candidate(self, pending_parameters: list[TParameterization]) -> TParameterization:
        """Where to measure next."""
        if self._follower is None:
            raise StateError("update_generator_state first", "get_next_candidate", "Call it.")
        pending = [p for p in map(self._inputs, pending_parameters) if p is not None]
        chosen = self._follower.next(self._count, pending, self._failed)
        self._count += 1
        new = {p.name: p.cast(x) for p, x in zip(self._varied, chosen, strict=True)}
        return {**self._fixed, **new}

    # -- saving ----------------------------------------------------------------------------------

    def described(self) -> dict[str, Any]:
        """Its settings, for Ax's JSON."""
        chosen = self._chosen
        plain = {name: asdict(chosen[name]) for name in ("fit", "optimiser")}
        return {
            "__type": type(self).__name__,
            "name": self.name,
            "transition_criteria": list(self.transition_criteria),
            "settings": {**chosen, **plain},
        }

    @classmethod
    def read(cls, described: dict[str, Any]) -> Self:
        """One from settings as Ax's JSON holds them."""
        settings = dict(described["settings"])
        settings["fit"] = FitPolicy(**settings["fit"])
        settings["optimiser"] = Optimiser(**settings["optimiser"])
        criteria = object_from_json(described["transition_criteria"])
        return cls(described["name"], transition_criteria=criteria, **settings)

    # -- pieces ----------------------------------------------------------------------------------

    def _follow(
        self, goal: Goal, metric: str, varied: list[RangeParameter], fixed: TParameterization
    ) -> Follower:
        """The surrogate of this metric and these parameters; another one if they have changed."""
        bounds = [(float(p.lower), float(p.upper)) for p in varied]
        log = [p.log_scale for p in varied]
        following = (goal, metric, [p.name for p in varied], bounds, log, fixed)
        if self._follower is None or following != self._following:
            self._follower = Follower(box(bounds, log), goal, **self._chosen)
            self._following, self._varied, self._fixed = following, varied, fixed
        return self._follower

    def _inputs(self, parameters: Mapping[str, Any]) -> Inputs | None:
        """Where an arm is; None if it is outside the space."""
        if any(parameters.get(name) != value for name, value in self._fixed.items()):
            return None
        if not all(p.validate(parameters.get(p.name)) for p in self._varied):
            return None
        bounded = (min(max(float(parameters[p.name]), p.lower), p.upper) for p in self._varied)
        return tuple(map(float, bounded))


CORE_ENCODER_REGISTRY[StreamingNode] = StreamingNode.described
CORE_CLASS_DECODER_REGISTRY[StreamingNode.__name__] = StreamingNode.read


def _objective(experiment: Experiment) -> tuple[str, Goal]:
    """The metric, and whether it is maximised."""
    config = experiment.optimization_config
    if config is None:
        raise StateError("an objective", "none", "Call configure_optimization first.")
    objective, constraints = config.objective, config.outcome_constraints
    if not objective.is_single_objective or constraints:
        raise UnsupportedError(
            "one metric to optimise, without constraints on outcomes",
            f"{objective.expression!r} and {len(constraints)} constraints",
            "Use Ax's own generation strategy.",
        )
    return objective.metric_names[0], "minimise" if objective.minimize else "maximise"


def _parameters(experiment: Experiment) -> tuple[list[RangeParameter], TParameterization]:
    """The parameters that vary, and the values of the others."""
    space = experiment.search_space
    if space.parameter_constraints:
        raise UnsupportedError(
            "a search space without constraints on parameters",
            f"{len(space.parameter_constraints)} constraints",
            "Leave them out, or use Ax's own generation strategy.",
        )
    varied: list[RangeParameter] = []
    fixed: TParameterization = {}
    for name, parameter in space.parameters.items():
        if isinstance(parameter, FixedParameter) and not parameter.is_hierarchical:
            fixed[name] = parameter.value
        elif isinstance(parameter, RangeParameter) and _continuous(parameter):
            varied.append(parameter)
        else:
            raise _not_continuous(parameter)
    if not varied:
        raise UnsupportedError("a parameter to vary", "none", "Add one.")
    return varied, fixed


def _continuous(parameter: RangeParameter) -> bool:
    plain = not (parameter.logit_scale or parameter.is_fidelity or parameter.is_disabled)
    return plain and parameter.parameter_type == ParameterType.FLOAT


def _not_continuous(parameter: Parameter) -> UnsupportedError:
    return UnsupportedError(
        "continuous parameters, on their own or a logarithmic scale, and fixed ones",
        f"{parameter.name!r}, {parameter.domain_repr} of type {parameter.parameter_type.name}",
        "Fix it, run one experiment for each of its values, or use Ax's own generation strategy.",
    )


def _values(data: Data, metric: str) -> dict[tuple[int, str], tuple[float, float | None]]:
    """Mean and noise variance (None: unknown) of a metric, by trial and arm."""
    frame = data.df
    frame = frame[frame["metric_name"] == metric]
    columns = (frame[name] for name in ("trial_index", "arm_name", "mean", "sem"))
    return {
        (int(index), str(arm)): (float(mean), None if math.isnan(sem) else float(sem) ** 2)
        for index, arm, mean, sem in zip(*columns, strict=True)
        if math.isfinite(mean)
    }
