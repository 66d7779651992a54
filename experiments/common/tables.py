"""Tables on disk."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

__all__ = ["write_table"]


def write_table(table: pd.DataFrame, path: str | PathLike[str], about: dict[str, Any]) -> None:
    """Write a table as CSV and, beside it with the suffix ``.json``, facts about it.

    Missing folders are created.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(target, index=False)
    target.with_suffix(".json").write_text(json.dumps(about, indent=2, default=str) + "\n")
