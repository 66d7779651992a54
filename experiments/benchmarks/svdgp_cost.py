"""What `SVDGP.observe` costs at a full window, and what it gains to fold the rows of least
contribution.

Run `python -m experiments.benchmarks.svdgp_cost` (add `--smoke` for a run of seconds). Prints two
tables and writes `svdgp_cost.csv` and `svdgp_folding.csv` to `results/benchmarks/`.

Cost: seconds of processor time of sixteen one-point updates and a posterior, one thread, medians of
alternated repetitions, at 2,000 observations and at 5,000: default options, six inputs. A copy of
the surrogate is part of the time. Folding: the error of the mean after a stream longer than the
window, against that of a stream which keeps the first rows it saw, both on the same inducing
points.
"""

import statistics
import time
from functools import partial

from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.progress import say

TAKES = "about three minutes on one core"
POINTS = 16


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import pandas as pd
    import torch

    from experiments.benchmarks.svdgp_tasks import folding, observe, seen
    from experiments.benchmarks.timing import alternated

    torch.set_num_threads(1)
    counts, window, basis, repetitions = (
        ((150, 400), 100, 20, 3) if smoke else ((2_000, 5_000), 2_048, 512, 15)
    )
    tasks = {f"n = {n}": partial(observe, seen(n, window, basis), POINTS) for n in counts}
    times = alternated(tasks, repetitions, time.process_time)
    medians = [statistics.median(values) / POINTS for values in times.values()]
    table = pd.DataFrame({"n": counts, "ms a point": [1e3 * s for s in medians]})
    table["growth"] = table["ms a point"] / table["ms a point"].iloc[0]
    say(f"One-point updates, window {window}, {basis} inducing points")
    say(table.to_string(index=False, float_format="{:.2f}".format))
    table.to_csv(out / "svdgp_cost.csv", index=False)

    cases, n, window, basis = (2, 250, 60, 20) if smoke else (8, 3_000, 400, 100)
    rows = [(case, *folding(case, n, window, basis)) for case in range(cases)]
    table = pd.DataFrame(rows, columns=["case", "least contribution", "first rows kept"])
    table["ratio"] = table["least contribution"] / table["first rows kept"]
    mean, most = table["ratio"].mean(), table["ratio"].max()
    say(f"Folding: RMSE ratio {mean:.3f} in the mean, {most:.3f} at most")
    say(table.to_string(index=False, float_format="{:.4f}".format))
    table.to_csv(out / "svdgp_folding.csv", index=False)


app = command(main)

if __name__ == "__main__":
    start(app)
