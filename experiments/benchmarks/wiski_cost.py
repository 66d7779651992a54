"""What WISKI costs at m = 1,000 nodes, in Cholesky factorisations, and that it is flat in n.

Run `python -m experiments.benchmarks.wiski_cost` (add `--smoke` for a run of seconds). Prints a
table and writes `results/benchmarks/wiski_cost.csv`. One process, one thread, medians of alternated
repetitions.
"""

from functools import partial

from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.progress import say

LIMITS = {"observe": 0.2, "posterior": 1.0, "evidence (product)": 6.0, "evidence (other)": 16.0}
FLAT = {"observe": 1.25, "posterior": 1.1, "evidence (product)": 1.1, "evidence (other)": 1.1}


TAKES = "about half a minute on one core"


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import pandas as pd
    import torch

    from experiments.benchmarks.wiski_tasks import evidence, observe, posterior, stream
    from experiments.common.timing import alternated, cholesky, ratio

    torch.set_num_threads(1)
    sizes, few, many, repetitions = (6, 100, 1_000, 3) if smoke else (10, 1_000, 100_000, 25)
    X, Y, T = torch.rand(3, 3).double(), torch.rand(3, 1).double(), torch.rand(100, 3).double()
    tasks = {"c": cholesky(sizes**3)}
    models = {}
    for n in (few, many):
        for product in (True, False):
            models[n, product] = stream(n, product, sizes)
    for n in (few, many):
        tasks[f"observe {n}"] = partial(observe, models[n, True], X, Y)
        tasks[f"posterior {n}"] = partial(posterior, models[n, True], T)
    for n in (few, many):
        for product in (True, False):
            kind = "product" if product else "other"
            tasks[f"evidence ({kind}) {n}"] = partial(evidence, models[n, product])
    times = alternated(tasks, repetitions)
    rows = []
    for name, limit in LIMITS.items():
        small, large = (ratio(times, f"{name} {n}", "c") for n in (few, many))
        rows.append((name, small, large, limit, large / small, FLAT[name]))
    columns = ["operation", f"c at n={few}", f"c at n={many}", "limit", "growth", "growth limit"]
    table = pd.DataFrame(rows, columns=columns)
    say(f"m = {sizes**3}, c = {1e3 * sorted(times['c'])[repetitions // 2]:.2f} ms")
    say(table.to_string(index=False, float_format="{:.3f}".format))
    table.to_csv(out / "wiski_cost.csv", index=False)


app = command(main)

if __name__ == "__main__":
    start(app)
