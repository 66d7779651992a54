"""Distant starting points of a fit, from which other modes are reached.

The objective of a Gaussian process has several modes: large noise with long lengthscales or small
noise with short ones, and with ARD one for each set of relevant dimensions. Ascents do not pass
from one mode to another: where a lengthscale is too long by a factor of twenty, the gradient
vanishes. Besides starts with all lengthscales short or long there is one per dimension, with that
lengthscale short and the others long. Parameters are recognised by name (lengthscales, output
scale, noise). These few starts reach nearly all modes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bo_stream.base.fitting.coordinates import Coordinates

__all__ = ["far_starts"]

SHORT, LONG = math.log(0.3), math.log(10.0)
QUIET, LITTLE, NOISY = math.log(1e-3), math.log(0.03), math.log(0.5)

GROUPS = 6
"""Most starts with a single short lengthscale; in more dimensions, several share a start."""


def far_starts(coordinates: Coordinates, first: Tensor, now: Tensor) -> list[Tensor]:
    """Coordinates to try besides the current ones, the most promising first.

    Args:
        coordinates: The coordinates of the hyperparameters.
        first: Where the first fit started; short and long are relative to its lengthscales.
        now: The current coordinates.
    """
    lengths, scales, noises = (
        coordinates.named(name) for name in ("lengthscale", "outputscale", "noise")
    )
    if not (bool(lengths.any()) or bool(noises.any())):
        return []
    scale = float(first[scales].mean()) if bool(scales.any()) else 0.0

    def start(length: Tensor | float, noise: float) -> Tensor:
        u = first.clone()
        u[lengths] = first[lengths] + length
        u[noises] = scale + noise
        return coordinates.clip(u)

    made = [start(SHORT, NOISY), start(SHORT, QUIET), start(LONG, NOISY)]
    d = int(lengths.sum())
    for group in range(min(d, GROUPS)):
        length = first.new_full((d,), LONG)
        length[group::GROUPS] = SHORT
        made.append(start(length, LITTLE))
    made = made if torch.equal(first, now) else [first, *made]
    return [u for i, u in enumerate(made) if not any(torch.equal(u, v) for v in made[:i])]
