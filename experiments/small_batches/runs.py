"""One function streamed in small batches: sizes with and without pruning, refits that drift."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from bo_stream.growth import VIPS, GrowthPolicy, Pruned
from experiments.common.progress import Progress
from experiments.growth.scenarios import stationary
from experiments.small_batches.refits import REFITS, mended, streamed

__all__ = ["drifts", "ends", "sizes"]

POLICIES: dict[str, GrowthPolicy] = {"VIPS": VIPS(), "Pruned(VIPS)": Pruned(VIPS())}
NOISE = 0.2


def sizes(
    n: int, counts: Sequence[int], seeds: Sequence[int], progress: Progress
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows by batch of both policies, by size of the batches: first points right, and mended.

    The latter in batches of six, where ``counts`` has them.
    """
    right, wrong = [], []
    for seed in seeds:
        for q in counts:
            stream = stationary(2, q, n // q, NOISE, seed)
            for name, policy in POLICIES.items():
                facts = {"dim": 2, "scenario": f"q = {q}", "seed": seed, "policy": name}
                right += [facts | row for row in streamed(stream, policy, REFITS["never"])]
                progress(f"{name}, batches of {q}, seed {seed}")
                if q == 6:
                    wrong += [facts | row for row in mended(stream, policy)]
                    progress(f"{name}, mended, seed {seed}")
    return pd.DataFrame(right), pd.DataFrame(wrong)


def drifts(n: int, seeds: Sequence[int], progress: Progress) -> pd.DataFrame:
    """Rows by batch of six under each way of refitting, with pruning."""
    tables = []
    for seed in seeds:
        stream = stationary(2, 6, n // 6, NOISE, seed)
        for name, refit in REFITS.items():
            run = pd.DataFrame(streamed(stream, POLICIES["Pruned(VIPS)"], refit))
            tables.append(run.rename(columns={"batch": "step"}).assign(refits=name, seed=seed))
            progress(f"{name}, seed {seed}")
    return pd.concat(tables)


def ends(table: pd.DataFrame, by: list[str], columns: list[str]) -> pd.DataFrame:
    """Medians over seeds of what columns are at the end of a stream."""
    last = table.groupby([*by, "seed"], sort=False)[columns].last()
    return last.groupby(by, sort=False).median()
