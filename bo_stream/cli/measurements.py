"""Reading the CSV files that people fill in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bo_stream.cli.toml_reader import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from bo_stream.campaign.campaign import Campaign

__all__ = ["outcome_columns", "read_measurements"]


def outcome_columns(campaign: Campaign) -> list[str]:
    """The columns of an outcome."""
    if campaign.counts is not None:
        return campaign.counts.columns
    return campaign.settings.named.columns


def read_measurements(path: Path, campaign: Campaign) -> pd.DataFrame:
    """A CSV of outcomes; rows of trials are indexed by id.

    Raises:
        ConfigError: naming the line that cannot be read.
    """
    import pandas as pd

    from bo_stream.campaign.space import Pool

    kinds: dict[str, Any] = {}
    if isinstance(campaign.space, Pool) and campaign.space.table.index.dtype.kind not in "iuf":
        kinds["place"] = str  # so that 007 keeps its zeros
    try:
        frame = pd.read_csv(path, dtype=kinds)
    except ValueError as error:
        raise ConfigError(f"{path} is not a CSV: {error}") from error
    if "trial" in frame:
        blank = frame["trial"].isna()
        if blank.any():
            raise ConfigError(
                f"{path}, line {int(blank.argmax()) + 2}: Expected a trial id in every row; got a "
                "row without. Put data that were not asked for into a file without a column trial."
            )
        frame = frame.set_index("trial")
    return frame
