"""Tables on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

__all__ = ["with_stored", "write_table"]


def with_stored(results: pd.DataFrame, keys: list[str], c: Mapping[str, Any]) -> pd.DataFrame:
    """Results of runs, a row each, and those of before that are not among them by their keys.

    These are in the file that a configuration names as ``stored``, which an earlier report wrote,
    and come in its order. Without that file, and with results of a ``table`` that it does not have,
    as in a smoke run, results stand by themselves.
    """
    if "stored" not in c or not Path(c["stored"]).is_file():
        return results
    before = pd.read_csv(c["stored"])[results.columns]
    if not results["table"].isin(before["table"]).all():
        return results
    every = pd.concat([before, results], ignore_index=True)
    return every[keys].drop_duplicates().merge(every.drop_duplicates(keys, keep="last"), on=keys)


def write_table(table: pd.DataFrame, path: str | PathLike[str], about: dict[str, Any]) -> None:
    """Write a table as CSV and, beside it with the suffix ``.json``, facts about it.

    Missing folders are created.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(target, index=False)
    target.with_suffix(".json").write_text(json.dumps(about, indent=2, default=str) + "\n")
