"""The books of a campaign: what its store says, and the surrogate that follows from it."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from bo_stream.campaign.observations import Observed
from bo_stream.campaign.records import Row
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.storage.store import Store
from bo_stream.campaign.surrogate_manager import Learner
from bo_stream.campaign.trials import Ledger, Trial
from bo_stream.errors import BoStreamError, UnsupportedError

__all__ = ["Books"]

KEPT_AFTER = 50
"""Outcomes after which the surrogate is saved even if it was not fitted: a resume replays these."""


class Books:
    """Ledger, observations and surrogate of a campaign, kept in step with its store.

    Args:
        store: Where events and snapshots are.
        name: Of the campaign.
        settings: Of the campaign.
        learner: The surrogate.
        like: What tensors are like.

    Attributes:
        ledger: Every trial.
        observed: Outcomes as tensors.
        learner: The surrogate.
    """

    def __init__(
        self, store: Store, name: str, settings: Settings, learner: Learner, like: Tensor
    ) -> None:
        self.store, self.name, self.learner = store, name, learner
        self.ledger = Ledger()
        self._space, self._sign, self._like = settings.space, settings.sign, like
        none = like.new_empty(0, settings.space.dim)
        self.observed = Observed(none, none[:, :1])
        self._snapshot, self._saved = 0, 0

    def points(self, trials: list[Trial]) -> Tensor:
        """Where trials are, ``n x d``, as the surrogate sees it."""
        values = np.array([t.inputs for t in trials], dtype=np.float64)
        return self._space.encoded(values.reshape(-1, self._space.dim)).to(self._like)

    def sync(self, row: Row) -> None:
        """Take note of what is in the store: snapshots of others, then events.

        Args:
            row: Whose seconds are added to.
        """
        if self.store.durable and self.store.newest_snapshot(self.name) > self._snapshot:
            self._load_snapshot()
        self.follow(self.ledger.after(self.store.since(self.name, self.ledger.seen)), row)

    def follow(self, ledger: Ledger, row: Row) -> None:
        """Go on to a later ledger, and tell the surrogate what is new in it.

        How much the surrogate has seen it says itself: nothing is absorbed twice, and nothing left
        out, whatever interrupts this.

        Args:
            ledger: What is in the store, or more of it than was known.
            row: Whose seconds are added to.
        """
        self.ledger = ledger
        for batch in self.ledger.batches[self.observed.batches :]:
            self.observed = self.observed.after(*self._data(batch))
        learner, seen, ends = self.learner, self.observed, self.ledger.ends
        while learner.model is not None and learner.told < self.ledger.told:
            first = learner.told
            part = slice(first, ends[bisect_right(ends, first)])
            Yvar = None if seen.Yvar is None else seen.Yvar[part]
            learner.absorb(seen.X[part], seen.Y[part], Yvar, row)
        if learner.model is not None and learner.told >= self._saved + KEPT_AFTER:
            self._save_snapshot(row)

    def settle(self, row: Row) -> None:
        """Build or fit the surrogate, if that is due."""
        ledger, seen = self.ledger, self.observed
        data = (seen.X, seen.Y, seen.Yvar)
        if self.learner.settle(data, ledger.told, len(ledger.batches), row):
            self._save_snapshot(row)

    # -- pieces ----------------------------------------------------------------------------------

    def _data(self, ids: Iterable[int]) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y and Yvar of trials that were told, as the surrogate sees them."""
        trials = [self.ledger.trials[id] for id in ids]
        Y = torch.tensor([[t.y] for t in trials], dtype=torch.float64).to(self._like)
        Yvar = None
        if self.ledger.noise_known:
            Yvar = torch.tensor([[t.yvar] for t in trials], dtype=torch.float64).to(self._like)
        return self.points(trials), self._sign * Y, Yvar

    def _save_snapshot(self, row: Row) -> None:
        if not self.store.durable:
            return
        with row.timed("store_seconds"):
            try:
                about, model = self.learner.dumps()
            except UnsupportedError as error:
                warnings.warn(
                    f"This surrogate cannot be saved; a resumed campaign builds it anew. {error}",
                    stacklevel=4,
                )
                self._saved = 1 << 62
                return
            self._snapshot = self.store.save_snapshot(self.name, about, model)
        self._saved = self.learner.told

    def _load_snapshot(self) -> None:
        """The newest snapshot that can be read; without one, the surrogate is built anew."""
        newest = self.store.newest_snapshot(self.name)
        for snapshot in self.store.snapshots(self.name):
            try:
                self.learner.loads(snapshot.about, snapshot.model)
            except (BoStreamError, KeyError, TypeError) as error:
                warnings.warn(
                    f"Snapshot {snapshot.number} of campaign {self.name!r} is passed over, and "
                    f"what came after the one before it is told again: {error}",
                    stacklevel=4,
                )
                continue
            self._saved = self.learner.told
            break
        else:
            self.learner.forget()
        self._snapshot = newest
