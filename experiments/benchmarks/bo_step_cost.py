"""What a step of Bayesian optimisation costs, in Cholesky factorisations, and that it stays so.

Run `python -m experiments.benchmarks.bo_step_cost` (add `--smoke` for a run of seconds). One
process, one thread; 3-D problems, q = 3, WISKI with 10 x 10 x 10 nodes, qUCB with 10 restarts of
512 raw samples. Three tables, also under `results/benchmarks/`:

- steps 50 to 150: fit, acquisition and update in units of c, the time of one 1000 x 1000 Cholesky
  factorisation, taken before every step; the median number of objective evaluations of a fit; what
  a clock around the step shows, less what judges it, over the sum of its parts;
- steps 1000 to 1050 against them (the observations between are preloaded, half of them uniform and
  half around the best points; `--stream` takes every step instead): the whole step, one objective
  evaluation, one acquisition evaluation;
- WISKI's step against ExactGP's at n = 2,000 and 4,000, both with exactly 5 objective evaluations.
"""

import warnings
from typing import Annotated

from experiments.common.command import Out, Smoke, begin, command, option, start
from experiments.common.progress import say

LIMITS = {
    "step": 50.0,
    "wall-clock / parts": 1.02,
    "fit evaluations": 5.0,
    "growth": 1.15,
    "n=2000": 10.0,
    "n=4000": 60.0,
}


TAKES = "about 15 minutes on one core"


def main(
    stream: Annotated[bool, option(help="Take all steps, preload none.")] = False,
    out: Out = None,
    smoke: Smoke = False,
) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import pandas as pd
    import torch

    from experiments.benchmarks.bo_step_tasks import SMOKE, Sizes, against_exact, in_units, streamed

    torch.set_num_threads(1)
    sizes = SMOKE if smoke else Sizes()
    warnings.simplefilter("ignore")  # BoTorch's advice on scaling, and retries of optimisers
    early, growth = [], []
    for name in ("levy", "ackley"):
        first, late = map(in_units, streamed(name, sizes, stream))
        early.append({"problem": name, **first})
        keys = ("step", "c per fit evaluation", "c per acquisition evaluation")
        growth.append({"problem": name, **{key: late[key] / first[key] for key in keys}})
    tables = {
        "early": (f"Steps {sizes.first} to {sizes.last}, in c", pd.DataFrame(early)),
        "late": (f"Growth at step {sizes.late}, a ratio", pd.DataFrame(growth)),
        "exact": (
            "Seconds of a step with exactly 5 objective evaluations",
            pd.DataFrame([against_exact(n, sizes) for n in sizes.against]),
        ),
    }
    for key, (title, table) in tables.items():
        say(f"\n{title}")
        say(table.to_string(index=False, float_format="{:.3f}".format))
        table.to_csv(out / f"bo_step_cost_{key}.csv", index=False)
    limits = ", ".join(f"{name} {limit:g}" for name, limit in LIMITS.items())
    say(f"\nLimits (at least, for the ratios to ExactGP; at most, for the others): {limits}")


app = command(main)

if __name__ == "__main__":
    start(app)
