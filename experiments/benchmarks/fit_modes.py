"""How often a first fit ends in a poor mode, against the best of eight starts.

Run `python -m experiments.benchmarks.fit_modes` (add `--smoke` for a run of seconds). For every
family, 200 hard problems (functions with and without noise, steps, sines, outliers, clustered
inputs, trends, noise alone; one to six dimensions, 5 to 150 data; RBF and Matern kernels; noise
learned or known) and 12 like the demonstration's are fitted once by `fit`, and climbed by scipy's
L-BFGS-B from where the surrogate was and from eight draws of the priors (by `fit` itself where a
CaGP has fewer actions than data and learns them). Prints the share of fits
that end more than one nat below the best of these climbs, and what a fit costs; writes
`results/benchmarks/fit_modes.csv`, one row per problem.
"""

import time
import warnings
from functools import partial
from typing import Annotated

from experiments.common.command import (
    Choice,
    Out,
    Smoke,
    begin,
    command,
    option,
    selected,
    start,
)
from experiments.common.progress import Progress, say

SHORT = 1.0
"""Nats below the best start from which a fit counts as short of it."""

LIMIT = 0.02
TAKES = "about 25 minutes on one core"


def main(
    family: Choice = None,
    problems: Annotated[int, option(help="Hard problems per family.")] = 200,
    starts: Annotated[int, option(help="Climbs from draws of the priors.")] = 8,
    out: Out = None,
    smoke: Smoke = False,
) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import pandas as pd
    import torch

    from experiments.benchmarks.fit_modes_tasks import FAMILIES, best_of, demo_problem, hard_problem

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # BoTorch's advice on scaling
    problems, starts, seeds = (3, 1, 0) if smoke else (problems, starts, 6)
    names = selected(family, FAMILIES, "--family")
    rows, progress = [], Progress(len(names) * (problems + 2 * seeds), "problems")
    for name in names:
        hard = [hard_problem(index, FAMILIES[name]) for index in range(problems)]
        demo = [demo_problem(kind, seed) for kind in ("levy", "ackley") for seed in range(seeds)]
        for index, problem in enumerate(hard + demo):
            model = problem.surrogate(name)
            began = time.process_time()
            report = model.fit()
            seconds = time.process_time() - began
            rows.append(
                {
                    "family": name,
                    "set": "hard" if index < problems else "demo",
                    "problem": index,
                    "kind": problem.kind,
                    "d": problem.X.shape[1],
                    "n": len(problem.X),
                    "noise": "learned" if problem.Yvar is None else "known",
                    "kernel": "Matern" if problem.matern else "RBF",
                    "evaluations": report.evaluations,
                    "seconds": seconds,
                    "converged": report.converged,
                    "value": report.value,
                    "best start": best_of(partial(problem.surrogate, name), starts, index),
                }
            )
            progress(name)
    table = pd.DataFrame(rows)
    table["short"] = table["best start"] - table["value"] > SHORT
    table.to_csv(out / "fit_modes.csv", index=False)
    for (surrogate, which), part in table.groupby(["family", "set"], sort=False):
        say(
            f"{surrogate}, {len(part)} {which} problems: {part['short'].mean():.1%} end more than "
            f"{SHORT:g} nat below the best of {starts} starts and that of now; median "
            f"{part['evaluations'].median():g} evaluations (95 % below "
            f"{part['evaluations'].quantile(0.95):.0f}), {part['seconds'].median():.2g} s of "
            f"processor time a fit; {1 - part['converged'].mean():.1%} not converged"
        )
    bar = table[table["set"] == "hard"]
    say(f"all families, {len(bar)} hard problems: {bar['short'].mean():.1%} (limit {LIMIT:.0%})")


app = command(main)

if __name__ == "__main__":
    start(app)
