"""Seeds of every step's randomness; torch's global generators are left as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

__all__ = ["STRIDE", "proposing", "seeded"]

STRIDE = 1_000_003
"""Distance between the numbers of two seeds: more than the steps of any run."""


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators inside the block and restore them after it."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed visits every backend
        if on_gpu:
            torch.cuda.manual_seed_all(seed)
        yield


def proposing(seed: int, number: int, device: torch.device) -> AbstractContextManager[None]:
    """Seed the generators for the proposals of a step, with an even number.

    Args:
        seed: Seed of the run.
        number: Number of the step, or of the call of `ask`.
        device: Device of the surrogate.
    """
    return seeded(2 * (STRIDE * seed + number), device)
