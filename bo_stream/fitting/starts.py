"""Where a fit starts from, besides where it is: far places from which other modes are reached.

The objective of a Gaussian process has several modes: much noise under a slow function or little
noise on a quick one, and with a lengthscale per dimension, one for each set of dimensions that
matter. In the units that every kernel has (lengthscales, the scale of the outputs and the noise,
by the names of their parameters) the same few starts reach nearly all of them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bo_stream.fitting.coordinates import Coordinates

__all__ = ["far_starts"]

SHORT, LONG = math.log(0.3), math.log(10.0)
QUIET, NOISY = math.log(1e-3), math.log(0.5)
DRAWS = 3


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
    generator = torch.Generator().manual_seed(0)
    for i in range(DRAWS):
        z = torch.randn(int(lengths.sum()), generator=generator, dtype=torch.float64)
        made.append(start(1.5 + 1.5 * z, (QUIET, NOISY)[i % 2]))
    return [first, *made] if not torch.equal(first, now) else made
