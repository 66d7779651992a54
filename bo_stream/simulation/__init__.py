"""Simulated runs on problems with known answers, timed step by step, for studies."""

from bo_stream.campaign.proposing.fit_policy import FitPolicy
from bo_stream.simulation.bo_config import LoopConfig
from bo_stream.simulation.bo_loop import BOLoop, Problem
from bo_stream.simulation.pool_config import PoolConfig
from bo_stream.simulation.pool_loop import Policy, PoolLoop

__all__ = ["BOLoop", "FitPolicy", "LoopConfig", "Policy", "PoolConfig", "PoolLoop", "Problem"]
