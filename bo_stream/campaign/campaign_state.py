"""Current state of a campaign: trials, outcomes, and the surrogate that follows from them."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from bo_stream.campaign.changes import replayed
from bo_stream.campaign.history import Trial, TrialHistory
from bo_stream.campaign.outcomes.observations import Observations
from bo_stream.campaign.proposing.fallbacks import falling_back
from bo_stream.campaign.proposing.recommendation import region_of_best
from bo_stream.campaign.proposing.stage import Stage
from bo_stream.campaign.proposing.surrogate_manager import SurrogateManager
from bo_stream.campaign.records import Row
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space.feasible import InputConstraint
from bo_stream.campaign.storage.store import Store
from bo_stream.errors import StateError, UnsupportedError

__all__ = ["CampaignOrigin", "CampaignState", "LedgerState"]

NO_REGION = "No trials are drawn about the recommended point."


@dataclass(frozen=True)
class CampaignOrigin:
    """What the state of a campaign follows from.

    Attributes:
        store: Where events and snapshots are kept; it has the campaign.
        name: Name of the campaign.
        settings: Its settings, in which ``changes`` are taken into account.
        changes: Number of changes of settings in the store so far.
        stages_of: The surrogate and what chooses trials, by settings.
        like: A tensor of the dtype and device to use.
        constraints: The callables among the constraints.
    """

    store: Store
    name: str
    settings: Settings
    changes: int
    stages_of: Callable[[Settings], Sequence[Stage]]
    like: Tensor
    constraints: Sequence[InputConstraint] = ()


class LedgerState:
    """Trials and current settings of a campaign.

    Attributes:
        settings: The current settings.
        failures: What failures are for this state, whatever the settings are changed to.
        feasible: Where trials may be proposed.
        stages_of: The surrogate and what chooses trials, by settings.
        budget: Number of trials in all; None: no limit.
        history: All trials.
        region: Where some trials are drawn: about the recommended point of the latest fit.
    """

    region: Tensor | None = None

    def __init__(self, origin: CampaignOrigin) -> None:
        self.store, self.name, self.settings = origin.store, origin.name, origin.settings
        self.history, self.budget = TrialHistory(), self.settings.budget
        self.failures = self.settings.failures
        self.stages_of, self._like = origin.stages_of, origin.like
        self._applied, self._constraints = origin.changes, origin.constraints
        self.feasible = self.settings.feasible(self._constraints)

    def configure(self, history: TrialHistory) -> bool:
        """Take over the settings that were changed before a history ends; whether any were."""
        new = history.changes[self._applied :]
        if not new:
            return False
        self.settings = replayed(self.settings, new)
        self.feasible = self.settings.feasible(self._constraints)
        if any("budget" in change for change in new):
            self.budget = self.settings.budget
        self._applied = len(history.changes)
        return True

    def points(self, trials: list[Trial]) -> Tensor:
        """Inputs of trials as the surrogate's, ``n x d``."""
        values = np.array([t.inputs for t in trials], dtype=np.float64)
        space = self.settings.space
        return space.encode(values.reshape(-1, space.dim)).to(self._like)


class CampaignState(LedgerState):
    """Trials, observations and surrogate of a campaign, synchronised with its store.

    Attributes:
        observations: All outcomes that are learned from, as tensors.
        manager: The surrogate.
    """

    def __init__(self, origin: CampaignOrigin) -> None:
        super().__init__(origin)
        settings = self.settings
        self._sign, self._variance = settings.sign, settings.fixed_variance
        bounds = settings.space.tensor_bounds.to(self._like)
        winsorise = settings.goal != "learn" and settings.counts is None
        given = (settings.initial, settings.restandardise, winsorise)
        self.manager = SurrogateManager(self.stages_of(settings), bounds, *given)
        self.observations = self._no_observations()
        self._revision = 0  # of the observations
        self._snapshot = 0  # number of the snapshot last loaded or saved
        self._saved: float = 0  # outcomes in it

    def sync(self, row: Row) -> None:
        """Read what is new in the store: snapshots of other processes, then events.

        Args:
            row: Receives the seconds.
        """
        if self.store.durable and self.store.newest_snapshot(self.name) > self._snapshot:
            self._load_snapshot()
        events = self.store.events_since(self.name, self.history.num_events)
        self.follow(self.history.extended(events), row)

    def follow(self, history: TrialHistory, row: Row) -> None:
        """Move on to a later history, and let the surrogate observe the new outcomes.

        The surrogate itself knows how many outcomes it has observed, so that an interruption
        neither repeats nor loses one.

        Args:
            history: The current history or a later one.
            row: Receives the seconds.
        """
        self.configure(history)
        self.history = history
        self._extend_observations()
        manager, data, ends = self.manager, self.observations, history.batch_ends
        revised = manager.revision < history.revision
        if revised:
            self.region = None
            with row.timed("update_seconds"):
                manager.revise(data, ends, history)
        while manager.model is not None and manager.num_observed < history.num_told:
            first = manager.num_observed
            part = slice(first, ends[bisect_right(ends, first)])
            manager.observe(*data.part(part), row)
        unsaved = manager.num_observed - self._saved
        due = unsaved >= self.store.snapshot_every or (revised and unsaved > -math.inf)
        if manager.model is not None and due:
            self._save_snapshot(row)

    def configure(self, history: TrialHistory) -> bool:
        """Take over the settings that were changed before a history ends; whether any were."""
        new = super().configure(history)
        if new:
            bounds = self.settings.space.tensor_bounds.to(self._like)
            self.manager.configure(self.stages_of(self.settings), bounds)
        return new

    def update_surrogate(self, row: Row, q: int = 1) -> None:
        """Build or fit the surrogate if that is due, for the choice of so many trials."""
        if self.manager.update(self.observations, len(self.history.batches), row, q):
            self.region = self._region(row)
            self._save_snapshot(row)

    # -- pieces ----------------------------------------------------------------------------------

    def _region(self, row: Row) -> Tensor | None:
        """The region of the recommended point, if a polynomial found it."""
        manager = self.manager
        if manager.model is None or not manager.stage.samples:
            return None
        guard = falling_back(NO_REGION, allowed=manager.stage.named, checked=True)
        with row.timed("acquisition_seconds"), guard:
            return region_of_best(manager.model, self.feasible, self.observations)
        return None

    def _no_observations(self) -> Observations:
        none = self._like.new_empty(0, self.settings.space.dim)
        return Observations(none, none[:, :1], counts=self.settings.counts is not None)

    def _extend_observations(self) -> None:
        """Add the outcomes of new batches; after a revision, collect all of them again."""
        history = self.history
        if self._revision < history.revision:
            self.observations, self._revision = self._no_observations(), history.revision
        new = history.batches[self.observations.batches :]
        if new:
            data = self._tensors(list(chain.from_iterable(new)))
            self.observations = self.observations.extended(*data, batches=len(new))

    def _tensors(self, ids: Sequence[int]) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y and Yvar (or sizes) of trials with outcomes."""
        trials = [self.history.trials[id] for id in ids]
        Y = self._column([t.y for t in trials])
        Yvar = None
        if self.observations.counts:
            Yvar = self._column([t.size for t in trials])
        elif self.history.noise_known:
            Yvar = self._column([t.yvar for t in trials])
        elif self._variance is not None:
            Yvar = torch.full_like(Y, self._variance)
        return self.points(trials), self._sign * Y, Yvar

    def _column(self, values: Sequence[float | None]) -> Tensor:
        """Values as a column, ``n x 1``."""
        return torch.tensor(values, dtype=torch.float64).reshape(-1, 1).to(self._like)

    def _save_snapshot(self, row: Row) -> None:
        if not self.store.durable:
            return
        with row.timed("store_seconds"):
            try:
                about, model = self.manager.dumps()
                about["region"] = None if self.region is None else self.region.tolist()
            except UnsupportedError as error:
                warnings.warn(
                    "This surrogate cannot be saved; a resumed campaign builds it again from all "
                    f"outcomes. {error}",
                    stacklevel=4,
                )
                self._saved = math.inf
                return
            try:
                self._snapshot = self.store.save_snapshot(self.name, about, model)
            except StateError as error:  # such as a full disk, after the outcomes were stored
                warnings.warn(
                    f"The surrogate was not saved; no outcome is lost. {error}", stacklevel=4
                )
        self._saved = self.manager.num_observed

    def _load_snapshot(self) -> None:
        """Load the newest readable snapshot; without one, the surrogate is built again."""
        newest = self.store.newest_snapshot(self.name)
        for snapshot in self.store.snapshots(self.name):
            if "parts" in snapshot.about:  # of several outcomes, before failures were ignored
                continue
            try:
                self.manager.loads(snapshot.about, snapshot.model)
                region = snapshot.about.get("region")
                self.region = None if region is None else self._like.new_tensor(region)
            except Exception as error:  # of another release: anything may be missing
                warnings.warn(
                    f"Snapshot {snapshot.number} of the surrogate of campaign {self.name!r} cannot "
                    "be used. No outcome is lost: the surrogate is restored from an earlier "
                    f"snapshot or built again from all outcomes. {error}",
                    stacklevel=4,
                )
                continue
            self._saved = self.manager.num_observed
            break
        else:
            self.manager.reset()
            self._saved, self.region = 0, None
        self._snapshot = newest
