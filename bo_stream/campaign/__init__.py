"""Campaigns: ask where to measure, tell what came out, in a store that survives the process."""

from bo_stream.campaign.callbacks import Callback
from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.fit_policy import FitPolicy
from bo_stream.campaign.space import Box, Pool

__all__ = ["Box", "Callback", "Campaign", "FitPolicy", "Pool"]
