"""A sampler for Optuna that keeps one streaming surrogate between trials."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from botorch.models.model import Model
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from bo_stream.base.units import largest_outcome
from bo_stream.campaign.effort import FitPolicy, Optimiser
from bo_stream.campaign.outcomes.outcomes import Goal
from bo_stream.campaign.settings import NamedChoice, Noise
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.integrations.following import FinishedTrial, FollowsTrials, Inputs, Parameter

if TYPE_CHECKING:
    from bo_stream.campaign.settings import AcquisitionBuilder

__all__ = ["StreamingSampler"]

COUNTED = 2.0**53
"""Numbers of steps from which float64 does not hold each of them."""


class StreamingSampler(FollowsTrials, BaseSampler):
    """Bayesian optimisation in Optuna with a surrogate that observes new trials as they complete.

    The surrogate, of values to be maximised over the modelled parameters by name, is the attribute
    `model`; it is None before there are enough completed trials.

    It models the parameters that all trials have, and which Optuna knows from the first completed
    trial on: floats and integers, with a step or on a logarithmic scale, and categories. Earlier
    trials and all other parameters (those of some trials only, or with changing bounds) are left
    to ``independent_sampler``.

    It follows the study's storage: several workers, each with its own sampler, observe each other's
    trials, and a study that is loaded again is continued. Running trials are pending points as soon
    as they have suggested their parameters, and in one process from their start. Pruned and failed
    trials are not observed, but their points are not proposed again. A killed worker leaves its
    trial running forever unless the storage has a heartbeat.

    Args:
        surrogate: As for `bo_stream.Campaign`: a name, a mapping of a name and options, or a
            callable. By default it is chosen by the number of parameters and the budget.
        acquisition: As for `bo_stream.Campaign`.
        budget: Approximate number of trials, which some defaults depend on.
        seed: Seed of everything random; None: a new one. Workers may have the same seed.
        initial: Number of completed trials from which a surrogate is built; until then parameters
            follow a Sobol sequence.
        fit: When hyperparameters are fitted; a step is a trial.
        noise: As for `bo_stream.Campaign`.
        optimiser: Effort of maximising acquisition functions.
        independent_sampler: Samples the parameters that are not modelled; by default at random.

    Raises:
        InputError: for invalid settings.
        UnsupportedError: when it samples for a study with several objectives.

    Example:
        >>> import optuna
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> study = optuna.create_study(sampler=StreamingSampler(seed=0))
        >>> study.optimize(lambda trial: (trial.suggest_float("x", 0.0, 4.0) - 3.0) ** 2, 10)
        >>> abs(study.best_params["x"] - 3.0) < 0.3
        True
    """

    def __init__(
        self,
        surrogate: NamedChoice | Callable[..., Model] | None = None,
        acquisition: NamedChoice | AcquisitionBuilder | None = None,
        *,
        budget: int | None = None,
        seed: int | None = None,
        initial: int | None = None,
        fit: FitPolicy | None = None,
        noise: Noise | None = None,
        optimiser: Optimiser | None = None,
        independent_sampler: BaseSampler | None = None,
    ) -> None:
        super().__init__(
            surrogate=surrogate,
            acquisition=acquisition,
            budget=budget,
            seed=seed,
            initial=initial,
            fit=fit,
            noise=noise,
            optimiser=optimiser,
        )
        if not isinstance(independent_sampler, BaseSampler | None):
            raise InputError(
                "independent_sampler, one of Optuna's samplers",
                repr(independent_sampler),
                "Build one.",
            )
        self._independent = independent_sampler

    def _forget(self) -> None:
        super()._forget()
        self._lock = threading.RLock()  # Optuna's threads share the sampler
        self._study: str | None = None
        self._common = IntersectionSearchSpace()

    def __getstate__(self) -> dict[str, Any]:
        """Its options only: a copy follows the storage from the start."""
        return {k: self.__dict__[k] for k in ("_choices", "_independent")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    # -- what Optuna calls -----------------------------------------------------------------------

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The modelled parameters: those that all completed trials have."""
        with self._lock:
            if study.study_name != self._study:
                self._forget()
                self._study = study.study_name
            common = self._common.calculate(study)
        return {name: d for name, d in common.items() if not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of the modelled parameters.

        Raises:
            UnsupportedError: for a study with several objectives.
        """
        goal = _goal(study)
        if not search_space:
            return {}
        with self._lock:
            parameters = {name: _parameter(d) for name, d in search_space.items()}
            distributions = tuple(search_space.values())
            self._follow(parameters, goal, distributions=distributions)
            running: list[Inputs] = []
            finished: dict[Hashable, FinishedTrial] = {}
            for other in study.get_trials(deepcopy=False):
                inputs = _inputs(other, search_space)
                if other.state == TrialState.RUNNING and other.number != trial.number:
                    inputs = self._proposed.get(other.number) if inputs is None else inputs
                    if inputs is not None:
                        running.append(inputs)
                elif inputs is not None and other.state.is_finished():
                    finished[other.number] = FinishedTrial(inputs, _value(other))
            chosen = self._next(trial.number, finished, running)
        pairs = zip(search_space.items(), chosen, strict=True)
        return {name: _value_at(d, position) for (name, d), position in pairs}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Value of a parameter that is not modelled.

        Raises:
            UnsupportedError: for a study with several objectives.
        """
        _goal(study)
        seed = self._choices.seed
        if seed is not None:
            seed = crc32(f"{seed} {trial.number} {param_name}".encode())
        sampler = self._independent or RandomSampler(seed)
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Call the independent sampler's hook."""
        if self._independent is not None:
            self._independent.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Call the independent sampler's hook."""
        if self._independent is not None:
            self._independent.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Reseed the independent sampler; this sampler's own draws depend on the trial's number."""
        if self._independent is not None:
            self._independent.reseed_rng()


class _SeveralObjectivesError(UnsupportedError, ValueError):
    """A study with several objectives: a ValueError, as of Optuna's samplers."""


def _goal(study: Study) -> Goal:
    if len(study.directions) != 1:
        raise _SeveralObjectivesError(
            "a study with one objective",
            f"{len(study.directions)} objectives",
            "Use a sampler for several objectives, such as optuna.samplers.TPESampler.",
        )
    return "maximise" if study.directions[0] == StudyDirection.MAXIMIZE else "minimise"


def _parameter(distribution: BaseDistribution) -> Parameter:
    """A distribution as the engine's input: its values, or the numbers of its steps."""
    if isinstance(distribution, CategoricalDistribution):
        return Parameter(len(distribution.choices))
    d = cast(FloatDistribution | IntDistribution, distribution)
    if d.step is not None and not d.log:
        last = float(round((d.high - d.low) / d.step))
        return Parameter((0.0, last), integer=last < COUNTED)
    return Parameter((d.low, d.high), d.log, isinstance(d, IntDistribution))


def _value_at(distribution: BaseDistribution, position: float) -> Any:
    """The value that an input of the engine stands for, computed as Optuna's samplers do."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.to_external_repr(position)
    d = cast(FloatDistribution | IntDistribution, distribution)
    value = position
    if d.step is not None and not d.log:
        value = round(position) * d.step + d.low
    elif isinstance(d, IntDistribution):
        value = round(position)
    return min(max(value, d.low), d.high)  # rounding may have left the range


def _position_of(distribution: BaseDistribution, value: Any) -> float | None:
    """The inverse of `_value_at`; None for a value outside the range."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.to_internal_repr(value)
    d = cast(FloatDistribution | IntDistribution, distribution)
    if not d.low <= value <= d.high:
        return None
    stepped = d.step is not None and not d.log
    return float(round((value - d.low) / cast(float, d.step)) if stepped else value)


def _inputs(trial: FrozenTrial, space: Mapping[str, BaseDistribution]) -> Inputs | None:
    """Inputs of a trial; None if it lacks a parameter or is outside the bounds."""
    if any(trial.distributions.get(name) != d for name, d in space.items()):
        return None
    positions = [_position_of(d, trial.params[name]) for name, d in space.items()]
    inside = tuple(p for p in positions if p is not None)
    return inside if len(inside) == len(positions) else None


def _value(trial: FrozenTrial) -> float | None:
    """Value of a finished trial; None if it failed, was pruned or has none that can be learned."""
    complete = trial.state == TrialState.COMPLETE and trial.value is not None
    return trial.value if complete and abs(cast(float, trial.value)) <= largest_outcome() else None
