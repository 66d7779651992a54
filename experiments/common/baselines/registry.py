"""Baselines by name."""

from __future__ import annotations

from collections.abc import Callable

from experiments.common.baselines.baseline import Baseline
from experiments.common.baselines.batch_sgpr import BatchSGPR
from experiments.common.baselines.local import LocalGPs
from experiments.common.baselines.stochastic import StochasticDecoupled
from experiments.common.baselines.svi import SVI

__all__ = ["BASELINES"]

BASELINES: dict[str, Callable[..., Baseline]] = {
    "svi": SVI,
    "batch_sgpr": BatchSGPR,
    "local": LocalGPs,
    "stochastic": StochasticDecoupled,
}
