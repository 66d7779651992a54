"""Where a fit starts from, besides where it is: far places from which other modes are reached.

The objective of a Gaussian process has several modes: much noise under a slow function or little
noise on a quick one, and with a lengthscale per dimension, one for each set of dimensions that
matter. A climb does not pass from one of these to another: where a lengthscale is too long by a
factor of twenty there is no slope that says so. So besides starts with all lengthscales short or
long there is one for each dimension, with that one short and the others long. In the units that
every kernel has (lengthscales, the scale of the outputs and the noise, by the names of their
parameters) these few starts reach nearly all modes.
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
"""Most starts with one lengthscale short; where there are more of them, several share a start."""


def far_starts(coordinates: Coordinates, first: Tensor, now: Tensor) -> list[Tensor]:
    """Coordinates to try besides those of now, the likeliest first.

    Args:
        coordinates: Of the hyperparameters.
        first: Where the first fit started: what is short or long is said in these lengthscales.
        now: Where the fit is.
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
