"""How a model grows: VIPS in a growing domain, a stationary stream and one with outliers.

Run `python -m experiments.growth`. VIPS has one delta; OIPS, conditional variance and a fixed size
are tuned on each stream to VIPS's error: the smallest of their sizes that comes within 2 % of it
(or of the error with next to no conditional variance left, should VIPS be below that by luck).
Prints the sizes; writes them, the sizes after each batch, and a picture to the config's folder.

The function is a sum over axes, and so is the kernel: the factor of three between OIPS and VIPS on
the growing stream in 3-D comes with that, for OIPS compares points by their correlation, which does
not see that the axes add. With one kernel of all axes (experiments/configs/growth_product.toml) it
is 1.3, and 1.2 on the other two streams.
"""

from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.growth import OIPS, VIPS, ConditionalVariance, FixedSize, GrowthPolicy
from experiments.common.command import CONFIGS, command, configured, start
from experiments.common.plots import draw_sizes
from experiments.common.progress import Progress, say
from experiments.growth.scenarios import PANELS, Scenario, grown, stream

NAMES = ["VIPS", "OIPS", "CV", "fixed size"]
Row = dict[str, Any]


def main(c: dict[str, Any], folder: Path) -> None:
    """Stream every scenario under every policy; compare sizes at equal error."""
    results, sizes = compared(c)
    results.to_csv(folder / "results.csv", index=False)
    sizes.to_csv(folder / "sizes.csv", index=False)
    draw_sizes(sizes, folder / "sizes.png", title=lambda dim, name: f"{PANELS[name]}, {dim}-D")
    table = ratios(results)
    table.to_csv(folder / "table.csv")
    say("\nInducing points at equal error, means over seeds; medians of their ratios")
    say(table.round(2).to_string())


def compared(c: dict[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All streams and seeds of a configuration under all policies: results, sizes by batch."""
    results, sizes = list[Row](), list[Row]()
    each = list(product(c["streams"], PANELS, c["seeds"]))
    with Progress(len(each), "streams") as progress:
        for (dim, size, batches), scenario, seed in each:
            kept = tuned(stream(scenario, dim, size, batches, c["noise"], seed), c)
            facts = {"dim": dim, "scenario": scenario, "seed": seed}
            for row, M in kept:
                results.append(facts | row)
                own = facts | {"policy": row["policy"]}
                sizes += [own | {"batch": i, "points": m} for i, m in enumerate(M)]
            about = f"{dim}-D, {scenario}, seed {seed}"
            say(f"{about}: {kept[0][0]['points']} points, rmse {kept[0][0]['rmse']:.4f}")
            progress(about)
    return pd.DataFrame(results), pd.DataFrame(sizes)


def tuned(data: Scenario, c: dict[str, Any]) -> list[tuple[Row, list[int]]]:
    """A row a policy, and its sizes by batch: VIPS, and the smallest of the others that are within
    its error.
    """
    vips = VIPS(c["delta"])
    M, rmse = grown(data, vips, c)
    kept: list[tuple[Row, list[int]]] = []
    kept.append(({"policy": NAMES[0], "points": M[-1], "rmse": rmse, "setting": str(vips)}, M))
    least = grown(data, ConditionalVariance(c["eta"][-1]), c)[1]
    most = (1.0 + c["slack"]) * max(rmse, least)
    others: list[list[GrowthPolicy]] = [
        [OIPS(rho) for rho in c["rho"]],
        [ConditionalVariance(eta) for eta in c["eta"]],
        [FixedSize(max(1, round(M[-1] * factor))) for factor in c["factor"]],
    ]
    for name, policies in zip(NAMES[1:], others, strict=True):
        for policy in policies:  # from few points to many
            M, rmse = grown(data, policy, c)
            if rmse <= most:
                row = {"policy": name, "points": M[-1], "rmse": rmse, "setting": str(policy)}
                kept.append((row, M))
                break
    return kept


def ratios(results: pd.DataFrame) -> pd.DataFrame:
    """Sizes by stream and policy, means over seeds, and medians of their ratios to VIPS's."""
    keys = ["dim", "scenario"]
    table = results.pivot_table("points", keys, "policy", sort=False)[NAMES]
    by_seed = results.pivot_table("points", [*keys, "seed"], "policy", sort=False)
    for name in NAMES[1:]:
        ratio = by_seed[name] / by_seed["VIPS"]
        table[f"{name} / VIPS"] = ratio.groupby(keys, sort=False).median()
    return table


smaller = {"streams": [[1, 40, 6]], "seeds": [0]}
app = command(configured(main, CONFIGS / "growth.toml", smaller), __doc__)

if __name__ == "__main__":
    start(app)
