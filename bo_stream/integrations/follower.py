"""A surrogate that follows trials which somebody else keeps: it absorbs only what is new."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bo_stream.base.construct_inputs import LEAST_NOISE
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.fit_policy import FitPolicy
from bo_stream.campaign.observations import Observed
from bo_stream.campaign.proposals import Build, Known, Optimiser, Search, design
from bo_stream.campaign.randomness import proposing
from bo_stream.campaign.records import Row
from bo_stream.campaign.settings import (
    SCHEDULE,
    Goal,
    Named,
    Settings,
)
from bo_stream.campaign.space import Box
from bo_stream.campaign.surrogate_manager import Learner

__all__ = ["ANYWHERE", "Follower", "Inputs", "Outcome", "box"]

Inputs = tuple[float, ...]
"""Where a trial is, in the user's units."""


class Outcome(NamedTuple):
    """What a trial gave.

    Attributes:
        inputs: Where it was.
        y: Its value.
        yvar: The variance of its noise, where known; zero if it is exact.
    """

    inputs: Inputs
    y: float
    yvar: float | None = None


def box(bounds: Sequence[tuple[float, float]], log: Sequence[bool]) -> Box:
    """A box for a framework that keeps the names of its inputs itself.

    Args:
        bounds: Of each input.
        log: Which of them are on a logarithmic scale.
    """
    names = [f"input {i}" for i in range(len(bounds))]
    scales = [name for name, is_log in zip(names, log, strict=True) if is_log]
    return Box(dict(zip(names, bounds, strict=True)), scales)


ANYWHERE = box([(0.0, 1.0)], [False])
"""A box for trying out whether names and sizes are right before the inputs are known."""


class Follower:
    """A surrogate of trials kept elsewhere, and where it would measure next.

    Args:
        space: Where trials may be.
        goal: ``maximise``, ``minimise`` or ``learn``.
        surrogate: As for `bo_stream.Campaign`.
        acquisition: Likewise.
        budget: About how many trials there will be, for choosing defaults.
        seed: Of all that is drawn; None: a new one.
        initial: Outcomes to wait for before there is a surrogate.
        fit: When hyperparameters are fitted; its steps are trials.
        optimiser: How hard acquisition functions are maximised.

    Raises:
        InputError: for settings that cannot be.
    """

    def __init__(
        self,
        space: Box,
        goal: Goal,
        surrogate: Named | Callable[..., StreamingGP] | None = None,
        acquisition: Named | Build | None = None,
        budget: int | None = None,
        seed: int | None = None,
        initial: int | None = None,
        fit: FitPolicy = SCHEDULE,
        optimiser: Optimiser | None = None,
    ) -> None:
        said = (surrogate, acquisition, budget, seed, initial, fit, optimiser)
        settings, make, build = Settings.chosen(space, goal, *said)
        self.space, self.settings = space, settings
        self._search = Search(space, settings.build_acquisition(build), settings.optimiser)
        bounds = space.tensor_bounds
        self._learner = Learner(settings.make_surrogate(make), bounds, fit, settings.initial)
        self._begin()

    def _begin(self) -> None:
        self._learner.forget()
        none = torch.empty(0, self.space.dim, dtype=torch.float64)
        self._observed = Observed(none, none[:, :1])
        self._seen: dict[Hashable, Outcome] = {}
        self._noise_known = False

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate, of outcomes to be maximised; None before it is built."""
        return self._learner.model

    def follow(self, outcomes: Mapping[Hashable, Outcome]) -> None:
        """Absorb the outcomes not seen before, in one batch.

        If one that was seen has changed, or noise that was known no longer is, the surrogate begins
        anew: it cannot unlearn.

        Args:
            outcomes: Every outcome there is, by trial.
        """
        known = all(outcome.yvar is not None for outcome in outcomes.values())
        new = {key: o for key, o in outcomes.items() if self._seen.get(key) != o}
        if not new:
            return
        if self._seen and (known != self._noise_known or not self._seen.keys().isdisjoint(new)):
            self._begin()
            new = dict(outcomes)
        X = self._points([o.inputs for o in new.values()])
        Y = self.settings.sign * torch.tensor([[o.y] for o in new.values()], dtype=torch.float64)
        Yvar = None
        if known:
            Yvar = torch.tensor([[o.yvar] for o in new.values()], dtype=torch.float64)
        self._learner.absorb(X, Y, self._floored(Yvar), Row(()))
        self._observed = self._observed.after(X, Y, Yvar)
        self._seen.update(new)
        self._noise_known = known

    def next(self, number: int, pending: Sequence[Inputs], failed: Sequence[Inputs]) -> Inputs:
        """Where to measure next; the surrogate is built or fitted first, if that is due.

        Args:
            number: Of the trial. Whatever is drawn depends on the seed and on it, so that workers
                with the same seed draw differently.
            pending: Where trials are under way.
            failed: Where trials gave no value; they are not proposed again.
        """
        seed, seen, no_pool = self.settings.seed, self._observed, torch.empty(0, dtype=torch.long)
        told, row = len(seen.X), Row(("fit_evaluations",))
        self._learner.settle((seen.X, seen.Y, self._floored(seen.Yvar)), told, told, row)
        model = self._learner.model
        with proposing(seed, number, seen.X.device):
            if model is None:
                X = design(self.space, seed, number, 1, no_pool)
            else:
                under_way, vain = self._points(pending), self._points(failed)
                X = self._search(model, 1, Known(seen.candidates(), under_way, vain, no_pool))
        return tuple(self.space.decoded(X)[0].tolist())

    def _floored(self, Yvar: Tensor | None) -> Tensor | None:
        """Variances of zero, of exact outcomes, replaced by the least that a surrogate takes."""
        Y = self._observed.Y
        spread = float(Y.var()) if len(Y) > 1 else 0.0
        return None if Yvar is None else Yvar.where(Yvar > 0.0, LEAST_NOISE * (spread or 1.0))

    def _points(self, inputs: Sequence[Inputs]) -> Tensor:
        values = np.array(inputs, dtype=np.float64)
        return self.space.encoded(values.reshape(-1, self.space.dim))
