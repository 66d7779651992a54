"""Choosing the next trials: spread over the space to begin with, then what a search proposes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bo_stream.campaign.campaign_state import Books
from bo_stream.campaign.proposals import Known, Propose, design
from bo_stream.campaign.randomness import Draws, drawn, proposing
from bo_stream.campaign.records import Row
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Pool
from bo_stream.campaign.trials import Ledger
from bo_stream.errors import InputError

__all__ = ["Chooser"]


class Chooser:
    """Chooses trials; the same ones for the same books.

    Args:
        settings: Of the campaign.
        propose: Chooses once there is a surrogate.
        like: What tensors are like.

    Attributes:
        draws: Torch's generators as the last choice left them; None before the first.
    """

    def __init__(self, settings: Settings, propose: Propose, like: Tensor) -> None:
        self.settings, self._propose, self._device = settings, propose, like.device
        self.draws: Draws | None = None

    def choose(self, books: Books, q: int, row: Row) -> tuple[np.ndarray, list[int] | None]:
        """The next trials: inputs in the user's units, and places in a pool.

        Args:
            books: What is known.
            q: How many.
            row: Whose ``acquisition_seconds`` are added to.

        Raises:
            InputError: if a pool has fewer places left.
        """
        s, space, ledger = self.settings, self.settings.space, books.ledger
        free = self.free(ledger)
        if isinstance(space, Pool) and len(free) < q:
            raise InputError(
                f"{q} places that may still be measured",
                f"{len(free)}",
                "Ask for fewer, or use Pool(..., repeats=True).",
            )
        seeded = proposing(s.seed, ledger.asks, self._device)
        with seeded, row.timed("acquisition_seconds"):
            model = books.learner.model
            if model is None:
                done = sum(trial.ask is not None for trial in ledger.trials.values())
                chosen = design(space, s.seed, done, q, free)
            else:
                if books.store.durable:
                    model.refresh()  # so that a campaign that was resumed goes on bit for bit
                pending = books.points(ledger.of("running"))
                failed = books.points(ledger.of("failed"))
                known = Known(books.observed.candidates(), pending, failed, free)
                chosen = self._propose(model, q, known)
            self.draws = drawn(self._device)
        if isinstance(space, Pool):
            places = [int(free[i]) for i in chosen]
            return space.place_values[places], places
        return space.decoded(chosen), None

    def free(self, ledger: Ledger) -> Tensor:
        """Rows of the pool that may be measured."""
        space = self.settings.space
        if not isinstance(space, Pool):
            return torch.empty(0, dtype=torch.long)
        free = torch.ones(len(space.place_values), dtype=torch.bool)
        trials = ledger.trials.values()
        free[[t.place for t in trials if not (space.repeats and t.status == "told")]] = False
        return free.nonzero().squeeze(-1)
