"""What `SVDGP.observe` costs at a full window, and what it gains to fold the rows of least
contribution.

Run `python -m experiments.benchmarks.svdgp_cost` (add `--smoke` for a run of seconds). Prints two
tables and writes `svdgp_cost.csv` and `svdgp_folding.csv` to `results/benchmarks/`.

Cost: milliseconds of processor time of a one-point update, one thread, from 2,000 observations on
and from 5,000 on, taken in turn: default options, six inputs. The median, and the mean, in which
rows that are folded and inducing points that are chosen again have their share.

Folding: the error of the mean after a stream five times the window, against that of a stream which
keeps the first rows it saw and folds all later ones. The functions are draws from the prior, the
hyperparameters the true ones.
"""

import statistics
import time

from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.progress import say

TAKES = "about three minutes on one core"


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import pandas as pd
    import torch

    from experiments.benchmarks.svdgp_tasks import folding, observing, seen
    from experiments.common.timing import alternated

    torch.set_num_threads(1)
    counts, window, basis, repetitions = (
        ((150, 400), 100, 20, 3) if smoke else ((2_000, 5_000), 2_048, 512, 130)
    )
    each = repetitions + 1  # one to warm up
    tasks = {f"n = {n}": observing(seen(n, window, basis), each) for n in counts}
    times = list(alternated(tasks, repetitions, time.process_time).values())
    table = pd.DataFrame({"n": counts})
    for name, of in (("median", statistics.median), ("mean", statistics.fmean)):
        table[f"{name} (ms)"] = [1e3 * of(values) for values in times]
        table[f"{name}, growth"] = table[f"{name} (ms)"] / table[f"{name} (ms)"].iloc[0]
    say(f"One-point updates, window {window}, {basis} inducing points")
    say(table.to_string(index=False, float_format="{:.2f}".format))
    table.to_csv(out / "svdgp_cost.csv", index=False)

    cases, n, window, basis = (2, 250, 60, 20) if smoke else (12, 2_500, 500, 100)
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
