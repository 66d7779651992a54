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

import typer

from experiments.command import Out, Smoke, folder, start

LIMIT = 0.2
LEAST = 1e-6
"""Regrets below this are counted as this: their logarithms say nothing."""


def main(
    problem: Annotated[str, typer.Option(help="A synthetic problem in 3-D.")] = "levy",
    out: Out = None,
    smoke: Smoke = False,
) -> None:
    """Measure, print, write."""
    import numpy as np
    import pandas as pd
    import torch
    from scipy.stats import bootstrap

    from acquisitions import build
    from bo_stream import WISKI
    from bo_stream.campaign.loop import BOLoop, LoopConfig
    from experiments.benchmarks.converged import Converged
    from problems import synthetic

    torch.set_num_threads(1)
    out = folder("results/benchmarks", out, smoke)
    warnings.simplefilter("ignore")  # BoTorch's advice on scaling, and retries of optimisers
    seeds, steps, grid, restarts, raw = (2, 3, 6, 2, 16) if smoke else (10, 50, 10, 4, 128)
    rows = []
    for seed in range(seeds):
        config = LoopConfig(steps=steps, seed=seed, num_restarts=restarts, raw_samples=raw)
        row: dict[str, float] = {"seed": seed}
        for name, family in (("kept", WISKI), ("converged", Converged)):
            make = partial(family, grid_size=grid)
            table = BOLoop(
                synthetic(problem, seed=seed), make, partial(build, "qucb"), config
            ).run()
            log_regret = np.log(table["inference_regret"].clip(lower=LEAST))
            row[f"{name}, last"] = log_regret.iloc[-1]
            row[f"{name}, last tenth"] = log_regret.tail(max(1, steps // 10)).mean()
            row[f"{name}, fit seconds"] = table["fit_seconds"].iloc[1:].median()
            row[f"{name}, fit evaluations"] = table["fit_evaluations"].iloc[1:].median()
        rows.append(row)
        typer.echo(
            f"seed {seed}: " + ", ".join(f"{k} {v:.3f}" for k, v in row.items() if k != "seed")
        )
    table = pd.DataFrame(rows)
    table.to_csv(out / "fit_quality.csv", index=False)
    for part in ("last", "last tenth"):
        difference = (table[f"kept, {part}"] - table[f"converged, {part}"]).to_numpy()
        interval = bootstrap((difference,), np.median, rng=np.random.default_rng(0))
        low, high = interval.confidence_interval
        typer.echo(
            f"{problem}, {part} of {steps} steps: median paired difference of log "
            f"inference regret {np.median(difference):+.3f} (95 % {low:+.3f} to {high:+.3f}; "
            f"limit {LIMIT})"
        )


if __name__ == "__main__":
    start(main)
