"""Test error on tables with more inputs than a grid takes: nodes and projections.

Run `python -m experiments.benchmarks.table_error` (add `--smoke` for a run of seconds on a made-up
table, `--table` and `--family` to choose). Splits of 90 % training and 10 % test rows; every family
is fitted to the first 300 training rows, or the first twentieth, absorbs the others and is fitted
again; the exact GP has the first 1,000 rows only. Needs the tables under BO_STREAM_DATA. Prints
RMSE in standard deviations of the training outcomes, means over splits, and writes
`results/benchmarks/table_error.csv`.
"""

import time
from typing import Annotated

from experiments.common.command import Choice, Out, Smoke, begin, command, option, start
from experiments.common.progress import Progress, say

TAKES = "about an hour on one core"
TABLES = ("kin8nm", "elevators", "skillcraft", "powerplant")
FAMILIES = ("node_wiski", "projected_wiski", "exact")
FIRST, SHARE = 300, 20
EXACT_ROWS = 1000


def main(
    table: Choice = None,
    family: Choice = None,
    splits: Annotated[int, option(min=1, help="Splits, by seeds from 0.")] = 3,
    out: Out = None,
    smoke: Smoke = False,
) -> None:
    """Split, fit, predict, print."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import pandas as pd
    import torch

    from bo_stream import surrogate
    from experiments.common.splits import TableSplit
    from problems import load_table

    torch.set_num_threads(1)
    names, families = table or list(TABLES), family or list(FAMILIES)
    names, splits = (["made-up"], 1) if smoke else (names, splits)
    rows, progress = (
        list[dict[str, object]](),
        Progress(len(names) * len(families) * splits, "fits"),
    )
    for name in names:
        if smoke:
            X = torch.rand(400, 5, generator=torch.Generator().manual_seed(0)).double()
            Y = X.cos().sum(-1, keepdim=True) + X[:, :1] * X[:, 1:2]
        else:
            data = load_table(name)
            X, Y = data.X.double(), data.Y.double()
        train = int(0.9 * len(X))
        for seed in range(splits):
            split = TableSplit.standardised(X, Y, train, len(X) - train, seed)
            both = torch.cat([split.X, split.X_test])
            bounds, first = torch.stack([both.amin(0), both.amax(0)]), max(FIRST, train // SHARE)
            for kind in families:
                begun = time.perf_counter()
                last = EXACT_ROWS if kind == "exact" else train
                model = surrogate(kind, split.X[:first], split.Y[:first], bounds=bounds)
                model.fit(5 if smoke else None)
                model.observe(split.X[first:last], split.Y[first:last])
                model.fit(5 if smoke else None)
                error = (model.posterior(split.X_test).mean - split.Y_test).square().mean().sqrt()
                row = {"table": name, "family": kind, "split": seed, "rmse": float(error)}
                rows.append(row | {"seconds": time.perf_counter() - begun})
                progress()
    results = pd.DataFrame(rows)
    results.to_csv(out / "table_error.csv", index=False)
    means = results.groupby(["table", "family"])[["rmse", "seconds"]].mean()
    say(means.to_string(float_format="{:.3g}".format))


app = command(main)

if __name__ == "__main__":
    start(app)
