"""Randomness of a step: seeded inside, torch's global generators outside as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Draws", "continued", "drawn", "evaluating", "proposing", "seeded"]

STRIDE = 1_000_003
"""Numbers from one seed to the next: more than any run has steps."""


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


def proposing(seed: int, number: int, device: torch.device) -> AbstractContextManager[None]:
    """The generators seeded for the proposals of a step: by even numbers.

    Args:
        seed: The run's seed.
        number: The number of the step, or of the request.
        device: Where the surrogate is.
    """
    return seeded(2 * (STRIDE * seed + number), device)


def evaluating(seed: int, number: int, device: torch.device) -> AbstractContextManager[None]:
    """The generators seeded for the noise of a step's evaluations: by odd numbers.

    So the noise depends on seed and step alone, whatever was drawn to find the points. Arguments
    are those of `proposing`.
    """
    return seeded(2 * (STRIDE * seed + number) + 1, device)


@contextmanager
def continued(draws: Draws, device: torch.device) -> Iterator[None]:
    """Torch's global generators inside where `drawn` found them, as they were outside."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.set_rng_state(draws.cpu)
        if draws.cuda is not None:
            torch.cuda.set_rng_state(draws.cuda, device)
        yield
