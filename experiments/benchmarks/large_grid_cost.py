"""What WISKI costs on a large grid, in Cholesky factorisations, and how far it is from dense.

Run `python -m experiments.benchmarks.large_grid_cost` (add `--smoke` for a run of seconds). For
27,000 and 1,000 nodes and three lengthscales: evidence with gradient, a posterior at 100 points,
and a new observation with the posterior after it, in factorisations of a 1,000 x 1,000 matrix;
and the differences of evidence and posterior mean from dense algebra with the grid's prior. Prints
a table and writes `results/benchmarks/large_grid_cost.csv`. One thread, medians of alternated
repetitions, seconds of the processor.
"""

from collections.abc import Callable
from functools import partial

from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.progress import say

TAKES = "half a minute on one core"


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import statistics
    import time

    import pandas as pd
    import torch

    from experiments.benchmarks.large_grid_tasks import differences, form, observe, stream
    from experiments.benchmarks.wiski_tasks import evidence, posterior
    from experiments.common.timing import alternated, cholesky

    torch.set_num_threads(1)
    sizes, n, repetitions = ((17, 6), 200, 2) if smoke else ((30, 10), 3_000, 7)
    T = torch.rand(100, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    unit, rows = cholesky(200 if smoke else 1_000), []
    for size in sizes:
        for lengthscale in (0.5, 0.3, 0.15):
            model, twin = (stream(n, size, lengthscale) for _ in range(2))
            apart = differences(model, T)
            tasks: dict[str, Callable[[], object]] = {
                "c": unit,
                "evidence and gradient": partial(evidence, model),
                "posterior": partial(posterior, model, T),
                "observe, posterior": partial(observe, twin, T),
            }
            times = alternated(tasks, repetitions, time.process_time)
            c = statistics.median(times.pop("c"))
            cost = {f"{name} (c)": statistics.median(own) / c for name, own in times.items()}
            about = {"nodes": size**3, "lengthscale": lengthscale, "n": n, **form(model)}
            rows.append({**about, **cost, **apart})
    table = pd.DataFrame(rows)
    say(table.to_string(index=False, float_format="{:.2g}".format))
    table.to_csv(out / "large_grid_cost.csv", index=False)


app = command(main)

if __name__ == "__main__":
    start(app)
