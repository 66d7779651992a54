"""Proposing trials: an initial design, then the maximisers of an acquisition function."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bo_stream.campaign.campaign_state import CampaignState
from bo_stream.campaign.proposals import ProposalContext, ProposalRule, initial_design
from bo_stream.campaign.randomness import proposing
from bo_stream.campaign.records import Row
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Pool
from bo_stream.campaign.trials import TrialHistory
from bo_stream.errors import InputError

__all__ = ["Proposer"]


class Proposer:
    """Proposes trials; the same ones for the same state.

    Args:
        settings: Settings of the campaign.
        rule: Chooses once there is a surrogate.
        like: A tensor on the device to use.
    """

    def __init__(self, settings: Settings, rule: ProposalRule, like: Tensor) -> None:
        self.settings, self._rule, self._device = settings, rule, like.device

    def propose(
        self, state: CampaignState, q: int, row: Row
    ) -> tuple[np.ndarray, list[int] | None]:
        """The next trials: inputs in the user's units, and rows of the pool in a pool.

        Args:
            state: Current state of the campaign.
            q: Number of trials.
            row: Receives ``acquisition_seconds``.

        Raises:
            InputError: if a pool has fewer places left.
        """
        s, space, history = self.settings, self.settings.space, state.history
        available = self.available(history)
        if isinstance(space, Pool) and len(available) < q:
            raise InputError(
                f"{q} places that may still be measured",
                f"{len(available)}",
                "Ask for fewer, or use Pool(..., repeats=True).",
            )
        seeded = proposing(s.seed, history.num_asks, self._device)
        with seeded, row.timed("acquisition_seconds"):
            model = state.manager.model
            if model is None:
                done = sum(trial.ask is not None for trial in history.trials.values())
                chosen = initial_design(space, s.seed, done, q, available)
            else:
                if state.store.durable:
                    model.refresh()  # so that a resumed campaign goes on bit for bit
                pending = state.points(history.with_status("running"))
                failed = state.points(history.with_status("failed"))
                observed = state.observations.candidates()
                context = ProposalContext(observed, pending, failed, available)
                chosen = self._rule(model, q, context)
        if isinstance(space, Pool):
            places = [int(available[i]) for i in chosen]
            return space.place_values[places], places
        return space.decode(chosen), None

    def available(self, history: TrialHistory) -> Tensor:
        """Rows of the pool that may be measured; empty in a box."""
        space = self.settings.space
        if not isinstance(space, Pool):
            return torch.empty(0, dtype=torch.long)
        free = torch.ones(len(space.place_values), dtype=torch.bool)
        trials = history.trials.values()
        free[[t.place for t in trials if not (space.repeats and t.status == "told")]] = False
        return free.nonzero().squeeze(-1)
