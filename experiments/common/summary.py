"""What came out of optimisation runs: a line a surrogate, and differences of regret in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from bo_stream.scores import ends_in_common, paired_bootstrap

__all__ = ["log_regret", "paired", "summary"]

LAST = 20
"""Steps at the end of a run over which times and regrets are taken."""

LEAST = 1e-6
"""Regrets below this are counted as this: their logarithms say nothing."""


def log_regret(run: pd.DataFrame) -> pd.Series:
    """Logarithm of the inference regret by step, where it is known."""
    known = run.dropna(subset=["inference_regret"]).set_index("step")
    return np.log(known["inference_regret"].clip(lower=LEAST))


def paired(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One row per pair of surrogates: the first's log inference regret less the second's.

    Medians over the seeds that both have, at the last step both reached and in the mean of the last
    tenth of the steps up to it, with a bootstrap interval (95 %) where there are three seeds.

    Args:
        tables: One per run, with columns ``surrogate``, ``seed``, ``step``, ``inference_regret``.
    """
    rows = []
    runs = {(str(t["surrogate"].iloc[0]), int(t["seed"].iloc[0])): log_regret(t) for t in tables}
    labels, seeds = dict.fromkeys(k[0] for k in runs), dict.fromkeys(k[1] for k in runs)
    for a, b in combinations(labels, 2):
        both = [seed for seed in seeds if (a, seed) in runs and (b, seed) in runs]
        for name, tenth in (("last step", False), ("last tenth", True)):
            met = [ends_in_common(runs[a, seed], runs[b, seed], tenth) for seed in both]
            ends = [end for end in met if end]
            if ends:
                d = paired_bootstrap([end[0] for end in ends], [end[1] for end in ends])
                rows.append((f"{a} - {b}", name, d.pairs, d.median, d.low, d.high))
    return pd.DataFrame(rows, columns=["pair", "at", "seeds", "median", "low", "high"])


def summary(tables: Sequence[pd.DataFrame], batch: int) -> pd.DataFrame:
    """One row per surrogate: sizes, median seconds of the last steps by part, median regrets.

    Regrets and times are medians over the seeds of each run's median over its last 20 steps: with
    noise, the regret of a single step says little.

    Args:
        tables: One per run, with a column ``surrogate``.
        batch: Points per step; the log predictive density is given per point.
    """
    labels = dict.fromkeys(str(table["surrogate"].iloc[0]) for table in tables)
    return pd.DataFrame(
        [
            _line(label, [t for t in tables if t["surrogate"].iloc[0] == label], batch)
            for label in labels
        ]
    )


def _line(label: str, runs: Sequence[pd.DataFrame], batch: int) -> dict[str, object]:
    ends = [run[run["step"] > 0].tail(LAST).median(numeric_only=True) for run in runs]
    median = pd.DataFrame(ends).median()
    return {
        "surrogate": label,
        "seeds": len(runs),
        "steps": int(min(run["step"].iloc[-1] for run in runs)),
        "n": int(min(run["n"].iloc[-1] for run in runs)),
        "total s": sum(run["wallclock_seconds"].iloc[-1] for run in runs) / len(runs),
        "s/step": median["step_seconds"],
        "fit s": median["fit_seconds"],
        "acquisition s": median["acquisition_seconds"],
        "update s": median["update_seconds"],
        "fit evaluations": median["fit_evaluations"],
        "simple regret": median["simple_regret"],
        "inference regret": median["inference_regret"],
        "log density/point": median["log_predictive"] / batch,
        "state MB": median["bytes"] / 1e6,
    }
