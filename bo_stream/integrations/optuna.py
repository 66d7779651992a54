"""A sampler for Optuna that keeps one streaming surrogate from trial to trial."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast
from zlib import crc32

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.logging import get_logger
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.fit_policy import FitPolicy
from bo_stream.campaign.proposals import Build, Optimiser
from bo_stream.campaign.settings import SCHEDULE, Goal, Named
from bo_stream.errors import UnsupportedError
from bo_stream.integrations.follower import ANYWHERE, Follower, Inputs, Outcome, box

__all__ = ["StreamingSampler"]

_logger = get_logger(__name__)


class StreamingSampler(BaseSampler):
    """Bayesian optimisation in Optuna whose surrogate absorbs new trials instead of being rebuilt.

    It models the continuous parameters (``suggest_float``, logarithmic ones too) that every trial
    has. Optuna learns of them from the first trial that completes; trials before that, and all
    other parameters (integers, categories, floats with a step or with changing bounds), are left to
    ``independent_sampler``.

    It follows the study's storage: several workers, each with a sampler of its own, learn from one
    another's trials, and a study that is loaded again goes on. Trials under way are pending points
    from when they have suggested their parameters; in one process, from the start. Pruned and
    failed trials teach the surrogate nothing, but their points are not suggested again. A worker
    that was killed leaves its trial running for good unless the storage has a heartbeat.

    Args:
        surrogate: As for `bo_stream.Campaign`: a name, a mapping of a name and options, or a
            callable; left out, it is chosen by the number of parameters and the budget.
        acquisition: Likewise.
        budget: About how many trials there will be, for choosing defaults.
        seed: Of all that is drawn; None: a new one. Workers may have the same.
        initial: Completed trials to wait for before there is a surrogate; parameters are spread
            over the space by a Sobol sequence until then.
        fit: When hyperparameters are fitted; its steps are trials.
        optimiser: How hard acquisition functions are maximised.
        independent_sampler: Samples what is not modelled; if left out, that is drawn at random.

    Raises:
        InputError: for settings that cannot be.
        UnsupportedError: when it samples for a study of several objectives.

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
        surrogate: Named | Callable[..., StreamingGP] | None = None,
        acquisition: Named | Build | None = None,
        *,
        budget: int | None = None,
        seed: int | None = None,
        initial: int | None = None,
        fit: FitPolicy = SCHEDULE,
        optimiser: Optimiser | None = None,
        independent_sampler: BaseSampler | None = None,
    ) -> None:
        self._follower_of = partial(
            Follower,
            surrogate=surrogate,
            acquisition=acquisition,
            budget=budget,
            seed=seed,
            initial=initial,
            fit=fit,
            optimiser=optimiser,
        )
        self._follower_of(ANYWHERE, "minimise")  # refused now, if ever
        self._seed, self._independent = seed, independent_sampler
        self._begin()

    def _begin(self) -> None:
        """As before any study."""
        self._lock = threading.RLock()  # Optuna's threads share the sampler
        self._study: str | None = None
        self._common = IntersectionSearchSpace()
        self._told_apart: set[str] = set()
        self._follower: Follower | None = None
        self._following: tuple[Any, ...] = ()
        self._given: dict[int, Inputs] = {}

    def __getstate__(self) -> dict[str, Any]:
        """How it was made: wherever a copy arrives, it follows the storage from the start."""
        return {k: self.__dict__[k] for k in ("_follower_of", "_seed", "_independent")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate, of values to be maximised, over the continuous parameters by name.

        None before there are enough completed trials.
        """
        return None if self._follower is None else self._follower.model

    # -- what Optuna calls -----------------------------------------------------------------------

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The parameters that are modelled: continuous ones that all completed trials have."""
        with self._lock:
            if study.study_name != self._study:
                self._begin()
                self._study = study.study_name
            common = self._common.calculate(study)
        return {name: d for name, d in common.items() if _continuous(d) and not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of the parameters that are modelled.

        Raises:
            UnsupportedError: for a study of several objectives.
        """
        goal = _goal(study)
        if not search_space:
            return {}
        space = cast(dict[str, FloatDistribution], search_space)
        with self._lock:
            follower = self._follow(goal, space)
            outcomes: dict[Any, Outcome] = {}
            pending: list[Inputs] = []
            failed: list[Inputs] = []
            running: dict[int, Inputs] = {}
            for other in study.get_trials(deepcopy=False):
                inputs = _inputs(other, space)
                if other.state == TrialState.RUNNING and other.number != trial.number:
                    if inputs is None:
                        inputs = self._given.get(other.number)
                    if inputs is not None:
                        pending.append(inputs)
                        running[other.number] = inputs
                elif inputs is not None and other.state.is_finished():
                    value = _value(other)
                    if value is None:
                        failed.append(inputs)
                    else:
                        outcomes[other.number] = Outcome(inputs, value)
            follower.follow(outcomes)
            chosen = follower.next(trial.number, pending, failed)
            self._given = {**running, trial.number: chosen}
        return dict(zip(space, chosen, strict=True))

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The value of a parameter that is not modelled."""
        sampler = self._independent or RandomSampler(self._seed_of(trial, param_name))
        if not _continuous(param_distribution) and param_name not in self._told_apart:
            self._told_apart.add(param_name)
            _logger.warning(
                f"{param_name!r} is not continuous: {sampler} samples it, and to the surrogate of "
                f"{self} its effect is noise."
            )
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Pass it on to the sampler of what is not modelled."""
        if self._independent is not None:
            self._independent.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Likewise."""
        if self._independent is not None:
            self._independent.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Likewise; what this sampler draws itself depends on the number of the trial."""
        if self._independent is not None:
            self._independent.reseed_rng()

    # -- pieces ----------------------------------------------------------------------------------

    def _seed_of(self, trial: FrozenTrial, name: str) -> int | None:
        """The same for the same seed, trial and parameter, so that workers draw differently."""
        if self._seed is None:
            return None
        return crc32(f"{self._seed} {trial.number} {name}".encode())

    def _follow(self, goal: Goal, space: dict[str, FloatDistribution]) -> Follower:
        """The surrogate of these parameters; another one if they have changed."""
        following = (goal, tuple(space.items()))
        if self._follower is None or following != self._following:
            bounds = [(d.low, d.high) for d in space.values()]
            plain = box(bounds, [d.log for d in space.values()])
            self._follower, self._given = self._follower_of(plain, goal), {}
            self._following = following
        return self._follower


def _goal(study: Study) -> Goal:
    if len(study.directions) != 1:
        raise UnsupportedError(
            "a study of one objective",
            f"one of {len(study.directions)}",
            "Use a sampler for several objectives, such as optuna.samplers.TPESampler.",
        )
    return "maximise" if study.directions[0] == StudyDirection.MAXIMIZE else "minimise"


def _continuous(distribution: BaseDistribution) -> bool:
    return isinstance(distribution, FloatDistribution) and distribution.step is None


def _inputs(trial: FrozenTrial, space: Mapping[str, FloatDistribution]) -> Inputs | None:
    """Where a trial is; None if it has not, or not yet, these parameters within their bounds."""
    if any(trial.distributions.get(name) != d for name, d in space.items()):
        return None
    values = tuple(float(trial.params[name]) for name in space)
    inside = (d.low <= v <= d.high for v, d in zip(values, space.values(), strict=True))
    return values if all(inside) else None


def _value(trial: FrozenTrial) -> float | None:
    """What a finished trial gave; None if it failed, was pruned or gave no finite number."""
    complete = trial.state == TrialState.COMPLETE and trial.value is not None
    return trial.value if complete and np.isfinite(cast(float, trial.value)) else None
