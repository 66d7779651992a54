"""Randomness of a step: seeded inside, torch's global generators outside as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Draws", "continued", "drawn", "seeded"]


class Draws(NamedTuple):
    """How far torch's global generators have been drawn from.

    Attributes:
        cpu: State of the processor's generator.
        cuda: State of the device's, where there is one.
    """

    cpu: Tensor
    cuda: Tensor | None


def drawn(device: torch.device) -> Draws:
    """The generators as they are now."""
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return Draws(torch.get_rng_state(), cuda)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's global generators seeded inside, as they were outside."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def continued(draws: Draws, device: torch.device) -> Iterator[None]:
    """Torch's global generators inside where `drawn` found them, as they were outside."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.set_rng_state(draws.cpu)
        if draws.cuda is not None:
            torch.cuda.set_rng_state(draws.cuda, device)
        yield
