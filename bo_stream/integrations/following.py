"""The engine of a campaign for trials that another framework keeps."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from bo_stream.base.options import LEAST_NOISE
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.effort import Row
from bo_stream.campaign.engine import Engine, check_surrogate, stages_of
from bo_stream.campaign.learner import Learner
from bo_stream.campaign.outcomes.outcomes import Goal
from bo_stream.campaign.settings import Choices, Settings
from bo_stream.campaign.space import Box
from bo_stream.errors import InputError, UnsupportedError

__all__ = ["FinishedTrial", "FollowsTrials", "Inputs", "Parameter", "input_name"]

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
    """Name of an input of the engine, for constraints."""
    return f"input{number}"


class FollowsTrials:
    """Part of a sampler of another framework: its options, and the engine of the current space.

    The options are tried with one to three inputs.

    Args:
        options: Options of `bo_stream.Campaign`: ``surrogate``, ``acquisition``, ``budget`` (for
            defaults only), ``seed``, ``initial``, ``fit`` (a step is a trial), ``noise``,
            ``optimiser``.

    Raises:
        InputError, UnsupportedError: for options that are invalid with each of these.
    """

    def __init__(self, **options: Any) -> None:
        self._choices = Choices.read({"goal": "minimise", **options})
        one = [Parameter((0.0, 1.0))]
        for count in (3, 2):
            with suppress(InputError, UnsupportedError):
                self._engine_of(one * count, "minimise", ())
                break
        else:
            self._engine_of(one, "minimise", ())  # or refuse
        self._forget()

    def _forget(self) -> None:
        """Return to the state before any trial."""
        self._engine: Engine | None = None
        self._following: tuple[Any, ...] = ()

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate, of outcomes to be maximised; None before there are enough."""
        return None if self._engine is None else self._engine.model

    def _engine_of(
        self, parameters: Sequence[Parameter], goal: Goal, constraints: Sequence[str]
    ) -> Engine:
        named = {input_name(i): p for i, p in enumerate(parameters)}
        bounds = {
            name: [str(k) for k in range(p.range)] if isinstance(p.range, int) else p.range
            for name, p in named.items()
        }
        log = [name for name, p in named.items() if p.log]
        integer = [name for name, p in named.items() if p.integer]
        choices = self._choices.model_copy(update={"goal": goal, "constraints": constraints})
        settings = Settings.of(Box(bounds, log, integer=integer), choices)
        check_surrogate(settings)
        about = settings, choices.surrogate, choices.acquisition, constraints
        return Engine(settings, partial(stages_of, *about))

    def _follow(
        self,
        parameters: Mapping[str, Parameter],
        goal: Goal,
        constraints: Sequence[str] = (),
        **about: Hashable,
    ) -> None:
        """Begin with a new engine if the parameters, or what is said of them, changed."""
        following = (list(parameters.items()), goal, constraints, about)
        if self._engine is None or following != self._following:
            self._engine = self._engine_of([*parameters.values()], goal, constraints)
            self._following = following
            self._known: dict[Hashable, FinishedTrial] = {}
            self._proposed: dict[int, Inputs] = {}
            self._noise_known = False

    def _next(
        self, number: int, finished: Mapping[Hashable, FinishedTrial], pending: Sequence[Inputs]
    ) -> Inputs:
        """The next trial. The surrogate observes, and is built or fitted if that is due, before.

        Args:
            number: Number of the trial. The randomness depends on it and on the seed, so that
                workers with the same seed draw different points.
            finished: All finished trials. Those that failed are not proposed again.
            pending: Inputs of running trials.
        """
        engine = cast(Engine, self._engine)
        self._observe(engine, {key: one for key, one in finished.items() if one.y is not None})
        failed = [trial.inputs for trial in finished.values() if trial.y is None]
        engine.update(Row(("fit_evaluations",)))
        view = engine.view(
            cast(Learner, engine.only).data,
            _points(engine, pending),
            _points(engine, failed),
            number=number,
            asked=number,
        )
        found = engine.propose(view, 1)
        self._proposed[number] = tuple(engine.settings.space.decode(found.points)[0].tolist())
        return self._proposed[number]

    def _observe(self, engine: Engine, trials: Mapping[Hashable, FinishedTrial]) -> None:
        """Observe the outcomes that are new, in one batch.

        All are observed again if a known outcome has changed, or if the noise was known for all
        outcomes and no longer is.
        """
        new = {key: trial for key, trial in trials.items() if self._known.get(key) != trial}
        if not new:
            return
        noise_known = all(trial.yvar is not None for trial in trials.values())
        changed = not self._known.keys().isdisjoint(new)
        if self._known and (changed or noise_known != self._noise_known):
            engine.forget()
            engine.configure(engine.settings)
            new, self._known = dict(trials), {}
        values = [[trial.y, trial.yvar] for trial in new.values()]
        Y, Yvar = torch.tensor(np.array(values, dtype=np.float64)).split(1, -1)
        fixed = engine.settings.fixed_variance
        noise = torch.full_like(Y, fixed) if fixed is not None else None
        if noise_known:
            outcomes = torch.tensor([trial.y for trial in trials.values()])
            spread = float(outcomes.var()) if len(outcomes) > 1 else 0.0
            noise = Yvar.where(Yvar > 0.0, LEAST_NOISE * (spread or 1.0))
        X = _points(engine, [trial.inputs for trial in new.values()])
        engine.observe(X, engine.settings.sign * Y, noise, Row(()), batches=len(new))
        self._known |= new
        self._noise_known = noise_known


def _points(engine: Engine, inputs: Sequence[Inputs]) -> Tensor:
    """Inputs as the surrogate's, ``n x d``."""
    space = engine.settings.space
    return space.encode(np.array(inputs, dtype=np.float64).reshape(-1, space.dim))
