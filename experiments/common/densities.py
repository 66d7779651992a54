"""Log densities of observations under independent Gaussians."""

from __future__ import annotations

import math

from torch import Tensor

__all__ = ["negative_log_densities"]


def negative_log_densities(mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
    """Negative log density of each observation, in nats.

    Args:
        mean: ``n`` predicted means.
        variance: ``n`` predicted variances of observations.
        y: ``n`` observations.
    """
    return 0.5 * ((2.0 * math.pi * variance).log() + (y - mean).square() / variance)
