"""Current state of a campaign: trials and settings as in its store, and the engine that follows."""

from __future__ import annotations

import math
import warnings
from itertools import chain
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor

from bo_stream.campaign.engine import Engine
from bo_stream.campaign.history import Decision, Entry, Event, Trial, TrialHistory
from bo_stream.campaign.ledger import Ledger
from bo_stream.campaign.outcomes.outcome import Observations, Outcome
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Pool
from bo_stream.errors import InputError, StateError

__all__ = ["CampaignState"]


class CampaignState:
    """The engine of a campaign, which follows the ledger and the snapshots in its store.

    Args:
        ledger: The trials and settings.
        engine: What decides, with these settings.
    """

    def __init__(self, ledger: Ledger, engine: Engine) -> None:
        self.ledger, self.store, self.engine = ledger, ledger.store, engine
        self._snapshot = 0  # number of the snapshot last loaded or saved

    # -- following the store ---------------------------------------------------------------------

    def sync(self) -> Self:
        """The state, with what is new in the store: snapshots of other processes, then events."""
        if self.store.durable and self.store.newest_snapshot(self.ledger.name) > self._snapshot:
            self._load_snapshot()
        self.ledger.refresh()
        self.follow()
        return self

    def follow(self) -> None:
        """Take over changed settings, and let the surrogates observe the new outcomes."""
        before, settings = self.engine.settings, self.ledger.settings
        if before is not settings:
            if before.failures != settings.failures:
                self.engine.forget()
                self._snapshot = 0
            self.engine.configure(settings)
        due = [self._follow(outcome) for outcome in self.engine.outcomes.learned]
        if any(due):
            self._save_snapshot()

    def update(self, q: int = 1) -> None:
        """Build or fit every surrogate for which that is due, for the choice of so many trials."""
        if self.engine.update(self.ledger.row, q):
            self._save_snapshot()

    @property
    def history(self) -> TrialHistory:
        """The trials, as last read."""
        return self.ledger.history

    @property
    def settings(self) -> Settings:
        """The settings that the engine has."""
        return self.engine.settings

    # -- proposing -------------------------------------------------------------------------------

    def propose(self, q: int) -> tuple[list[Trial], Event]:
        """The next trials: points chosen ahead while there are enough, otherwise a new choice.

        They are the same ones for the same state. After a fit there is a new choice, too.

        Args:
            q: Number of trials.

        Returns:
            The trials, and how they were chosen; see `bo_stream.campaign.history.asked_event`.

        Raises:
            InputError: if a pool has fewer places left.
        """
        history, engine, space = self.history, self.engine, self.settings.space
        if len(history.ahead) >= q and engine.fitted <= history.chosen_at:
            return history.new_trials(history.ahead[:q]), {"taken": q}
        free = self.free_places
        if engine.settings.exact and isinstance(space, Pool):
            told = {t.place for t in history.trials if t.status == "told"}
            fresh = free[[int(place) not in told for place in free]]
            free = fresh if len(fresh) >= q else free  # unless all were measured
        if isinstance(space, Pool) and len(free) < q:
            more = "." if space.repeats else ", or use Pool(..., repeats=True)."
            what = f"{q} places that may still be measured"
            raise InputError(what, f"{len(free)}", f"Ask for fewer{more}")
        running = [t for t in history.with_status("running") if not t.entries]
        with self.ledger.row.timed("acquisition_seconds"):
            view = engine.view(
                self.observations,
                self.points(running),
                self.points(history.with_status("failed")),
                free,
                number=history.num_asks,
                asked=sum(trial.ask is not None for trial in history.trials),
            )
            found = engine.propose(view, q)
        chosen: Event = {"ahead": []}
        if found.name and history.decision != Decision(found.name, found.why):
            chosen["decision"] = [found.name, found.why]
        if isinstance(space, Pool):
            rows = [int(free[i]) for i in found.points]
            return history.new_trials(space.place_values[rows].tolist(), rows), chosen
        if found.ahead is not None:
            chosen["ahead"] = list(map(tuple, space.decode(found.ahead).tolist()))
        return history.new_trials(space.decode(found.points).tolist()), chosen

    @property
    def free_places(self) -> Tensor:
        """Rows of the pool that may be proposed; empty in a box."""
        space = self.settings.space
        if not isinstance(space, Pool) or self.engine.feasible.places is None:
            return torch.empty(0, dtype=torch.long)
        unused = {"withdrawn", "told"} if space.repeats else {"withdrawn"}
        taken = {t.place for t in self.history.trials if t.status not in unused}
        rows = self.engine.feasible.places[1]
        return rows[[row not in taken for row in rows.tolist()]]

    @property
    def observations(self) -> Observations:
        """All outcomes that are learned from; of several, the points of the trials with some."""
        engine = self.engine
        if engine.only is not None:
            return engine.only.data
        known = [t for t in self.history.trials if t.entries and t.status != "withdrawn"]
        Y = torch.tensor([engine.outcomes.values(t) for t in known], dtype=torch.float64)
        Y = Y.reshape(-1, len(engine.outcomes.columns)).to(engine.like)
        return Observations(self.points(known), Y)

    def points(self, trials: list[Trial]) -> Tensor:
        """Inputs of trials as the surrogate's, ``n x d``."""
        values = np.array([t.inputs for t in trials], dtype=np.float64)
        space = self.settings.space
        return space.encode(values.reshape(-1, space.dim)).to(self.engine.like)

    # -- pieces ----------------------------------------------------------------------------------

    def _follow(self, outcome: Outcome) -> bool:
        """Let a surrogate observe its new outcomes; whether it is to be saved."""
        learner = self.engine.learners[outcome.column]
        log, data = outcome.log_of(self.history), learner.data
        if data.revision < log.revision:  # all outcomes are collected again
            data = Observations.none(learner.bounds, data.counts, log.revision)
        new = log.batches[data.batches :]
        if new:
            trials = [self.history.trials[id] for id in chain.from_iterable(new)]
            entries = [cast(Entry, outcome.entry_of(trial)) for trial in trials]
            found = outcome.tensors(entries, self.engine.like)
            data = data.extended(self.points(trials), *found, batches=len(new))
        revised = learner.follow(data, log, self.ledger.row)
        if revised:
            self.engine.region = None
        unsaved = learner.num_observed - learner.saved
        due = unsaved >= self.store.snapshot_every or (revised and unsaved > -math.inf)
        return learner.model is not None and due

    # -- snapshots -------------------------------------------------------------------------------

    def _save_snapshot(self) -> None:
        """Save all surrogates that can be saved."""
        if not self.store.durable:
            return
        with self.ledger.row.timed("store_seconds"):
            saved, contents = self.engine.dumps()
            if saved["parts"]:
                try:
                    self._snapshot = self.store.save_snapshot(self.ledger.name, saved, contents)
                except StateError as error:  # such as a full disk, after the outcomes were stored
                    what = "The surrogate was not saved; no outcome is lost."
                    warnings.warn(f"{what} {error}", stacklevel=4)

    def _load_snapshot(self) -> None:
        """Load the newest readable snapshot; without one, the surrogates are built again."""
        newest, loaded = self.store.newest_snapshot(self.ledger.name), False
        for snapshot in self.store.snapshots(self.ledger.name):
            try:
                loaded = self.engine.loads(snapshot.about, snapshot.model)
            except Exception as error:  # of another release: anything may be missing
                warnings.warn(
                    f"Snapshot {snapshot.number} of the surrogate of campaign {self.ledger.name!r} "
                    "cannot be used. No outcome is lost: the surrogate is restored from an earlier "
                    f"snapshot or built again from all outcomes. {error}",
                    stacklevel=4,
                )
            if loaded:
                break
        if not loaded:
            self.engine.loads(
                {"parts": {}, "region": None, "joint": self.engine.outcomes.joint}, b""
            )
        self._snapshot = newest
