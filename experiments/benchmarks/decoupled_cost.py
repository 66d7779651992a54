"""What a stochastic step of the decoupled GP costs: linear in the basis of the mean.

Run `python -m experiments.benchmarks.decoupled_cost` (add `--smoke` for a run of seconds). Prints a
table and the slope of its logarithms; writes `results/benchmarks/decoupled_cost.csv`. Medians of
alternated repetitions, seconds of processor time, one thread. The law is the paper's, with 64
points for the covariance; a step has 128 rows, and as many columns of the mean basis's kernel
matrix stand for all: with all of them a step would be quadratic.
"""

import statistics
import time

from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.progress import say

TAKES = "about 20 seconds on one core"


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import numpy as np
    import pandas as pd
    import torch

    from experiments.benchmarks.decoupled_tasks import climber
    from experiments.common.timing import alternated

    torch.set_num_threads(1)
    sizes, repetitions = ((256, 1024), 3) if smoke else ((1024, 2048, 4096, 8192, 16384), 25)
    tasks = {str(size): climber(size).step for size in sizes}
    times = alternated(tasks, repetitions, time.process_time)
    medians = [statistics.median(times[str(size)]) for size in sizes]
    slope = float(np.polyfit(np.log(sizes), np.log(medians), 1)[0])
    table = pd.DataFrame({"mean basis": sizes, "ms": [1e3 * s for s in medians]})
    say(f"slope of log seconds in the logarithm of the mean basis: {slope:.2f} (limit 1.1)")
    say(table.to_string(index=False, float_format="{:.2f}".format))
    table.to_csv(out / "decoupled_cost.csv", index=False)


app = command(main)

if __name__ == "__main__":
    start(app)
