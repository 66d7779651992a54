"""A campaign whose answers are known: what the studies run on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.proposals import Propose
from bo_stream.campaign.randomness import continued, proposing
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.storage.store import MemoryStore

__all__ = ["SimulatedCampaign"]


class SimulatedCampaign(Campaign):
    """A campaign in memory, in any dtype, on any device, that can be put back to where it was.

    Args:
        settings: What it is begun with.
        make: Makes the surrogate.
        propose: Chooses the next trials once there is one.
        like: What its tensors are like.
    """

    def __init__(
        self, settings: Settings, make: Callable[..., StreamingGP], propose: Propose, like: Tensor
    ) -> None:
        store = MemoryStore()
        store.create("study", settings.described())
        self._start(store, "study", settings, make, propose, (), like)

    @property
    def dtype(self) -> torch.dtype:
        """Of the surrogate's inputs and outcomes."""
        return self._like.dtype

    def candidates(self) -> Tensor:
        """Points observed among which the best is, a bounded number of them."""
        return self._books.observed.candidates()

    def kept(self) -> Callable[[], None]:
        """What puts the surrogate back to where it is now."""
        return self._books.learner.kept()

    def randomness(self) -> AbstractContextManager[None]:
        """Torch's global generators as the last `ask` left them, inside."""
        draws, device = self._chooser.draws, self._like.device
        if draws is None:
            return proposing(self.settings.seed, 0, device)
        return continued(draws, device)
