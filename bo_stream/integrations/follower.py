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
from bo_stream.campaign.outcomes.goals import Goal
from bo_stream.campaign.outcomes.observations import Observations
from bo_stream.campaign.proposing.proposals import ProposalContext, initial_design
from bo_stream.campaign.proposing.rules import MeasuredChoice
from bo_stream.campaign.proposing.surrogate_manager import SurrogateManager, chosen_points
from bo_stream.campaign.randomness import proposing
from bo_stream.campaign.records import Row
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Box
from bo_stream.errors import InputError, UnsupportedError

__all__ = [
    "Follower",
    "Inputs",
    "Parameter",
    "TrialOutcome",
    "box",
    "check_options",
    "input_name",
]

Inputs = tuple[float, ...]
"""Values of a trial's inputs: numbers in the user's units, and positions of categories."""


class TrialOutcome(NamedTuple):
    """Inputs and outcome of a trial.

    Attributes:
        inputs: Its inputs.
        y: Its outcome.
        yvar: Noise variance of the outcome; zero if it is exact, None if unknown.
    """

    inputs: Inputs
    y: float
    yvar: float | None = None


class Parameter(NamedTuple):
    """An input of a framework that itself keeps the names of inputs.

    Attributes:
        given: Lower and upper bound, or a list of numbers, or the number of categories.
        log: Whether the scale is logarithmic.
        integer: Whether it takes only the integers between its bounds.
    """

    given: tuple[float, float] | list[float] | int
    log: bool = False
    integer: bool = False


def box(parameters: Sequence[Parameter]) -> Box:
    """A box of inputs named by `input_name`; a category's value is its position."""
    named = {input_name(i): p for i, p in enumerate(parameters)}
    return Box(
        {
            name: [str(k) for k in range(p.given)] if isinstance(p.given, int) else p.given
            for name, p in named.items()
        },
        [name for name, p in named.items() if p.log],
        integer=[name for name, p in named.items() if p.integer],
    )


def input_name(number: int) -> str:
    """Name of an input in a `box`."""
    return f"input{number}"


class Follower:
    """A surrogate of trials that another framework keeps, and the next trial to propose.

    Args:
        space: Space of the trials.
        goal: ``maximise``, ``minimise`` or ``learn``.
        options: Options of `bo_stream.Campaign`: ``surrogate``, ``acquisition``, ``budget`` (for
            defaults only), ``seed``, ``initial``, ``fit`` (a step is a trial), ``noise``,
            ``optimiser``, ``constraints``.

    Raises:
        InputError: for invalid settings.
        UnsupportedError: for counts, or several outcomes.
    """

    def __init__(self, space: Box, goal: Goal, **options: Any) -> None:
        settings = Settings.from_arguments(space, goal, **options)
        if settings.counts is not None:
            raise UnsupportedError("measurements", "counts", "Use bo_stream.Campaign for counts.")
        if settings.named.joint:
            columns = ", ".join(settings.named.learned)
            raise UnsupportedError("one outcome", columns, "Use bo_stream.Campaign for several.")
        self.space, self.settings = space, settings
        self._feasible = settings.feasible(options.get("constraints") or ())
        given = options.get("surrogate"), options.get("acquisition")
        stages = settings.stages(self._feasible, *given)
        self._manager = SurrogateManager(
            stages, space.tensor_bounds, settings.initial, winsorise=goal != "learn"
        )
        self._reset()

    def _reset(self) -> None:
        self._manager.reset()
        none = torch.empty(0, self.space.dim, dtype=torch.float64)
        self._observations = Observations(none, none[:, :1])
        self._known: dict[Hashable, TrialOutcome] = {}
        self._noise_known = False
        self._proposed_at: float | None = None
        self._evaluation_seconds: float | None = None
        self._decision_seconds: float | None = None

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate, of outcomes to be maximised; None before it is built."""
        return self._manager.model

    def follow(self, outcomes: Mapping[Hashable, TrialOutcome]) -> None:
        """Observe the new outcomes in one batch.

        The surrogate is reset if a known outcome has changed, or if the noise was known for all
        outcomes and no longer is.

        Args:
            outcomes: All outcomes, by trial.
        """
        noise_known = all(outcome.yvar is not None for outcome in outcomes.values())
        new = {key: o for key, o in outcomes.items() if self._known.get(key) != o}
        if not new:
            return
        if self._proposed_at is not None:
            self._evaluation_seconds = time.perf_counter() - self._proposed_at
        changed = not self._known.keys().isdisjoint(new)
        if self._known and (noise_known != self._noise_known or changed):
            self._reset()
            new = dict(outcomes)
        X = self._points([o.inputs for o in new.values()])
        Y = self.settings.sign * torch.tensor([[o.y] for o in new.values()], dtype=torch.float64)
        Yvar = None
        if noise_known:
            Yvar = torch.tensor([[o.yvar] for o in new.values()], dtype=torch.float64)
        elif self.settings.fixed_variance is not None:
            Yvar = torch.full_like(Y, self.settings.fixed_variance)
        self._manager.observe(X, Y, self._floored(Yvar), Row(()))
        self._observations = self._observations.extended(X, Y, Yvar)
        self._known.update(new)
        self._noise_known = noise_known

    def next(self, number: int, pending: Sequence[Inputs], failed: Sequence[Inputs]) -> Inputs:
        """The next trial. The surrogate is built or fitted first if that is due.

        Args:
            number: Number of the trial. The randomness depends on it and on the seed, so that
                workers with the same seed draw different points.
            pending: Inputs of running trials.
            failed: Inputs of trials without an outcome, which are not proposed again.
        """
        seed, data, no_pool = self.settings.seed, self._observations, torch.empty(0).long()
        data = Observations(data.X, data.Y, self._floored(data.Yvar))
        self._manager.update(data, len(data.X), Row(("fit_evaluations",)))
        with proposing(seed, number, data.X.device):
            X = None
            if (model := self._manager.model) is not None:
                points = self._points(pending), self._points(failed)
                context = ProposalContext(
                    data.candidates(),
                    *points,
                    no_pool,
                    data.best(),
                    len(data.X),
                    self._manager.ensemble,
                    self._evaluation_seconds,
                    self._decision_seconds,
                )
                begin = time.perf_counter()
                stage = self._manager.stage
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


def check_options(**options: Any) -> None:
    """Refuse options of a `Follower` before the inputs are known.

    They are tried with one to three inputs, and with as many as a list among the surrogate's
    options has entries.

    Raises:
        InputError, UnsupportedError: for options that are invalid with each of these.
    """
    named = options.get("surrogate")
    values = named.values() if isinstance(named, Mapping) else ()
    counts = {len(v) for v in values if isinstance(v, list | tuple) and v}
    errors: list[InputError | UnsupportedError] = []
    for count in (*sorted(counts), 1, 2, 3):
        try:
            Follower(box([Parameter((0.0, 1.0))] * count), "minimise", **options)
            return
        except (InputError, UnsupportedError) as error:
            errors.append(error)
    raise errors[0]
