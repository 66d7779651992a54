"""What stopping fits early costs in quality: kept quasi-Newton against fitting to convergence.

Run `python -m experiments.benchmarks.fit_quality` (add `--smoke` for a run of seconds). For every
seed the same Bayesian optimisation twice, differing in the fit alone: ours (warm-started, inverse
Hessian kept, stopped when a step gains less than 0.01 nat), and BoTorch's L-BFGS-B run to
convergence on the same objective, warm-started as well. Prints the median paired difference of the
log inference regret (positive: ours is worse) with a bootstrap interval over seeds, and writes
`results/benchmarks/fit_quality.csv`.
"""

import warnings
from functools import partial
from typing import Annotated

from experiments.common.command import Out, Smoke, begin, command, option, start
from experiments.common.progress import Progress, say

LIMIT = 0.2
TAKES = "about 15 minutes on one core"


def main(
    problem: Annotated[str, option(help="A synthetic problem in 3-D.")] = "levy",
    out: Out = None,
    smoke: Smoke = False,
) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import pandas as pd
    import torch

    from acquisitions import build
    from bo_stream import WISKI
    from bo_stream.scores import paired_bootstrap
    from bo_stream.simulation import BOLoop, LoopConfig
    from experiments.benchmarks.converged import Converged
    from experiments.common.summary import log_regret
    from problems import synthetic

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # BoTorch's advice on scaling, and retries of optimisers
    seeds, steps, grid, restarts, raw = (2, 3, 6, 2, 16) if smoke else (10, 50, 10, 4, 128)
    rows, progress = [], Progress(2 * seeds * (steps + 1), "steps")
    for seed in range(seeds):
        config = LoopConfig(steps=steps, seed=seed, num_restarts=restarts, raw_samples=raw)
        row: dict[str, float] = {"seed": seed}
        for name, family in (("kept", WISKI), ("converged", Converged)):
            make, task = (
                partial(family, grid_size=grid, input_transform=None),
                synthetic(problem, seed=seed),
            )
            acquisition = partial(build, "qucb")
            table = BOLoop(task, make, acquisition, config, lambda _: progress()).run()
            regret = log_regret(table)
            row[f"{name}, last"] = regret.iloc[-1]
            row[f"{name}, last tenth"] = regret.tail(max(1, steps // 10)).mean()
            row[f"{name}, fit seconds"] = table["fit_seconds"].iloc[1:].median()
            row[f"{name}, fit evaluations"] = table["fit_evaluations"].iloc[1:].median()
        rows.append(row)
        say(f"seed {seed}: " + ", ".join(f"{k} {v:.3f}" for k, v in row.items() if k != "seed"))
    table = pd.DataFrame(rows)
    table.to_csv(out / "fit_quality.csv", index=False)
    for part in ("last", "last tenth"):
        gap = paired_bootstrap(table[f"kept, {part}"], table[f"converged, {part}"])
        say(
            f"{problem}, {part} of {steps} steps: median paired difference of log "
            f"inference regret {gap.median:+.3f} (95 % {gap.low:+.3f} to {gap.high:+.3f}; "
            f"limit {LIMIT})"
        )


app = command(main)

if __name__ == "__main__":
    start(app)
