"""Growth policies tuned to one error, and how many inducing points each then takes."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from bo_stream.growth import OIPS, VIPS, ConditionalVariance, FixedSize, GrowthPolicy
from experiments.common.progress import Progress, say
from experiments.growth.scenarios import SCENARIOS, Stream, grown

__all__ = ["compared", "ratios"]

NAMES = ["VIPS", "OIPS", "CV", "fixed size"]


class Trials:
    """Policies tried on one stream after another; those within an error are kept.

    Attributes:
        results: A row a policy kept: its size and error in the end.
        sizes: A row a batch: its size there.
    """

    def __init__(self, c: dict[str, Any], progress: Progress) -> None:
        self.c, self.progress = c, progress
        self.results: list[dict[str, Any]] = []
        self.sizes: list[dict[str, Any]] = []

    def kept(
        self,
        name: str,
        policy: GrowthPolicy,
        stream: Stream,
        facts: dict[str, Any],
        most: float = math.inf,
    ) -> tuple[bool, float]:
        """Try a policy: whether its error is at most ``most``, and the error."""
        M, rmse = grown(stream, policy, self.c)
        self.progress(f"tried {name}, {facts['scenario']} stream, {facts['dim']}-D", done=0)
        if rmse > most:
            return False, rmse
        row = {"policy": name, "points": M[-1], "rmse": rmse, "setting": str(policy)}
        self.results.append(facts | row)
        self.sizes += [facts | {"policy": name, "batch": i, "points": m} for i, m in enumerate(M)]
        return True, rmse


def compared(c: dict[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All streams and seeds of a configuration under all policies: results, sizes by batch."""
    total = len(c["streams"]) * len(SCENARIOS) * len(c["seeds"])
    progress = Progress(total, "streams")
    trials = Trials(c, progress)
    for dim, size, batches in c["streams"]:
        for scenario, make in SCENARIOS.items():
            for seed in c["seeds"]:
                stream = make(dim, size, batches, c["noise"], seed)
                facts = {"dim": dim, "scenario": scenario, "seed": seed}
                _, rmse = trials.kept("VIPS", VIPS(c["delta"]), stream, facts)
                points = trials.results[-1]["points"]
                _, least = grown(stream, ConditionalVariance(c["eta"][-1]), c)
                most = (1.0 + c["slack"]) * max(rmse, least)
                for name, policies in _rivals(c, points).items():  # from few points to many
                    for policy in policies:
                        if trials.kept(name, policy, stream, facts, most)[0]:
                            break
                say(f"{dim}-D, {scenario}, seed {seed}: {points} points, rmse {rmse:.4f}")
                progress()
    return pd.DataFrame(trials.results), pd.DataFrame(trials.sizes)


def ratios(results: pd.DataFrame) -> pd.DataFrame:
    """Sizes by stream and policy, means over seeds, and medians of their ratios to VIPS's."""
    keys = ["dim", "scenario"]
    table = results.pivot_table("points", keys, "policy", sort=False)[NAMES]
    by_seed = results.pivot_table("points", [*keys, "seed"], "policy", sort=False)
    for name in NAMES[1:]:
        ratio = by_seed[name] / by_seed["VIPS"]
        table[f"{name} / VIPS"] = ratio.groupby(keys, sort=False).median()
    return table


def _rivals(c: dict[str, Any], points: int) -> dict[str, list[GrowthPolicy]]:
    sizes = [max(1, round(points * factor)) for factor in c["factor"]]
    lists: list[list[GrowthPolicy]] = [
        [OIPS(rho) for rho in c["rho"]],
        [ConditionalVariance(eta) for eta in c["eta"]],
        [FixedSize(size) for size in sizes],
    ]
    return dict(zip(NAMES[1:], lists, strict=True))
