"""What a step of Bayesian optimisation costs, in Cholesky factorisations, and that it stays so.

Run `python -m experiments.benchmarks.bo_step_cost` (add `--smoke` for a run of seconds). One
process, one thread; 3-D problems, q = 3, WISKI with 10 x 10 x 10 nodes, qUCB with 10 restarts of
512 raw samples. Four tables, also under `results/benchmarks/`:

- steps 50 to 150: fit, acquisition and update in units of c, the time of one 1000 x 1000 Cholesky
  factorisation, taken before every step; the median number of objective evaluations of a fit; what
  a clock around the step shows, less what judges it, over the sum of its parts;
- steps 1000 to 1050 against them (the observations between are preloaded, half of them uniform and
  half around the best points): the whole step, one objective evaluation, one acquisition
  evaluation;
- WISKI's step against ExactGP's at n = 2,000 and 4,000, both with exactly 5 objective evaluations;
- mean processor seconds of WISKI's step (observe, refit on schedule, decide) at n = 50 to 5,000,
  and of BoTorch's loop up to 1,000, which fits a `SingleTaskGP` and searches its qUCB.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import mean
from time import perf_counter, process_time
from typing import Any

import pandas as pd
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.monte_carlo import qUpperConfidenceBound
from botorch.optim.optimize import optimize_acqf as searched_by_botorch
from torch import Tensor

from acquisitions import build, optimize_acqf
from bo_stream import FitReport, surrogate
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.benchmarks.timing import Clock, cholesky, clock_on, loop_clock, seconds
from experiments.common.command import start
from experiments.common.kernels import RAW
from experiments.common.loops import BOLoop, LoopConfig
from experiments.common.progress import Progress, say
from experiments.comparison.methods import botorch_gp
from problems import SyntheticProblem, synthetic

GROWN, MOST_EXACT = 1.25, 1000
"""Growth of the data after which a step refits, and data up to which the exact GP is fitted."""
LIMITS = {
    "step": 50.0,
    "wall-clock / parts": 1.02,
    "fit evaluations": 5.0,
    "growth": 1.15,
    "n=2000": 10.0,
    "n=4000": 60.0,
}


@dataclass(frozen=True)
class StepSizes:
    """How much is run."""

    grid: int = 10
    first: int = 50
    last: int = 150
    late: int = 1000
    late_steps: int = 50
    against: tuple[int, ...] = (2000, 4000)
    against_steps: int = 3
    whole: tuple[int, ...] = (50, 200, 1000, 5000)
    whole_steps: int = 10
    config: LoopConfig = field(default_factory=lambda: LoopConfig(recommend_every=0))


def measure(smoke: bool, device: torch.device) -> Tables:
    """Early steps in c, growth to late ones, and steps against the exact GP's."""
    few = LoopConfig(num_restarts=2, raw_samples=16, recommend_every=0)
    sizes = StepSizes(6, 2, 5, 20, 3, (60, 120), 1, (20, 40), 2, few) if smoke else StepSizes()
    early, growth = [], []
    for name in ("levy", "ackley"):
        first, late = map(in_units, streamed(name, sizes, device))
        early.append({"problem": name, **first})
        keys = ("step", "c per fit evaluation", "c per acquisition evaluation")
        growth.append({"problem": name, **{key: late[key] / first[key] for key in keys}})
    yield "bo_step_cost_early", pd.DataFrame(early)
    yield "bo_step_cost_late", pd.DataFrame(growth)
    say("\nSeconds of a step with exactly 5 objective evaluations")
    rows = [against_exact(n, sizes, device) for n in sizes.against]
    yield "bo_step_cost_exact", pd.DataFrame(rows)
    say("\nProcessor seconds of a whole step")
    rows = [whole_step(n, sizes, device) for n in sizes.whole]
    yield "bo_step_cost_whole", pd.DataFrame(rows)
    limits = ", ".join(f"{name} {limit:g}" for name, limit in LIMITS.items())
    say(f"\nLimits (at least, for the ratios to ExactGP; at most, for the others): {limits}")


class Counted:
    """The acquisition builder, counting evaluations of what it builds."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, model: Any, **kw: Any) -> AcquisitionFunction:
        """Build qUCB."""
        acqf = build("qucb", model, **kw)
        forward = acqf.forward

        def counted(X: Tensor) -> Tensor:
            self.calls += 1
            return forward(X)

        acqf.forward = counted
        return acqf


def measured_steps(
    loop: BOLoop, count: int, builder: Counted, unit: Callable[[], object], now: Clock
) -> list[dict[str, Any]]:
    """Rows of so many steps, with the unit ``c`` and the number of acquisition evaluations."""
    rows = []
    with Progress(count, "steps") as progress:
        for _ in range(count):
            c, before = seconds(unit, now), builder.calls
            wall = seconds(loop.step, now)
            row = dict(loop.rows[-1])
            row |= {"c": c, "acquisition_evaluations": builder.calls - before}
            row["wall"] = wall - row["score_seconds"] - row["recommend_seconds"]
            rows.append(row)
            progress()
    return rows


def streamed(
    problem_name: str, sizes: StepSizes, device: torch.device
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of the early and of the late steps of one run."""
    problem, builder, now = task(problem_name, device), Counted(), clock_on(device, perf_counter)
    make = partial(surrogate, "wiski", grid_size=sizes.grid)
    loop = BOLoop(problem, make, builder, sizes.config, clock=loop_clock(device))
    unit = cholesky(sizes.grid**3, device)
    loop.start()
    early = measured_steps(loop, sizes.last, builder, unit, now)[sizes.first :]
    count = sizes.config.q * (sizes.late - sizes.last)
    X = between(problem.bounds, problem.optimizers, count)
    loop.preload(X, problem(X))
    loop.step()  # the first step after a large batch pays for it
    late = measured_steps(loop, sizes.late_steps, builder, unit, now)
    return pd.DataFrame(early), pd.DataFrame(late)


def task(name: str, device: torch.device, seed: int = 0) -> SyntheticProblem:
    """The problem of this name, asked on this device."""
    problem = synthetic(name, seed=seed)
    problem.bounds = problem.bounds.to(device)
    return problem


def between(bounds: Tensor, optimizers: Tensor, count: int) -> Tensor:
    """Points where an optimiser may have been, on the device of the bounds: half uniform, half
    around the optima.
    """
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(count, bounds.shape[1], generator=generator, dtype=torch.float64)
    near = count // 2
    which = torch.arange(near) % len(optimizers)
    spread = 0.1 * torch.randn(near, bounds.shape[1], generator=generator, dtype=torch.float64)
    X[:near] = (optimizers[which].cpu() + spread).clamp(0.0, 1.0)
    return X.to(bounds)


def in_units(table: pd.DataFrame) -> dict[str, float]:
    """Medians of one run's rows, times in units of c."""
    c = float(table["c"].median())
    parts = ("step", "fit", "acquisition", "update")
    costs = {part: float(table[f"{part}_seconds"].median()) / c for part in parts}
    fits = table[table["fit_evaluations"] > 0]
    acquisition = table["acquisition_seconds"] / table["acquisition_evaluations"]
    return {
        **costs,
        "fit evaluations": float(fits["fit_evaluations"].median()),
        "c per fit evaluation": float((fits["fit_seconds"] / fits["fit_evaluations"]).median()) / c,
        "c per acquisition evaluation": float(acquisition.median()) / c,
        "wall-clock / parts": float((table["wall"] / table["step_seconds"]).median()),
        "c in ms": 1e3 * c,
    }


def five_evaluations(model: Any, max_evals: int | None = None) -> FitReport:
    """In place of a fit: 5 evaluations of objective and gradient, the last where it started."""
    mll = model.make_mll()
    start = [p.detach().clone() for p in mll.parameters()]
    value = torch.zeros(())
    for k in (1, 2, 3, 4, 0):
        for p, s in zip(mll.parameters(), start, strict=True):
            p.data = s + 1e-3 * k
        mll.zero_grad()
        value = mll()
        value.backward()
    return FitReport(5, float(value.detach()), False)


def against_exact(n: int, sizes: StepSizes, device: torch.device) -> dict[str, float]:
    """Median step seconds of both families at n observations."""
    problem, row = task("levy", device), {"n": float(n)}
    X = between(problem.bounds, problem.optimizers, n)
    Y = problem(X)
    for family, options in (("wiski", {"grid_size": sizes.grid}), ("exact", {})):
        make = partial(fitted_by_five, family, options)
        config = replace(sizes.config, steps=0)
        loop = BOLoop(problem, make, partial(build, "qucb"), config, clock=loop_clock(device))
        loop.start(X, Y)
        for _ in range(sizes.against_steps):
            loop.step()
        row[family] = float(loop.table()["step_seconds"].iloc[1:].median())
    return {**row, "ratio": row["exact"] / row["wiski"]}


def whole_step(n: int, sizes: StepSizes, device: torch.device) -> dict[str, float]:
    """Mean processor seconds of a step at n observations: WISKI's, and BoTorch's up to 1,000."""
    problem, c = task("levy", device), sizes.config
    X = between(problem.bounds, problem.optimizers, n + c.q * sizes.whole_steps)
    Y, times, fitted = problem(X), list[float](), n
    model: Any = surrogate("wiski", X[:n], Y[:n], bounds=problem.bounds, grid_size="auto")
    model.fit()
    build("qucb", model)(X[: c.q])
    for end in range(n + c.q, len(X) + 1, c.q):
        began = process_time()
        model.observe(X[end - c.q : end], Y[end - c.q : end])
        if end >= GROWN * fitted:
            model.fit()
            fitted = end
        optimize_acqf(build("qucb", model), problem.bounds, c.q)
        times.append(process_time() - began)
    row = {"n": float(n), "wiski": mean(times)}
    if n > MOST_EXACT:
        return row
    began = process_time()
    exact = botorch_gp.fitted(X[:n], Y[:n], problem.bounds)
    acqf = qUpperConfidenceBound(exact, 4.0)
    searched_by_botorch(acqf, problem.bounds, c.q, c.num_restarts, c.raw_samples)
    row["SingleTaskGP"] = process_time() - began
    return {**row, "share": row["wiski"] / row["SingleTaskGP"]}


def fitted_by_five(family: str, options: dict[str, Any], *data: Tensor, **kw: Any) -> Any:
    """A surrogate whose fits take exactly 5 evaluations."""
    model: Any = surrogate(family, data[0], data[1], **options, **(RAW | kw))
    model.covar_module.base_kernel.lengthscale = 0.5
    model.likelihood.noise = 0.1
    model.fit = partial(five_evaluations, model)
    return model


app = benchmark(measure, "about 15 minutes on one core", __doc__)

if __name__ == "__main__":
    start(app)
