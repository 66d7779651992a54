"""Paired comparisons of methods on the same seeds, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import combinations

import numpy as np
import pandas as pd

from bo_stream.cli.reports.figures import Figure, colour, plain
from bo_stream.cli.reports.runs import StudyRun
from bo_stream.scores import ends_in_common, paired_bootstrap

__all__ = ["difference_figure", "differences"]

MANY = 6
"""Maximum number of methods that are compared with each other; more are compared with the best."""
LEAST = 1e-6
"""Lower bound of scores, whose logarithms are meaningless below it."""


def differences(runs: Sequence[StudyRun], score: str) -> pd.DataFrame:
    """Differences of the log scores of two methods, one row per pair of methods.

    All pairs are compared or, with more than six methods, each with the one whose last scores are
    best. A difference is the median over their common seeds of means over the last tenth of their
    common steps, with a bootstrap interval (95 %) if there are at least three seeds.

    Args:
        runs: Runs of one task.
        score: Column of a score that is better when smaller.
    """
    logs: dict[str, dict[int, pd.Series]] = {}
    for run in runs:
        if score in run.table and run.table[score].notna().any():
            known = run.table.dropna(subset=[score]).set_index("step")[score]
            logs.setdefault(run.label, {})[run.seed] = np.log(known.clip(lower=LEAST))
    rows = []
    for a, b in _pairs(logs):
        both = sorted(logs[a].keys() & logs[b].keys())
        ends = [end for seed in both if (end := ends_in_common(logs[a][seed], logs[b][seed]))]
        if ends:
            d = paired_bootstrap([end[0] for end in ends], [end[1] for end in ends])
            rows.append((f"{a} - {b}", d.pairs, d.median, d.low, d.high))
    return pd.DataFrame(rows, columns=["pair", "seeds", "median", "low", "high"])


def difference_figure(frame: pd.DataFrame, title: str) -> Figure | None:
    """Intervals of differences, one line per pair."""
    if not len(frame):
        return None
    middle, low, high = (frame[name] for name in ("median", "low", "high"))
    bars = {
        "type": "data",
        "symmetric": False,
        "array": plain((high - middle).fillna(0.0)),
        "arrayminus": plain((middle - low).fillna(0.0)),
        "color": colour(0),
    }
    points = {
        "type": "scatter",
        "mode": "markers",
        "name": "",
        "x": plain(middle),
        "y": [escape(pair, quote=False) for pair in frame["pair"]],
        "error_x": bars,
        "marker": {"color": colour(0), "size": 9},
    }
    line = {"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1}
    zero = {**line, "line": {"color": "@soft", "dash": "dot", "width": 1}}
    return Figure(
        title,
        [points],
        {"title": "difference of natural logarithms"},
        {"title": "", "autorange": "reversed", "dtick": 1},
        "Left of zero, the first method is better. Lines are 95 % bootstrap intervals.",
        layout={"shapes": [zero]},
        rows=len(frame),
    )


def _pairs(logs: Mapping[str, Mapping[int, pd.Series]]) -> list[tuple[str, str]]:
    if len(logs) <= MANY:
        return list(combinations(logs, 2))
    last = {label: np.median([s.iloc[-1] for s in of.values()]) for label, of in logs.items()}
    best = min(last, key=lambda label: float(last[label]))
    return [(label, best) for label in logs if label != best]
