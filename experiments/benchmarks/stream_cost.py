"""What a point more costs a stream, in Cholesky factorisations of its size, and that it is flat.

WISKI on 16 x 16 nodes: a point observed, one step of its hyperparameters, a prediction. NodeWISKI
at its cap: the evidence with its gradient, a point observed, predictions. Run
`python -m experiments.benchmarks.stream_cost` (add `--smoke` for a run of seconds). Prints a table
and writes `results/benchmarks/stream_cost.csv`. One process, one thread, medians of alternated
repetitions by the clock of the process.
"""

from functools import partial

from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.progress import say

TAKES = "about four minutes on one core"
LIMITS = {
    "WISKI: point, step, prediction": (10.0, 1.2),
    "NodeWISKI: evidence": (14.0, 1.2),
    "NodeWISKI: point": (None, 1.2),
    "NodeWISKI: 100 predictions": (None, 1.2),
}
"""Most Cholesky factorisations, and most growth from the short stream to the long one."""


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import time

    import pandas as pd
    import torch

    from experiments.benchmarks.stream_tasks import (
        evidence,
        gridded,
        point,
        point_step_prediction,
        predictions,
        scattered,
    )
    from experiments.common.timing import alternated, cholesky, ratio

    torch.set_num_threads(1)
    side, cap = (5, 20) if smoke else (16, 512)
    lengths = {"W": (40, 200), "N": (40, 60)} if smoke else {"W": (500, 10**6), "N": (2000, 50000)}
    units = {"W": side**2, "N": cap}
    tasks = {f"c {kind}": cholesky(m) for kind, m in units.items()}
    for n in lengths["W"]:
        stepped = partial(point_step_prediction, gridded(n, side))
        tasks[f"WISKI: point, step, prediction {n}"] = stepped
    for n in lengths["N"]:
        model = scattered(n, cap)
        tasks[f"NodeWISKI: evidence {n}"] = partial(evidence, model)
        tasks[f"NodeWISKI: point {n}"] = partial(point, model)
        tasks[f"NodeWISKI: 100 predictions {n}"] = partial(predictions, model)
    times = alternated(tasks, 3 if smoke else 25, time.process_time)
    rows = []
    for name, (limit, growth) in LIMITS.items():
        few, many = lengths[name[0]]
        small, large = (ratio(times, f"{name} {n}", f"c {name[0]}") for n in (few, many))
        rows.append((name, units[name[0]], few, small, many, large, limit, large / small, growth))
    columns = ["operation", "m", "n", "c(m)", "n later", "c(m) later", "limit", "growth"]
    table = pd.DataFrame(rows, columns=[*columns, "growth limit"])
    say(table.to_string(index=False, float_format="{:.2f}".format, na_rep="-"))
    table.to_csv(out / "stream_cost.csv", index=False)


app = command(main)

if __name__ == "__main__":
    start(app)
