"""Simulated runs on problems with known answers, timed step by step, for studies."""

from bo_stream.campaign.effort import FitPolicy
from experiments.common.loops.bo_config import LoopConfig
from experiments.common.loops.bo_loop import BOLoop, Problem
from experiments.common.loops.pool_config import PoolConfig
from experiments.common.loops.pool_loop import Policy, PoolLoop

__all__ = ["BOLoop", "FitPolicy", "LoopConfig", "Policy", "PoolConfig", "PoolLoop", "Problem"]
