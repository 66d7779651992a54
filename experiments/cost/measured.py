"""Seconds of the parts of a step of one surrogate that was given n points first, for growing n.

Seconds are processor time on one thread, medians of repetitions that alternate between the parts.
The unit, one 1,000 x 1,000 Cholesky factorisation in the same process, is measured likewise.
Hyperparameters are learned from as many points as the least n, and stay.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from botorch.optim.optimize import optimize_acqf
from torch import Tensor

from acquisitions import build
from bo_stream import surrogate
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.records import environment, write_table
from experiments.common.kinds import built, quiet, without
from experiments.common.provenance import provenance
from experiments.common.sweep import Callback
from experiments.common.timing import alternated, cholesky
from problems import synthetic

__all__ = ["PARTS", "Cost", "Sizes"]

PARTS = {
    "update": "one point observed",
    "predict": "posterior at {points} points",
    "fit_evaluation": "one evaluation of a fit, with gradient",
    "acquisition": "one acquisition step",
}
"""What is timed: the column before ``_seconds`` or ``_c``, and what it is."""
CHUNK = 1000
"""Points handed over at a time before the timing starts."""


@dataclass(frozen=True)
class Sizes:
    """What is measured.

    Attributes:
        n: Points that surrogates have seen, in increasing order.
        points: Points at which the posterior is taken.
        repetitions: Repetitions of each timing.
        unit: Rows of the factorisation that is the unit.
        evaluations: The most evaluations of the objective in the only fit.
        num_restarts, raw_samples: Of the optimiser of an acquisition function.
    """

    n: tuple[int, ...]
    points: int
    repetitions: int
    unit: int
    evaluations: int
    num_restarts: int
    raw_samples: int


@dataclass(frozen=True)
class Cost:
    """One surrogate, problem and seed, at every n.

    Attributes:
        label: Name of the surrogate in tables and pictures.
        files: Its part in names of files.
        surrogate: Its name and options; ``most`` is the largest n that it is given.
        function, inputs: Of the problem.
        acquisition: Name and options.
        sizes: What is measured.
        seed: Of points and noise.
    """

    label: str
    files: str
    surrogate: dict[str, Any]
    function: str
    inputs: int
    acquisition: dict[str, Any]
    sizes: Sizes
    seed: int

    @property
    def n(self) -> tuple[int, ...]:
        """The numbers of points that this surrogate is given."""
        return tuple(n for n in self.sizes.n if n <= self.surrogate.get("most", n))

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.function}_{self.inputs}_{self.files}_{self.seed}"

    @property
    def steps(self) -> int:
        """How much work it is: the number of points that it is given in the end."""
        return max(self.n)

    def execute(self, folder: Path, progress: Callback) -> None:
        """Measure, and write a row for each n."""
        rows = []
        with quiet(), torch.random.fork_rng():
            torch.manual_seed(self.seed)
            for row in self._measured():
                rows.append(row)
                progress({**row, "step": row["n"]})
        about: dict[str, Any] = {"label": self.label, "surrogate": self.surrogate}
        about |= {"problem": {"name": self.function, "inputs": self.inputs}}
        about |= {"acquisition": self.acquisition, "seed": self.seed}
        about |= {"config": asdict(self.sizes), "environment": environment(), **provenance()}
        write_table(pd.DataFrame(rows), folder / f"{self.stem}.csv", about)

    def _measured(self) -> Iterator[dict[str, Any]]:
        problem = synthetic(self.function, dim=self.inputs, seed=self.seed)
        draw = partial(_drawn, problem)
        X, Y = draw(self.n[0])
        options = without(self.surrogate, ("name", "label", "most", "least_inputs", "most_inputs"))
        model = surrogate(self.surrogate["name"], X, Y, bounds=problem.bounds, **built(options))
        model.fit(self.sizes.evaluations)
        best, baseline = float(Y.max()), X[:64]
        for step, n in enumerate(self.n):
            while model.num_observed < n:
                model.observe(*draw(min(CHUNK, n - model.num_observed)))
            model.process()
            twin = copy.deepcopy(model)  # its hyperparameters change, which would slow updates
            choose = partial(self._choose, model, problem.bounds, baseline, best)
            tasks: dict[str, Callable[[], object]] = {
                "c": cholesky(self.sizes.unit),
                "update": partial(_observe, model, draw),
                "predict": partial(_predict, model, draw, self.sizes.points),
                "fit_evaluation": partial(_evaluate, twin),
                "acquisition": choose,
            }
            size = model.state_bytes
            times = alternated(tasks, self.sizes.repetitions, time.process_time)
            seconds = {part: statistics.median(values) for part, values in times.items()}
            row: dict[str, Any] = {"step": step, "n": n, "bytes": size}
            row |= {f"{part}_seconds": value for part, value in seconds.items()}
            yield row | {f"{part}_c": seconds[part] / seconds["c"] for part in PARTS}

    def _choose(self, model: StreamingGP, bounds: Tensor, X: Tensor, best: float) -> None:
        """Choose the next point."""
        options = dict(self.acquisition)
        acqf = build(options.pop("name"), model, X_baseline=X, best_f=best, **options)
        optimize_acqf(
            acqf,
            bounds,
            q=1,
            num_restarts=self.sizes.num_restarts,
            raw_samples=self.sizes.raw_samples,
        )


def _drawn(problem: Any, n: int) -> tuple[Tensor, Tensor]:
    """Points drawn anew, uniformly from the box, and noisy values there."""
    X = torch.rand(n, len(problem.bounds[0]), dtype=torch.float64)
    return X, problem(X)


def _observe(model: StreamingGP, draw: Callable[[int], tuple[Tensor, Tensor]]) -> None:
    """Observe one more point and bring the posterior up to date."""
    model.observe(*draw(1))
    model.process()


def _predict(model: StreamingGP, draw: Callable[[int], tuple[Tensor, Tensor]], points: int) -> None:
    """Predict means and variances."""
    at = model.posterior(draw(points)[0])
    torch.stack([at.mean, at.variance])


def _evaluate(model: StreamingGP) -> None:
    """Evaluate what a fit climbs, and its gradient, at new hyperparameters."""
    mll = model.make_mll()
    with torch.no_grad():
        for parameter in mll.parameters():
            parameter.add_(1e-6)
    mll.zero_grad()
    mll().backward()
