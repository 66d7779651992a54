"""What maximising an acquisition function costs, in Cholesky factorisations, and that it finds the
same.

Run `python -m experiments.benchmarks.acquisition_cost` (add `--smoke` for a run of seconds). WISKI
with 10 x 10 x 10 nodes, fitted to 150 and to 1,200 points of three functions from smooth to rough,
half of them around the optima; q = 3, and what loops take by default: 10 restarts of 512 raw
samples. `optimize_acqf` on BoTorch's class and on the one in closed form, from the same seeds, in
factorisations of a 1,000 x 1,000 matrix; how often it asks for a gradient; and the largest
difference of the values found, as a share of the standard deviation of outcomes, or for the
logarithms of qLogEI in absolute terms. One thread, medians of alternated repetitions, seconds of
the processor, or with `--device cuda` of the wall clock.
"""

import statistics
from dataclasses import dataclass
from itertools import product
from typing import Any

import pandas as pd
import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.acquisition.monte_carlo import qUpperConfidenceBound
from botorch.optim.optimize import optimize_acqf
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Tensor

from acquisitions import build
from bo_stream import WISKI
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.benchmarks.bo_step_cost import between
from experiments.benchmarks.timing import cholesky, clock_on, seconds
from experiments.common.command import start
from problems import synthetic

SAMPLES = 128
BETA = 4.0


@dataclass(frozen=True)
class AcquisitionSizes:
    """How much is run."""

    grid: int = 10
    points: tuple[int, ...] = (150, 1200)
    repetitions: int = 7
    restarts: int = 10
    raw_samples: int = 512


def measure(smoke: bool, device: torch.device) -> Tables:
    """A row for each function, number of points and acquisition function."""
    sizes = AcquisitionSizes(6, (40,), 1, 2, 16) if smoke else AcquisitionSizes()
    each = product(("styblinskitang", "levy", "ackley"), sizes.points, ("qucb", "qlogei"))
    yield "acquisition_cost", pd.DataFrame([compared(*one, sizes, device) for one in each])


def compared(
    function: str, n: int, acquisition: str, sizes: AcquisitionSizes, device: torch.device
) -> dict[str, Any]:
    """One row: costs in c and what was found, BoTorch's class beside the closed form."""
    problem, clock = synthetic(function, seed=0), clock_on(device)
    bounds = problem.bounds.to(device)
    torch.manual_seed(0)
    X = between(bounds, problem.optimizers, n)
    Y = problem(X)
    model = WISKI(X, Y, bounds=bounds, grid_size=sizes.grid)
    model.fit()
    best = float(model.posterior(X).mean.max())
    unit, times = cholesky(sizes.grid**3, device), dict[str, list[float]]()
    found, calls = dict[str, list[float]](), list[int]()
    effort: dict[str, Any] = {"num_restarts": sizes.restarts, "raw_samples": sizes.raw_samples}
    for seed in range(sizes.repetitions):
        for _ in range(3):
            times.setdefault("c", []).append(seconds(unit, clock))
        for name, make in (("BoTorch", of_botorch), ("closed", closed)):
            acqf = make(acquisition, model, best, seed)
            counted = count_gradients(acqf)
            torch.manual_seed(seed)
            begun = clock()
            value: Any = optimize_acqf(acqf, bounds, q=3, **effort)[1]
            times.setdefault(name, []).append(clock() - begun)
            found.setdefault(name, []).append(float(value))
            calls.append(counted[0])
    middle = {name: statistics.median(own) for name, own in times.items()}
    apart = max(abs(a - b) for a, b in zip(found["BoTorch"], found["closed"], strict=True))
    return {
        "function": function,
        "n": n,
        "acquisition": acquisition,
        "BoTorch (c)": middle["BoTorch"] / middle["c"],
        "closed (c)": middle["closed"] / middle["c"],
        "gradients": statistics.median(calls),
        "apart": apart / (1.0 if acquisition == "qlogei" else float(Y.std())),
        "c in ms": 1e3 * middle["c"],
    }


def closed(acquisition: str, model: Any, best: float, seed: int) -> Any:
    """The closed form."""
    return build(acquisition, model, best_f=best, beta=BETA, num_samples=SAMPLES, seed=seed)


def of_botorch(acquisition: str, model: Any, best: float, seed: int) -> Any:
    """BoTorch's class."""
    sampler = SobolQMCNormalSampler(torch.Size([SAMPLES]), seed=seed)
    if acquisition == "qucb":
        return qUpperConfidenceBound(model, BETA, sampler=sampler)
    return qLogExpectedImprovement(model, best, sampler=sampler)


def count_gradients(acqf: Any) -> list[int]:
    """Counts, from now on, evaluations with a gradient."""
    count, forward = [0], acqf.forward

    def counting(X: Tensor) -> Tensor:
        count[0] += X.requires_grad
        value: Tensor = forward(X)
        return value

    acqf.forward = counting
    return count


app = benchmark(measure, "about 3 minutes on one core", __doc__)

if __name__ == "__main__":
    start(app)
