"""The public door to the Bayesian-optimisation loop, which lives in `bo_stream.campaign`."""

from bo_stream.campaign.loop import BOLoop, FitPolicy, LoopConfig, Problem

__all__ = ["BOLoop", "FitPolicy", "LoopConfig", "Problem"]
