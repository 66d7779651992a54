"""Current state of a campaign: trials, outcomes, and the surrogate that follows from them."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from bo_stream.campaign.observations import Observations
from bo_stream.campaign.records import Row
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.storage.store import Store
from bo_stream.campaign.surrogate_manager import SurrogateManager
from bo_stream.campaign.trials import Trial, TrialHistory
from bo_stream.errors import UnsupportedError

__all__ = ["CampaignState"]


class CampaignState:
    """Trials, observations and surrogate of a campaign, synchronised with its store.

    Args:
        store: Where events and snapshots are kept.
        name: Name of the campaign.
        settings: Its settings.
        manager: Its surrogate.
        like: A tensor of the dtype and device to use.

    Attributes:
        history: All trials.
        observations: All outcomes as tensors.
        manager: The surrogate.
    """

    def __init__(
        self, store: Store, name: str, settings: Settings, manager: SurrogateManager, like: Tensor
    ) -> None:
        self.store, self.name, self.manager = store, name, manager
        self.history = TrialHistory()
        self._space, self._sign, self._like = settings.space, settings.sign, like
        self._variance, counts = settings.fixed_variance, settings.counts is not None
        none = like.new_empty(0, settings.space.dim)
        self.observations = Observations(none, none[:, :1], counts=counts)
        self._snapshot = 0  # number of the snapshot last loaded or saved
        self._saved: float = 0  # outcomes in it

    def points(self, trials: list[Trial]) -> Tensor:
        """Inputs of trials as the surrogate's, ``n x d``."""
        values = np.array([t.inputs for t in trials], dtype=np.float64)
        return self._space.encode(values.reshape(-1, self._space.dim)).to(self._like)

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
        self.history = history
        for batch in history.batches[self.observations.batches :]:
            self.observations = self.observations.extended(*self._tensors(batch))
        manager, data, ends = self.manager, self.observations, history.batch_ends
        while manager.model is not None and manager.num_observed < history.num_told:
            first = manager.num_observed
            part = slice(first, ends[bisect_right(ends, first)])
            Yvar = None if data.Yvar is None else data.Yvar[part]
            manager.observe(data.X[part], data.Y[part], Yvar, row)
        unsaved = manager.num_observed - self._saved
        if manager.model is not None and unsaved >= self.store.snapshot_every:
            self._save_snapshot(row)

    def update_surrogate(self, row: Row) -> None:
        """Build or fit the surrogate if that is due."""
        if self.manager.update(self.observations, len(self.history.batches), row):
            self._save_snapshot(row)

    # -- pieces ----------------------------------------------------------------------------------

    def _tensors(self, ids: Iterable[int]) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y and Yvar (or sizes) of trials with outcomes."""
        trials = [self.history.trials[id] for id in ids]
        Y = torch.tensor([[t.y] for t in trials], dtype=torch.float64).to(self._like)
        Yvar = None
        if self.observations.counts:
            Yvar = torch.tensor([[t.size] for t in trials], dtype=torch.float64).to(self._like)
        elif self.history.noise_known:
            Yvar = torch.tensor([[t.yvar] for t in trials], dtype=torch.float64).to(self._like)
        elif self._variance is not None:
            Yvar = torch.full_like(Y, self._variance)
        return self.points(trials), self._sign * Y, Yvar

    def _save_snapshot(self, row: Row) -> None:
        if not self.store.durable:
            return
        with row.timed("store_seconds"):
            try:
                about, model = self.manager.dumps()
            except UnsupportedError as error:
                warnings.warn(
                    "This surrogate cannot be saved; a resumed campaign builds it again from all "
                    f"outcomes. {error}",
                    stacklevel=4,
                )
                self._saved = float("inf")
                return
            self._snapshot = self.store.save_snapshot(self.name, about, model)
        self._saved = self.manager.num_observed

    def _load_snapshot(self) -> None:
        """Load the newest readable snapshot; without one, the surrogate is built again."""
        newest = self.store.newest_snapshot(self.name)
        for snapshot in self.store.snapshots(self.name):
            try:
                self.manager.loads(snapshot.about, snapshot.model)
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
            self._saved = 0
        self._snapshot = newest
