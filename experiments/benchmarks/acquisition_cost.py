"""What maximising an acquisition function costs, in Cholesky factorisations, and that it finds the
same.

Run `python -m experiments.benchmarks.acquisition_cost` (add `--smoke` for a run of seconds). WISKI
with 10 x 10 x 10 nodes, fitted to 150 and to 1,200 points of three functions from smooth to rough,
half of them around the optima; q = 3, and what loops take by default: 10 restarts of 512 raw
samples. `optimize_acqf` on BoTorch's class and on the one in closed form, from the same seeds, in
factorisations of a 1,000 x 1,000 matrix; how often it asks for a gradient; and the largest
difference of the values found, as a share of the standard deviation of outcomes, or for the
logarithms of qLogEI in absolute terms. Prints a table and writes
`results/benchmarks/acquisition_cost.csv`. One thread, medians of alternated repetitions, seconds of
the processor.
"""

from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.progress import say

TAKES = "about 3 minutes on one core"


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import warnings

    import pandas as pd
    import torch

    from experiments.benchmarks.acquisition_tasks import SMOKE, Sizes, compared

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of a grid too coarse for the rough function
    sizes = SMOKE if smoke else Sizes()
    rows = [
        compared(function, n, acquisition, sizes)
        for function in ("styblinskitang", "levy", "ackley")
        for n in sizes.points
        for acquisition in ("qucb", "qlogei")
    ]
    table = pd.DataFrame(rows)
    say(table.to_string(index=False, float_format="{:.3g}".format))
    table.to_csv(out / "acquisition_cost.csv", index=False)


app = command(main)

if __name__ == "__main__":
    start(app)
