"""What may hang on a campaign: progress, plots, stores of one's own."""

from __future__ import annotations

from typing import Any

import pandas as pd

__all__ = ["Callback"]


class Callback:
    """Three hooks, each given the `bo_stream.Campaign` and called once what it is about is in
    the store; override those you need.

    What a hook raises reaches the caller; the campaign is whole all the same.
    """

    def after_ask(self, campaign: Any, frame: pd.DataFrame) -> None:
        """After trials were proposed: the frame that `ask` returns."""

    def after_tell(self, campaign: Any, frame: pd.DataFrame) -> None:
        """After outcomes were told or trials failed: those trials, as in `trials`."""

    def at_end(self, campaign: Any) -> None:
        """After `run` has used up its budget, or was interrupted."""
