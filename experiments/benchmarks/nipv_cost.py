"""What NIPV costs: a value and gradient on WISKI, and a step over a pool on the other families.

Run `python -m experiments.benchmarks.nipv_cost` (add `--smoke` for a run of seconds). Batches of
six points; one process, one thread; medians of its processor time, which on an idle machine is
wall-clock.

Limits of a value and gradient on WISKI: at 900 nodes and 10,000 test points 1,000 times faster than
stock qNIPV on a SingleTaskGP of 1,000 observations (which wants some GB of memory for one
gradient); within 20 % when observations go from 1,000 to 100,000 and test points from 2,000 to
40,000; and 1,000 calls that leave memory where it was. Limit of a step over 3,400 candidates and
2,000 test points after 1,000 observations, hyperparameters unchanged: a fifth of what it costs with
laws made anew, and the same picks. Writes `results/benchmarks/nipv_cost.csv` and
`nipv_pool_cost.csv`.
"""

import statistics
import time
from functools import partial

from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.progress import say

TAKES = "about two minutes on one core"


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import pandas as pd
    import torch

    from experiments.benchmarks.nipv_tasks import (
        FAMILIES,
        gradient,
        pool_steps,
        resident,
        stock,
        wiski,
    )
    from experiments.common.timing import alternated, seconds

    torch.set_num_threads(1)
    torch.manual_seed(0)
    n_few, n_many, P_few, P, P_many = (
        (50, 500, 40, 100, 400) if smoke else (1_000, 100_000, 2_000, 10_000, 40_000)
    )
    grid_size, repetitions, calls = (12, 5, 50) if smoke else (30, 300, 1_000)
    sizes = [(n_few, P), (n_many, P), (n_few, P_few), (n_few, P_many)]
    ours = {f"n = {n}, P = {p}": wiski(n, p, grid_size) for n, p in sizes}
    tasks = {name: partial(gradient, acqf) for name, acqf in ours.items()}
    times = alternated(tasks, repetitions, time.process_time)
    rows = [("WISKI", name, statistics.median(t)) for name, t in times.items()]
    medians = [row[2] for row in rows]

    acqf = next(iter(ours.values()))
    before = resident()
    for _ in range(calls):
        gradient(acqf)
    growth = resident() - before

    theirs = stock(n_few, P)
    slow = statistics.median(
        seconds(partial(gradient, theirs), time.process_time) for _ in range(2)
    )
    rows.append(("stock qNIPV", f"n = {n_few}, P = {P}", slow))
    table = pd.DataFrame(rows, columns=["acquisition", "sizes", "seconds"])
    table["stock / this"] = slow / table["seconds"]
    say(table.to_string(index=False, float_format="{:.3g}".format))
    say(f"WISKI, n from {n_few} to {n_many}: {medians[1] / medians[0]:.3f} times the cost")
    say(f"WISKI, P from {P_few} to {P_many}: {medians[3] / medians[2]:.3f} times the cost")
    say(f"WISKI, {calls} calls: resident memory {growth:+.1f} MB")
    table.assign(**{"MB per calls": [growth, *[float("nan")] * (len(table) - 1)]}).to_csv(
        out / "nipv_cost.csv", index=False
    )
    sizes_of_pool = (80, 120, 60) if smoke else (1_000, 3_400, 2_000)
    pools = pd.DataFrame([pool_steps(family, *sizes_of_pool) for family in FAMILIES])
    say(pools.to_string(index=False, float_format="{:.3g}".format))
    pools.to_csv(out / "nipv_pool_cost.csv", index=False)


app = command(main)

if __name__ == "__main__":
    start(app)
