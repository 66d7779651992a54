"""What stopping fits early costs in quality: kept quasi-Newton against fitting to convergence.

Run `python -m experiments.benchmarks.fit_quality` (add `--smoke` for a run of seconds). For every
seed the same Bayesian optimisation twice, differing in the fit alone: ours (warm-started, inverse
Hessian kept, stopped when a step gains less than 0.01 nat), and BoTorch's L-BFGS-B run to
convergence on the same objective, warm-started as well. Prints the median paired difference of the
log inference regret (positive: ours is worse) with a bootstrap interval over seeds, and writes
`results/benchmarks/fit_quality.csv`.
"""

from functools import partial

import numpy as np
import pandas as pd
import torch
from botorch.optim.fit import fit_gpytorch_mll_scipy

from acquisitions import build
from bo_stream import WISKI, FitReport
from bo_stream.scores import paired_bootstrap
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.benchmarks.bo_step_cost import task
from experiments.benchmarks.timing import loop_clock
from experiments.common.command import start
from experiments.common.loops import BOLoop, LoopConfig
from experiments.common.progress import Progress, say

LIMIT = 0.2
PROBLEM = "levy"
LEAST = 1e-6
"""Regrets below this are counted as this: their logarithms say nothing."""


class Converged(WISKI):
    """A WISKI whose fits run until BoTorch's optimizer finds no more to gain."""

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit to convergence, whatever it costs; evaluations are not counted."""
        mll = self.make_mll()
        self.custom_fit(mll, optimizer=fit_gpytorch_mll_scipy)
        with torch.no_grad():
            return FitReport(0, float(mll()), True)


def measure(smoke: bool, device: torch.device) -> Tables:
    """A row for each seed."""
    rows: list[dict[str, float]] = []
    seeds, steps, grid, restarts, raw = (2, 3, 6, 2, 16) if smoke else (10, 50, 10, 4, 128)
    with Progress(2 * seeds, "runs") as progress:
        for seed in range(seeds):
            config = LoopConfig(steps=steps, seed=seed, num_restarts=restarts, raw_samples=raw)
            row: dict[str, float] = {"seed": seed}
            for name, family in (("kept", WISKI), ("converged", Converged)):
                make = partial(family, grid_size=grid, input_transform=None)
                problem, builder = task(PROBLEM, device, seed), partial(build, "qucb")
                table = BOLoop(problem, make, builder, config, clock=loop_clock(device)).run()
                known = table["inference_regret"].dropna()
                regret = np.log(known.clip(lower=LEAST))
                row[f"{name}, last"] = regret.iloc[-1]
                row[f"{name}, last tenth"] = regret.tail(max(1, steps // 10)).mean()
                for part in ("seconds", "evaluations"):
                    row[f"{name}, fit {part}"] = table[f"fit_{part}"].iloc[1:].median()
                progress(f"seed {seed}, {name}")
            rows.append(row)
            said = ", ".join(f"{k} {v:.3f}" for k, v in row.items() if k != "seed")
            say(f"seed {seed}: {said}")
    whole = pd.DataFrame(rows)
    yield "fit_quality", whole
    for part in ("last", "last tenth"):
        gap = paired_bootstrap(whole[f"kept, {part}"], whole[f"converged, {part}"])
        say(
            f"{PROBLEM}, {part} of {steps} steps: median paired difference of log "
            f"inference regret {gap.median:+.3f} (95 % {gap.low:+.3f} to {gap.high:+.3f}; "
            f"limit {LIMIT})"
        )


app = benchmark(measure, "about 15 minutes on one core", __doc__)

if __name__ == "__main__":
    start(app)
