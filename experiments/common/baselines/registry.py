"""Surrogates and baselines by name: the families of bo_stream, and those of the studies' own."""

from collections.abc import Callable

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.surrogates import registry
from experiments.common.baselines.baseline import Baseline
from experiments.common.baselines.batch_sgpr import BatchSGPR
from experiments.common.baselines.conjugate import CGGP
from experiments.common.baselines.local import LocalGPs
from experiments.common.baselines.online_svgp import OnlineSVGP
from experiments.common.baselines.stochastic import StochasticDecoupled
from experiments.common.baselines.svi import SVI

FAMILIES: dict[str, Callable[..., StreamingGP]] = {
    **registry.FAMILIES,
    "online_svgp": OnlineSVGP,
}
BASELINES: dict[str, Callable[..., Baseline]] = {
    "svi": SVI,
    "batch_sgpr": BatchSGPR,
    "cggp": CGGP,
    "local": LocalGPs,
    "stochastic": StochasticDecoupled,
}
"""Methods that predict one point at a time and have no acquisition functions built on them."""
