"""Runs that measure themselves: Bayesian optimisation in a box, active learning over a pool."""

from bo_stream.campaign.callbacks import Callback
from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.loop import BOLoop, FitPolicy, LoopConfig, Problem
from bo_stream.campaign.pool_loop import Policy, PoolConfig, PoolLoop
from bo_stream.campaign.space import Box, Pool

__all__ = [
    "BOLoop",
    "Box",
    "Callback",
    "Campaign",
    "PoolLoop",
    "PoolConfig",
    "FitPolicy",
    "LoopConfig",
    "Policy",
    "Pool",
    "Problem",
]
