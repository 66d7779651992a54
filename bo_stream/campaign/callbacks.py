"""Hooks of a campaign, for progress, plots or records of one's own."""

from __future__ import annotations

from typing import Any

import pandas as pd

__all__ = ["Callback"]


class Callback:
    """Three hooks that a campaign calls after its store was updated. Override those you need.

    Each is given the `bo_stream.Campaign`. An exception in a hook reaches the caller and leaves the
    campaign consistent.
    """

    def after_ask(self, campaign: Any, frame: pd.DataFrame) -> None:
        """Called after trials were proposed, with the frame that `ask` returns."""

    def after_tell(self, campaign: Any, frame: pd.DataFrame) -> None:
        """Called after outcomes were told or trials failed, with these trials as in `trials`."""

    def at_end(self, campaign: Any) -> None:
        """Called when `run` has used up its budget, or was interrupted."""
