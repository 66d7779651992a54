"""Runs that measure themselves: Bayesian optimisation in a box, active learning over a pool."""

from bo_stream.campaign.campaign import Campaign, CampaignConfig, Policy
from bo_stream.campaign.loop import BOLoop, FitPolicy, LoopConfig, Problem

__all__ = [
    "BOLoop",
    "Campaign",
    "CampaignConfig",
    "FitPolicy",
    "LoopConfig",
    "Policy",
    "Problem",
]
