"""Test error on tables with more inputs than a grid takes: nodes, projections.

Run `python -m experiments.benchmarks.table_error` (add `--smoke` for a run of seconds on a made-up
table). Splits of 90 % training and 10 % test rows; every family
is fitted to the first 300 training rows, or the first twentieth, absorbs the others and is fitted
again; the exact GP has the first 1,000 rows only. Needs the tables under BO_STREAM_DATA. Prints
RMSE in standard deviations of the training outcomes, means over splits, and writes
`results/benchmarks/table_error.csv`.
"""

import time
from itertools import product

import pandas as pd
import torch
from torch import Tensor

from bo_stream import surrogate
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.common.command import start
from experiments.common.data import TableSplit, waves
from experiments.common.progress import Progress, say
from problems import load_table

TABLES = ("kin8nm", "elevators", "skillcraft", "powerplant")
FAMILIES = ("node_wiski", "projected_wiski", "exact")
FIRST, SHARE, EXACT_ROWS = 300, 20, 1000


def measure(smoke: bool) -> Tables:
    """A row for each table, split and family."""
    names, splits, rows = ("made-up",) if smoke else TABLES, 1 if smoke else 3, []
    with Progress(len(names) * len(FAMILIES) * splits, "fits") as progress:
        for name, seed in product(names, range(splits)):
            X, Y = waves(400, 5) if smoke else read(name)
            train = int(0.9 * len(X))
            split = TableSplit.standardised(X, Y, train, len(X) - train, seed)
            for kind in FAMILIES:
                began = time.perf_counter()
                rmse = error(kind, split, 5 if smoke else None)
                row = {"table": name, "family": kind, "split": seed, "rmse": rmse}
                rows.append(row | {"seconds": time.perf_counter() - began})
                progress(f"{name}, {kind}")
    results = pd.DataFrame(rows)
    yield "table_error", results
    means = results.groupby(["table", "family"])[["rmse", "seconds"]].mean()
    say(means.to_string(float_format="{:.3g}".format))


def read(name: str) -> tuple[Tensor, Tensor]:
    """Inputs and outcomes of a table."""
    data = load_table(name)
    return data.X.double(), data.Y.double()


def error(kind: str, split: TableSplit, evaluations: int | None) -> float:
    """RMSE of a family at the test rows."""
    both = torch.cat([split.X, split.X_test])
    bounds, first = torch.stack([both.amin(0), both.amax(0)]), max(FIRST, len(split.X) // SHARE)
    last = EXACT_ROWS if kind == "exact" else len(split.X)
    model = surrogate(kind, split.X[:first], split.Y[:first], bounds=bounds)
    model.fit(evaluations)
    model.observe(split.X[first:last], split.Y[first:last])
    model.fit(evaluations)
    return float((model.posterior(split.X_test).mean - split.Y_test).square().mean().sqrt())


app = benchmark(measure, "about an hour on one core", __doc__)

if __name__ == "__main__":
    start(app)
