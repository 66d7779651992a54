"""A campaign of measurements: ask where to measure, tell what came out, in any order.

Everything that was asked, told or failed is an event in a store, and the campaign is what follows
from the events: its trials, its surrogate, its next question. So a process that dies loses nothing,
and one that comes back goes on as if it had never been away.
"""

from __future__ import annotations

import secrets
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Self, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_stream.campaign import ledger as events
from bo_stream.campaign.callbacks import Callback
from bo_stream.campaign.frames import asked_frame, known_ids, outcomes, trials_frame
from bo_stream.campaign.learner import Learner
from bo_stream.campaign.ledger import Ledger, Trial
from bo_stream.campaign.loop_config import FitPolicy
from bo_stream.campaign.proposals import Build, Optimiser, design, elsewhere, propose
from bo_stream.campaign.randomness import seeded
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
from bo_stream.campaign.space import Pool, Space
from bo_stream.campaign.store import MemoryStore, Store
from bo_stream.core.streaming import StreamingGP
from bo_stream.errors import BoStreamError, InputError, StateError, UnsupportedError
from bo_stream.scores import marginals

__all__ = ["Campaign"]

PARTS = ("fit", "acquisition", "evaluation", "update", "score", "store")
KEPT_AFTER = 50
"""Outcomes after which the surrogate is saved even if it was not fitted: a resume replays these."""


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
        settings = Settings(
            space,
            goal,
            family,
            chosen,
            secrets.randbits(31) if seed is None else seed,
            default_initial(space, budget) if initial is None else initial,
            fit,
            optimiser or Optimiser(),
            None if targets is None else space.values(targets).tolist(),
        )
        settings.make_surrogate(make), settings.build_acquisition(build)  # refused now, if ever
        found = opened(store)
        name = name or "campaign"
        before = found.settings(name)
        if before is None:
            try:
                found.create(name, settings.described())
            except StateError:  # unless another process has begun it meanwhile
                before = found.settings(name)
                if before is None:
                    raise
        if before is not None:
            settings = self._same(settings, Settings.read(before), name)
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
            raise StateError(
                f"a campaign {name!r} in the store", there, "Correct the name or the URL."
            )
        campaign = cls.__new__(cls)
        read = Settings.read(settings)
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
        self.space, self.goal, self.name = settings.space, settings.goal, name
        self.settings, self.store, self.callbacks = settings, store, tuple(callbacks)
        self._build = settings.build_acquisition(build)
        self._learner = Learner(
            settings.make_surrogate(make),
            settings.space.tensor_bounds,
            settings.fit,
            settings.initial,
        )
        self._ledger = Ledger()
        self._snapshot, self._saved, self._at = 0, 0, (0, 0)
        self.row = Row((*(f"{part}_seconds" for part in PARTS), "fit_evaluations"))
        self._sync()

    @staticmethod
    def _same(wanted: Settings, found: Settings, name: str) -> Settings:
        for part in ("space", "goal"):
            mine, theirs = (s.described()[part] for s in (wanted, found))
            if mine != theirs:
                raise StateError(
                    f"another name, or the {part} that campaign {name!r} was begun with",
                    f"another {part}",
                    "Choose another name, or use Campaign.resume.",
                )
        return found

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
        self._sync()
        while True:
            self.update()
            before = self._ledger
            inputs, places = self._proposed(int(q))
            with self.row.timed("store_seconds"), self.store.writing(self.name) as turn:
                new = turn.since(before.seen)
                stale = any(event.get("trials") for event in new)
                if not stale:
                    turn.append(events.asked(before.after(new), inputs, places, by))
            self._sync()
            if not stale:  # else others have asked meanwhile: their trials are under way now
                break
        first = before.next_ids(int(q))
        frame = asked_frame([self._ledger.trials[id] for id in first], self.space)
        for callback in self.callbacks:
            callback.after_ask(self, frame.copy())
        return frame

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
        with self.row.timed("store_seconds"), self.store.writing(self.name) as turn:
            ledger = self._ledger.after(turn.since(self._ledger.seen))
            values, inputs, places = outcomes(frame, self.space, ledger)
            if not values:
                return
            event = events.told(ledger, values, inputs, places)
            turn.append(event)
        self._ledger = ledger.after([event])
        self._absorb()
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
        if isinstance(ids, int | np.integer):
            ids = [ids]
        if not isinstance(ids, Iterable) or not isinstance(reason, str) or not reason.strip():
            raise InputError(
                "ids of trials, and the reason in words", f"{ids!r}, {reason!r}", "Say why."
            )
        wanted = list(ids)
        with self.row.timed("store_seconds"), self.store.writing(self.name) as turn:
            ledger = self._ledger.after(turn.since(self._ledger.seen))
            trials = known_ids(wanted, ledger)
            done = [trial.id for trial in trials if trial.status == "told"]
            if done:
                raise StateError(
                    "trials without an outcome", f"{done}, told before", "Leave them out."
                )
            new = [trial.id for trial in trials if trial.status == "running"]
            if not new:
                return
            event = events.failed([(id, reason) for id in new])
            turn.append(event)
        self._ledger = ledger.after([event])
        self._absorb()
        self._told(new)

    def update(self) -> None:
        """Build or fit the surrogate now, if that is due; `ask` does so by itself."""
        self._sync()
        told, batches = self._ledger.told, len(self._ledger.batches)
        if self._learner.settle(self._all_data, told, batches, self.row):
            self._save_snapshot()

    # -- what is known ---------------------------------------------------------------------------

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate, of outcomes to be maximised, over points as the space encodes them."""
        return self._learner.model

    @property
    def behind(self) -> bool:
        """Whether predictions have fallen behind what they themselves promise."""
        return self._learner.surprise.behind

    def trials(self) -> pd.DataFrame:
        """Every trial: inputs, outcome, status (``running``, ``told``, ``failed``), reason."""
        self._sync()
        return trials_frame(list(self._ledger.trials.values()), self.space)

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
        self._sync()
        if self.model is None:
            self.update()
        if self.model is None:
            raise StateError(
                f"{self.settings.initial} outcomes, to build a surrogate from",
                f"{self._ledger.told}",
                "Tell more first.",
            )
        mean, variance = marginals(self.model, self.space.encoded(values))
        said = {
            "mean": self.settings.sign * mean.numpy(),
            "sd": variance.clamp_min(0).sqrt().numpy(),
        }
        return pd.DataFrame(said, frame.index)

    # -- pieces ----------------------------------------------------------------------------------

    def _proposed(self, q: int) -> tuple[np.ndarray, list[int] | None]:
        """The next trials: inputs in the user's units, and places in a pool."""
        s, ledger, model = self.settings, self._ledger, self.model
        free = self._free(q)
        drawn = seeded(2 * (1_000_003 * s.seed + ledger.asks), torch.device("cpu"))
        with drawn, self.row.timed("acquisition_seconds"):
            if model is None:
                done = sum(t.ask is not None for t in ledger.trials.values())
                chosen = design(self.space, s.seed, done, q, free)
            else:
                chosen = self._searched(model, q, free)
        if isinstance(self.space, Pool):
            places = [int(free[i]) for i in chosen]
            return self.space.place_values[places], places
        return self.space.decoded(chosen), None

    def _searched(self, model: StreamingGP, q: int, free: Tensor) -> Tensor:
        s, ledger = self.settings, self._ledger
        if self.store.durable:
            model.refresh()  # so that a campaign that was resumed goes on bit for bit
        targets = None if s.targets is None else self.space.encoded(np.array(s.targets))
        chosen = propose(
            self.space,
            model,
            self._build,
            s.optimiser,
            q,
            seen=self._points(ledger.of("told")),
            pending=self._points(ledger.of("running")),
            free=free,
            targets=targets,
        )
        if isinstance(self.space, Pool):
            return chosen
        return elsewhere(self.space, chosen, self._points(ledger.of("failed")))

    def _free(self, q: int) -> Tensor:
        """Rows of the pool that may be measured."""
        if not isinstance(self.space, Pool):
            return torch.empty(0, dtype=torch.long)
        free = torch.ones(len(self.space.place_values), dtype=torch.bool)
        trials = self._ledger.trials.values()
        taken = [t.place for t in trials if not (self.space.repeats and t.status == "told")]
        free[taken] = False
        if int(free.sum()) < q:
            raise InputError(
                f"{q} places that may still be measured",
                f"{int(free.sum())}",
                "Ask for fewer, or use Pool(..., repeats=True).",
            )
        return free.nonzero().squeeze(-1)

    def _points(self, trials: list[Trial]) -> Tensor:
        values = np.array([t.inputs for t in trials], dtype=np.float64)
        return self.space.encoded(values.reshape(-1, self.space.dim))

    def _data(self, ids: Iterable[int]) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y and Yvar of trials that were told, as the surrogate sees them."""
        trials = [self._ledger.trials[id] for id in ids]
        Y = torch.tensor([[t.y] for t in trials], dtype=torch.float64)
        Yvar = None
        if self._ledger.noise_known:
            Yvar = torch.tensor([[t.yvar] for t in trials], dtype=torch.float64)
        return self._points(trials), self.settings.sign * Y, Yvar

    def _all_data(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self._data(id for batch in self._ledger.batches for id in batch)

    def _sync(self) -> None:
        """Take note of what is in the store: snapshots of others, then events."""
        if self.store.durable and self.store.newest_snapshot(self.name) > self._snapshot:
            self._load_snapshot()
        new = self.store.since(self.name, self._ledger.seen)
        if new:
            self._ledger = self._ledger.after(new)
        self._absorb()

    def _absorb(self) -> None:
        """Tell the surrogate what it has not seen, batch by batch.

        How much it has seen it says itself: nothing is absorbed twice, whatever interrupts this.
        """
        batches = self._ledger.batches
        while self.model is not None and self._learner.told < self._ledger.told:
            index, seen = self._at
            if seen != self._learner.told:  # another surrogate than the last time
                ends = list(accumulate(map(len, batches)))
                index, seen = bisect_right(ends, self._learner.told), self._learner.told
            self._learner.absorb(*self._data(batches[index]), self.row)
            self._at = (index + 1, seen + len(batches[index]))
        if self.model is not None and self._learner.told >= self._saved + KEPT_AFTER:
            self._save_snapshot()

    def _save_snapshot(self) -> None:
        if not self.store.durable:
            return
        with self.row.timed("store_seconds"):
            try:
                about, model = self._learner.dumps()
            except UnsupportedError as error:
                warnings.warn(
                    f"This surrogate cannot be saved; a resumed campaign builds it anew. {error}",
                    stacklevel=3,
                )
                self._saved = 1 << 62
                return
            self._snapshot = self.store.save_snapshot(self.name, about, model)
        self._saved = self._learner.told

    def _load_snapshot(self) -> None:
        """The newest snapshot that can be read; without one, the surrogate is built anew."""
        newest = self.store.newest_snapshot(self.name)
        for snapshot in self.store.snapshots(self.name):
            try:
                self._learner.loads(snapshot.about, snapshot.model)
            except (BoStreamError, KeyError, TypeError) as error:
                warnings.warn(
                    f"Snapshot {snapshot.number} of campaign {self.name!r} is passed over, and "
                    f"what came after the one before it is told again: {error}",
                    stacklevel=3,
                )
                continue
            self._saved = self._learner.told
            break
        else:
            self._learner.forget()
        self._snapshot, self._at = newest, (0, 0)

    def _told(self, ids: list[int]) -> None:
        if self.callbacks:
            frame = trials_frame([self._ledger.trials[id] for id in ids], self.space)
            for callback in self.callbacks:
                callback.after_tell(self, frame.copy())


def opened(store: str | Store | None) -> Store:
    """The store at a URL."""
    if store is None:
        return MemoryStore()
    if not isinstance(store, str):
        return store
    try:
        from bo_stream.campaign.database import Database
    except ImportError as error:
        raise ImportError("A store needs SQLAlchemy: pip install 'bo_stream[store]'.") from error
    return cast(Store, Database(store))
