"""Campaigns: ask where to measure, tell the outcomes, and keep both in a store.

Names are imported when they are first used, so that the command line can start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bo_stream.campaign.campaign import Callback, Campaign
    from bo_stream.campaign.effort import FitPolicy
    from bo_stream.campaign.space import Box, Pool

__all__ = ["Box", "Callback", "Campaign", "FitPolicy", "Pool"]

_MODULES = {
    "Box": "space",
    "Callback": "campaign",
    "Campaign": "campaign",
    "FitPolicy": "effort",
    "Pool": "space",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
