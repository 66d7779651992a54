"""What `OnlineSGPR.observe` costs beside full-batch SGPR, and that it is flat in n at fixed M.

Run `python -m experiments.benchmarks.sgpr_cost` (add `--smoke` for a run of seconds). Prints a
table and writes `results/benchmarks/sgpr_cost.csv`. Medians of alternated repetitions, seconds of
processor time, one thread.

A batch of 50 meets a surrogate with M inducing points and adds up to 10 (selection by VIPS and
update, no refit); each repetition works on a fresh copy, whose making is part of the time. A refit
is one evaluation of the batch's bound and gradient, of which a warm fit takes a handful. Full-batch
SGPR is gpytorch's `InducingPointKernel` with M points: one evaluation and gradient on 5,000 points.
It is quick only as the outermost kernel (the ScaleKernel inside it) and under gpytorch's own
`fast_computations`, which BoTorch turns off on import: then it keeps the low-rank form.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.progress import say

TAKES = "about 15 seconds on one core"


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import pandas as pd
    import torch

    from experiments.benchmarks.sgpr_tasks import BATCH, data, full_batch, observe, refit, surrogate
    from experiments.common.timing import alternated

    torch.set_num_threads(1)
    M, counts, full, repetitions = (
        (20, (300, 900), 500, 3) if smoke else (200, (1_000, 50_000), 5_000, 15)
    )
    few, many = (f"observe, n = {n}" for n in counts)
    models = [surrogate(n, M) for n in counts]
    batch = data(BATCH, 1)
    tasks: dict[str, Callable[[], object]] = {
        few: partial(observe, models[0], *batch),
        many: partial(observe, models[1], *batch),
        "one evaluation of a refit": partial(refit, models[1]),
        f"gpytorch SGPR, n = {full}": full_batch(full, M),
    }
    times = alternated(tasks, repetitions, time.process_time)
    medians = {name: statistics.median(values) for name, values in times.items()}
    unit = list(medians.values())[-1]
    rows = [(name, 1e3 * s, unit / s) for name, s in medians.items()]
    table = pd.DataFrame(rows, columns=["operation", "ms", "SGPR over this"])
    say(f"M = {M}, batch of {BATCH}; growth in n {medians[many] / medians[few]:.3f}")
    say(table.to_string(index=False, float_format="{:.2f}".format))
    table.to_csv(out / "sgpr_cost.csv", index=False)


app = command(main)

if __name__ == "__main__":
    start(app)
