"""Streaming Gaussian-process surrogates for BoTorch."""

import bo_stream.core.pathwise  # noqa: F401 (registers sample functions with BoTorch)
from bo_stream.cagp import CaGP
from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.space import Box, Pool
from bo_stream.core.checkpoint import load
from bo_stream.exact import ExactGP
from bo_stream.families import surrogate
from bo_stream.fitting.report import FitReport
from bo_stream.node_wiski import NodeWISKI
from bo_stream.online_sgpr import OnlineSGPR
from bo_stream.online_svgp import OnlineSVGP
from bo_stream.wiski import WISKI

__all__ = [
    "WISKI",
    "Box",
    "CaGP",
    "Campaign",
    "ExactGP",
    "FitReport",
    "NodeWISKI",
    "OnlineSGPR",
    "OnlineSVGP",
    "Pool",
    "load",
    "surrogate",
]
