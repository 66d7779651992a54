"""What came out of optimisation runs, as a table of one line per surrogate."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

__all__ = ["summary"]

LAST = 20
"""Steps at the end of a run over which times and regrets are taken."""


def summary(tables: Sequence[pd.DataFrame], batch: int) -> pd.DataFrame:
    """One row per surrogate: sizes, median seconds of the last steps by part, median regrets.

    Regrets are medians over the last 20 steps and the seeds: with noise, those of a single step say
    little.

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
    tail = pd.concat([run[run["step"] > 0].tail(LAST) for run in runs])
    median = tail.median(numeric_only=True)
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
