"""Surrogate and proposals for trials that another framework keeps; only new trials are observed."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bo_stream.base.options import LEAST_NOISE
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.learner import Learner, chosen_points
from bo_stream.campaign.outcomes.goals import Goal
from bo_stream.campaign.outcomes.observations import Observations
from bo_stream.campaign.proposing.proposals import ProposalContext, initial_design
from bo_stream.campaign.proposing.rules import MeasuredChoice
from bo_stream.campaign.randomness import proposing
from bo_stream.campaign.records import Row
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Box
from bo_stream.errors import InputError, UnsupportedError

__all__ = ["Follower", "FollowsTrials", "Inputs", "Parameter", "FinishedTrial", "input_name"]

Inputs = tuple[float, ...]
"""Values of a trial's inputs: numbers in the user's units, and positions of categories."""


class FinishedTrial(NamedTuple):
    """A finished trial.

    Attributes:
        inputs: Its inputs.
        y: Its outcome; None if it failed.
        yvar: Noise variance of the outcome; zero if it is exact, None if unknown.
    """

    inputs: Inputs
    y: float | None = None
    yvar: float | None = None


class Parameter(NamedTuple):
    """An input of a framework that itself keeps the names of inputs.

    Attributes:
        range: Lower and upper bound, or a list of numbers, or the number of categories.
        log: Whether the scale is logarithmic.
        integer: Whether it takes only the integers between its bounds.
    """

    range: tuple[float, float] | list[float] | int
    log: bool = False
    integer: bool = False


def input_name(number: int) -> str:
    """Name of an input of a `Follower`, for constraints."""
    return f"input{number}"


class Follower:
    """A surrogate of trials that another framework keeps, and the next trial to propose.

    Args:
        parameters: The inputs; a category's value is its position.
        goal: ``maximise``, ``minimise`` or ``learn``.
        options: Options of `bo_stream.Campaign`: ``surrogate``, ``acquisition``, ``budget`` (for
            defaults only), ``seed``, ``initial``, ``fit`` (a step is a trial), ``noise``,
            ``optimiser``, ``constraints``.

    Raises:
        InputError: for invalid settings.
        UnsupportedError: for counts, or several outcomes.
    """

    def __init__(self, parameters: Sequence[Parameter], goal: Goal, **options: Any) -> None:
        named = {input_name(i): p for i, p in enumerate(parameters)}
        bounds = {
            name: [str(k) for k in range(p.range)] if isinstance(p.range, int) else p.range
            for name, p in named.items()
        }
        log = [name for name, p in named.items() if p.log]
        integer = [name for name, p in named.items() if p.integer]
        self.space = Box(bounds, log, integer=integer)
        settings = Settings.from_arguments(self.space, goal, **options)
        if settings.counts is not None:
            raise UnsupportedError("measurements", "counts", "Use bo_stream.Campaign for counts.")
        if settings.outcomes.joint:
            columns = ", ".join(one.column for one in settings.outcomes.learned)
            raise UnsupportedError("one outcome", columns, "Use bo_stream.Campaign for several.")
        self.settings = settings
        self._feasible = settings.feasible(options.get("constraints") or ())
        chosen = options.get("surrogate"), options.get("acquisition")
        stages = settings.stages(self._feasible, *chosen)
        self._learner = Learner(
            stages, self.space.tensor_bounds, settings.initial, winsorise=goal != "learn"
        )
        self._proposed_at: float | None = None
        self._evaluation_seconds: float | None = None
        self._decision_seconds: float | None = None
        self._reset()

    def _reset(self) -> None:
        self._learner.reset()
        none = torch.empty(0, self.space.dim, dtype=torch.float64)
        self._observations = Observations(none, none[:, :1])
        self._known: dict[Hashable, FinishedTrial] = {}
        self._noise_known = False

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate, of outcomes to be maximised; None before it is built."""
        return self._learner.model

    def _observe(self, trials: Mapping[Hashable, FinishedTrial]) -> None:
        """Observe the outcomes that are new, in one batch.

        The surrogate is reset if a known outcome has changed, or if the noise was known for all
        outcomes and no longer is.
        """
        new = {key: trial for key, trial in trials.items() if self._known.get(key) != trial}
        if not new:
            return
        if self._proposed_at is not None:
            self._evaluation_seconds = time.perf_counter() - self._proposed_at
        noise_known = all(trial.yvar is not None for trial in trials.values())
        changed = not self._known.keys().isdisjoint(new)
        if self._known and (noise_known != self._noise_known or changed):
            self._reset()
            new = dict(trials)
        X = self._points([trial.inputs for trial in new.values()])
        outcomes = torch.tensor([[trial.y] for trial in new.values()], dtype=torch.float64)
        Y, Yvar = self.settings.sign * outcomes, None
        if noise_known:
            Yvar = torch.tensor([[trial.yvar] for trial in new.values()], dtype=torch.float64)
        elif self.settings.fixed_variance is not None:
            Yvar = torch.full_like(Y, self.settings.fixed_variance)
        self._learner.observe(X, Y, self._floored(Yvar), Row(()))
        self._observations = self._observations.extended(X, Y, Yvar)
        self._known.update(new)
        self._noise_known = noise_known

    def next(
        self, number: int, finished: Mapping[Hashable, FinishedTrial], pending: Sequence[Inputs]
    ) -> Inputs:
        """The next trial. The surrogate observes, and is built or fitted if that is due, before.

        Args:
            number: Number of the trial. The randomness depends on it and on the seed, so that
                workers with the same seed draw different points.
            finished: All finished trials. Those that failed are not proposed again.
            pending: Inputs of running trials.
        """
        self._observe({key: trial for key, trial in finished.items() if trial.y is not None})
        failed = self._points([trial.inputs for trial in finished.values() if trial.y is None])
        seed, data, no_pool = self.settings.seed, self._observations, torch.empty(0).long()
        data = Observations(data.X, data.Y, self._floored(data.Yvar))
        self._learner.update(data, len(data.X), Row(("fit_evaluations",)))
        with proposing(seed, number, data.X.device):
            X = None
            if (model := self._learner.model) is not None:
                context = ProposalContext(
                    data.candidates(),
                    self._points(pending),
                    failed,
                    no_pool,
                    data.best(),
                    len(data.X),
                    self._learner.ensemble,
                    self._evaluation_seconds,
                    self._decision_seconds,
                )
                begin = time.perf_counter()
                stage = self._learner.stage
                X = chosen_points(stage, model, 1, context)
                measured = isinstance(stage.rule, MeasuredChoice) and stage.rule.maximised
                if X is not None and measured:
                    self._decision_seconds = time.perf_counter() - begin
            if X is None:
                uniform = self.settings.uniform_start
                X = initial_design(self._feasible, seed, number, 1, no_pool, uniform)
        self._proposed_at = time.perf_counter()
        return tuple(self.space.decode(X)[0].tolist())

    def _floored(self, Yvar: Tensor | None) -> Tensor | None:
        """Noise variances, with those of zero raised to the smallest that a surrogate takes."""
        Y = self._observations.Y
        spread = float(Y.var()) if len(Y) > 1 else 0.0
        return None if Yvar is None else Yvar.where(Yvar > 0.0, LEAST_NOISE * (spread or 1.0))

    def _points(self, inputs: Sequence[Inputs]) -> Tensor:
        values = np.array(inputs, dtype=np.float64)
        return self.space.encode(values.reshape(-1, self.space.dim))


class FollowsTrials:
    """Part of a sampler of another framework: its options, and the follower of the current space.

    The options are tried with one to three inputs, and with as many as a list among the surrogate's
    options has entries.

    Args:
        options: As for `Follower`.

    Raises:
        InputError, UnsupportedError: for options that are invalid with each of these.
    """

    def __init__(self, **options: Any) -> None:
        named = options.get("surrogate")
        values = named.values() if isinstance(named, Mapping) else ()
        counts = {len(v) for v in values if isinstance(v, list | tuple) and v}
        errors: list[InputError | UnsupportedError] = []
        for count in (*sorted(counts), 1, 2, 3):
            try:
                Follower([Parameter((0.0, 1.0))] * count, "minimise", **options)
                break
            except (InputError, UnsupportedError) as error:
                errors.append(error)
        else:
            raise errors[0]
        self._options = options
        self._forget()

    def _forget(self) -> None:
        """Return to the state before any trial."""
        self._follower: Follower | None = None
        self._following: tuple[Any, ...] = ()

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate, of outcomes to be maximised; None before there are enough."""
        return None if self._follower is None else self._follower.model

    def _follow(
        self,
        parameters: Mapping[str, Parameter],
        goal: Goal,
        constraints: Sequence[str] = (),
        **about: Hashable,
    ) -> Follower:
        """The follower of these parameters; a new one if they, or what is said of them, changed."""
        following = (list(parameters.items()), goal, constraints, about)
        if self._follower is None or following != self._following:
            options = {**self._options, "constraints": constraints}
            self._follower = Follower([*parameters.values()], goal, **options)
            self._following = following
        return self._follower
