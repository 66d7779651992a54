"""What comes out of streams of several outputs and seeds, in tables."""

from __future__ import annotations

import pandas as pd

__all__ = ["means", "summary"]

SCORES = ["seconds", "nmse", "nlpd"]


def means(scores: pd.DataFrame) -> pd.DataFrame:
    """Means over outputs: a row a table, seed, contender and batch, in the order of the runs."""
    keys = ["table", "seed", "contender", "step", "rows"]
    return scores.groupby(keys, sort=False)[SCORES].mean().reset_index()


def summary(by_seed: pd.DataFrame, first: str) -> pd.DataFrame:
    """The end of every stream: a row a table and contender, means over seeds.

    Args:
        by_seed: What `means` returns.
        first: The contender that set the seconds of the others. ``ratio`` is its nMSE over this
            one's, ``gap`` its NLPD less this one's.
    """
    last = by_seed[by_seed["rows"] == by_seed.groupby("table")["rows"].transform("max")]
    parts = []
    for name, part in last.groupby("table", sort=False):
        ends = part.groupby("contender", sort=False)[SCORES].mean()
        best = ends.loc[first].astype(float)
        ends["ratio"] = best["nmse"] / ends["nmse"]
        ends["gap"] = best["nlpd"] - ends["nlpd"]
        parts.append(ends.reset_index().assign(table=name))
    return pd.concat(parts, ignore_index=True)[["table", "contender", *SCORES, "ratio", "gap"]]
