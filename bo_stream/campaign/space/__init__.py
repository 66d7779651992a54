"""Where a campaign may measure: inputs, boxes and pools of them, and constraints on them."""

from bo_stream.campaign.space.spaces import Box, Pool, Space, space_from_dict

__all__ = ["Box", "Pool", "Space", "space_from_dict"]
