"""A campaign of measurements: ask where to measure, tell what came out, in any order.

Everything that was asked, told or failed is an event in a store, and the campaign is what follows
from the events: its trials, its surrogate, its next question. So a process that dies loses nothing,
and one that comes back goes on as if it had never been away.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_stream.campaign import ledger as events
from bo_stream.campaign.books import Books
from bo_stream.campaign.callbacks import Callback
from bo_stream.campaign.choosing import Chooser
from bo_stream.campaign.frames import (
    asked_about,
    asked_frame,
    known_ids,
    new_trials,
    outcomes,
    trials_frame,
)
from bo_stream.campaign.learner import Learner
from bo_stream.campaign.ledger import Ledger
from bo_stream.campaign.loop_config import FitPolicy
from bo_stream.campaign.proposals import Build, Optimiser, Propose, Search
from bo_stream.campaign.records import Row
from bo_stream.campaign.settings import (
    SCHEDULE,
    Goal,
    Named,
    Settings,
    as_named,
    default_acquisition,
    default_initial,
    default_surrogate,
)
from bo_stream.campaign.space import Space
from bo_stream.campaign.store import Store, opened
from bo_stream.core.streaming import StreamingGP
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.scores import marginals

__all__ = ["Campaign"]

PARTS = ("fit", "acquisition", "evaluation", "update", "score", "store")


class Campaign:
    """Measurements towards a goal, one row of pandas a trial.

    Args:
        space: Where it may measure: a `Box` of named inputs or a `Pool` of places.
        surrogate: Name of a family, a mapping of its name and options, or a callable ``(X, Y, Yvar,
            bounds=..., outcome_transform=...)``; left out, the family is chosen by the number of
            inputs and the budget.
        acquisition: Likewise, by name (`acquisitions.NAMES`) or a callable ``(model, *, X_baseline,
            best_f, X_pending, mc_points)`` that gets those of them it has parameters for; left out,
            it is chosen by the goal.
        goal: ``maximise`` or ``minimise`` the outcome, or ``learn`` it everywhere: the variance
            integrated over ``targets``.
        store: URL of a database (``sqlite:///oven.db``), or a store; None: in memory only.
        name: Of the campaign in its store. One that is there already, on the same space, goes on.
        targets: For ``learn``: a frame of places over which variance is integrated; None: the pool,
            or the whole box.
        budget: About how many measurements there will be, for choosing defaults.
        seed: Of all that is drawn; None: a new one, kept in the store.
        initial: Outcomes to wait for before there is a surrogate; the points asked for until then
            are spread over the space.
        fit: When hyperparameters are fitted.
        optimiser: How hard acquisition functions are maximised over a box.
        callbacks: Hooks.

    Raises:
        InputError: for settings that cannot be.
        StateError: if the store has a campaign of this name on another space.

    Example:
        >>> from bo_stream import Box, Campaign
        >>> campaign = Campaign(Box({"x": (0.0, 4.0)}), goal="minimise", seed=0)
        >>> for _ in range(8):
        ...     batch = campaign.ask()
        ...     batch["y"] = (batch["x"] - 3.0) ** 2
        ...     campaign.tell(batch)
        >>> bool(abs(campaign.best()["x"] - 3.0) < 0.3)
        True
    """

    def __init__(
        self,
        space: Space,
        surrogate: Named | Callable[..., StreamingGP] | None = None,
        acquisition: Named | Build | None = None,
        goal: Goal = "maximise",
        store: str | Store | None = None,
        name: str | None = None,
        *,
        targets: pd.DataFrame | None = None,
        budget: int | None = None,
        seed: int | None = None,
        initial: int | None = None,
        fit: FitPolicy = SCHEDULE,
        optimiser: Optimiser | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        family, make = as_named(surrogate, default_surrogate(space, budget))
        chosen, build = as_named(acquisition, default_acquisition(goal))
        seed = secrets.randbits(31) if seed is None else seed
        initial = default_initial(space, budget) if initial is None else initial
        places = None if targets is None else space.values(targets).tolist()
        optimiser = optimiser or Optimiser()
        settings = Settings(space, goal, family, chosen, seed, initial, fit, optimiser, places)
        settings.make_surrogate(make), settings.build_acquisition(build)  # refused now, if ever
        found, name = opened(store), name or "campaign"
        before = found.settings(name)
        if before is None:
            found.create(name, settings.described())
        else:
            settings = settings.going_on(Settings.read(before), name)
        self._begin(found, name, settings, make, build, callbacks)

    @classmethod
    def resume(
        cls,
        store: str | Store,
        name: str = "campaign",
        *,
        surrogate: Callable[..., StreamingGP] | None = None,
        acquisition: Build | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """A campaign from its store, as it was: nothing is fitted again.

        Args:
            store: URL of the database.
            name: Of the campaign.
            surrogate: The callable it was begun with, if that was one.
            acquisition: Likewise.
            callbacks: Hooks.

        Raises:
            StateError: if there is none of this name, or one of another version.
        """
        found = opened(store)
        settings = found.settings(name)
        if settings is None:
            there = ", ".join(map(repr, found.names())) or "no campaign"
            raise StateError(f"a campaign {name!r}", there, "Correct the name or the URL.")
        campaign, read = cls.__new__(cls), Settings.read(settings)
        campaign._begin(found, name, read, surrogate, acquisition, callbacks)
        return campaign

    def _begin(
        self,
        store: Store,
        name: str,
        settings: Settings,
        make: Callable[..., StreamingGP] | None,
        build: Build | None,
        callbacks: Sequence[Callback],
    ) -> None:
        s, space = settings, settings.space
        targets = None if s.targets is None else space.encoded(np.array(s.targets))
        search = Search(space, s.build_acquisition(build), s.optimiser, targets)
        like = torch.empty(0, dtype=torch.float64)
        self._start(store, name, s, s.make_surrogate(make), search, callbacks, like)

    def _start(
        self,
        store: Store,
        name: str,
        settings: Settings,
        make: Callable[..., StreamingGP],
        propose: Propose,
        callbacks: Sequence[Callback],
        like: Tensor,
    ) -> None:
        self.space, self.goal, self.name = settings.space, settings.goal, name
        self.settings, self.store, self.callbacks = settings, store, tuple(callbacks)
        self._like = like
        self._chooser = Chooser(settings, propose, like)
        bounds = settings.space.tensor_bounds.to(like)
        learner = Learner(make, bounds, settings.fit, settings.initial, settings.restandardise)
        self.row = Row((*(f"{part}_seconds" for part in PARTS), "fit_evaluations"))
        self._books = Books(store, name, settings, learner, like)
        self._books.sync(self.row, score=False)

    # -- ask and tell ----------------------------------------------------------------------------

    def ask(self, q: int = 1, *, by: str | None = None) -> pd.DataFrame:
        """Where to measure next, trials under way kept in mind; they are in the store on return.

        Cost: the search for the next points, and a fit where the schedule says so.

        Args:
            q: How many trials.
            by: What will run them, for a program that wants to know its own again.

        Returns:
            Inputs in the user's units (and the place, in a pool); the index is the trial's id.

        Raises:
            InputError: for a q that cannot be, or a pool that is used up.
        """
        if isinstance(q, bool) or not isinstance(q, int | np.integer) or q < 1:
            raise InputError("q, a whole number from 1 on", repr(q), "Ask for one trial or more.")
        self._books.sync(self.row)
        while True:
            self.update()
            before = self._books.ledger
            inputs, places = self._chooser.choose(self._books, int(q), self.row)
            with self.row.timed("store_seconds"), self.store.writing(self.name) as turn:
                new = turn.since(before.seen)
                stale = any(event.get("trials") for event in new)
                if not stale:
                    turn.append(events.asked(before.after(new), inputs, places, by))
            self._books.sync(self.row)
            if not stale:  # else others have asked meanwhile: their trials are under way now
                break
        return self._given(before, int(q))

    def enqueue(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Put trials of one's own under way, as if they had been asked for.

        Args:
            frame: Inputs in the user's units (in a pool: those, or a column ``place``).

        Returns:
            As `ask`.

        Raises:
            InputError, BoundsError: on a frame that does not fit.
        """
        self._books.sync(self.row)
        with self.row.timed("store_seconds"), self.store.writing(self.name) as turn:
            ledger = self._books.ledger.after(turn.since(self._books.ledger.seen))
            inputs, places = new_trials(frame, self.space, ledger)
            turn.append(events.asked(ledger, inputs, places))
        self._books.sync(self.row)
        return self._given(ledger, len(inputs))

    def tell(self, frame: pd.DataFrame) -> None:
        """Take outcomes: those of trials, part of a batch, or ones that nobody asked for.

        They are in the store, durably, on return. An outcome told twice is taken once.

        Args:
            frame: A column ``y``, and ``yvar`` (the noise variance of each outcome) for all or none
                of a campaign. Rows of trials have the trial's id in the index, as `ask` gave it, or
                in a column ``trial``; other rows have the inputs.

        Raises:
            InputError, BoundsError, NoiseError: on a frame that does not fit.
            StateError: on an outcome that contradicts one told before.
        """
        self._books.sync(self.row)
        with self.row.timed("store_seconds"), self.store.writing(self.name) as turn:
            ledger = self._books.ledger.after(turn.since(self._books.ledger.seen))
            values, inputs, places = outcomes(frame, self.space, ledger)
            if not values:
                return
            event = events.told(ledger, values, inputs, places)
            turn.append(event)
        self._books.sync(self.row)
        self._told([row[0] for row in event["values"]])

    def fail(self, ids: Any, reason: str) -> None:
        """Give up trials that gave no value. Their points are not asked for again.

        An outcome that comes after all may still be told.

        Args:
            ids: One id, or several.
            reason: Why.

        Raises:
            InputError: for ids that are none.
            StateError: for trials whose outcome is known.
        """
        wanted = asked_about(ids, reason)
        self._books.sync(self.row)
        with self.row.timed("store_seconds"), self.store.writing(self.name) as turn:
            ledger = self._books.ledger.after(turn.since(self._books.ledger.seen))
            trials = known_ids(wanted, ledger)
            done = [trial.id for trial in trials if trial.status == "told"]
            if done:
                raise StateError(
                    "trials without an outcome", f"{done}, told before", "Leave them out."
                )
            new = [trial.id for trial in trials if trial.status == "running"]
            if not new:
                return
            turn.append(events.failed([(id, reason) for id in new]))
        self._books.sync(self.row)
        self._told(new)

    def update(self) -> None:
        """Build or fit the surrogate now, if that is due; `ask` does so by itself."""
        self._books.sync(self.row)
        self._books.settle(self.row)

    # -- what is known ---------------------------------------------------------------------------

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate, of outcomes to be maximised, over points as the space encodes them."""
        return self._books.learner.model

    @property
    def behind(self) -> bool:
        """Whether predictions have fallen behind what they themselves promise."""
        return self._books.learner.surprise.behind

    def trials(self) -> pd.DataFrame:
        """Every trial: inputs, outcome, status (``running``, ``told``, ``failed``), reason."""
        self._books.sync(self.row)
        return trials_frame(list(self._books.ledger.trials.values()), self.space)

    def running(self) -> pd.DataFrame:
        """Trials under way, as `ask` gave them: what is still to be told."""
        self._books.sync(self.row)
        return asked_frame(self._books.ledger.of("running"), self.space)

    def observations(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y (to be maximised) and Yvar of all outcomes, in the order they were told."""
        self._books.sync(self.row)
        seen = self._books.observed
        return seen.X, seen.Y, seen.Yvar

    def best(self) -> pd.Series[Any]:
        """The best outcome told so far, its inputs and its trial's id (the name).

        Raises:
            StateError: before anything was told.
            UnsupportedError: for a campaign whose goal is to learn.
        """
        if self.goal == "learn":
            raise UnsupportedError(
                "a goal of maximising or minimising", "one of learning", "Use predict(frame)."
            )
        told = self.trials().query("status == 'told'")
        if not len(told):
            raise StateError("outcomes", "none yet", "Tell some first.")
        frame = told.drop(columns=["status", "ask", "reason"])
        return frame.iloc[int((self.settings.sign * frame["y"]).argmax())]

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """What is expected at some places: ``mean`` and ``sd`` of the noiseless outcome.

        Args:
            frame: Inputs in the user's units.

        Raises:
            StateError: before there are enough outcomes for a surrogate.
            InputError, BoundsError: on places that do not fit.
        """
        values = self.space.values(frame)
        self._books.sync(self.row)
        if self.model is None:
            self.update()
        if self.model is None:
            raise StateError(
                f"{self.settings.initial} outcomes, to build a surrogate from",
                f"{self._books.ledger.told}",
                "Tell more first.",
            )
        mean, variance = marginals(self.model, self.space.encoded(values).to(self._like))
        said = {
            "mean": self.settings.sign * mean.numpy(),
            "sd": variance.clamp_min(0).sqrt().numpy(),
        }
        return pd.DataFrame(said, frame.index)

    # -- pieces ----------------------------------------------------------------------------------

    def _given(self, before: Ledger, count: int) -> pd.DataFrame:
        """The trials that follow a ledger, shown to callbacks."""
        ids = before.next_ids(count)
        frame = asked_frame([self._books.ledger.trials[id] for id in ids], self.space)
        for callback in self.callbacks:
            callback.after_ask(self, frame.copy())
        return frame

    def _told(self, ids: list[int]) -> None:
        if self.callbacks:
            frame = trials_frame([self._books.ledger.trials[id] for id in ids], self.space)
            for callback in self.callbacks:
                callback.after_tell(self, frame.copy())
