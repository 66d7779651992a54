"""What `bo_step_cost` measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pandas as pd
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from torch import Tensor

from acquisitions import build
from bo_stream import FitReport, surrogate
from bo_stream.simulation import BOLoop, LoopConfig
from experiments.common.kernels import RAW
from experiments.common.progress import Progress
from experiments.common.timing import cholesky, seconds
from problems import synthetic


@dataclass(frozen=True)
class Sizes:
    """How much is run."""

    grid: int = 10
    first: int = 50
    last: int = 150
    late: int = 1000
    late_steps: int = 50
    against: tuple[int, ...] = (2000, 4000)
    against_steps: int = 3
    config: LoopConfig = field(default_factory=lambda: LoopConfig(recommend_every=0))


SMOKE = Sizes(
    6, 2, 5, 20, 3, (60, 120), 1, LoopConfig(num_restarts=2, raw_samples=16, recommend_every=0)
)


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

        acqf.forward = counted  # type: ignore[method-assign]
        return acqf


def measured_steps(loop: BOLoop, count: int, builder: Counted, unit: Callable[[], object]) -> None:
    """Take steps, adding to each row the unit ``c`` and the number of acquisition evaluations."""
    progress = Progress(count, "steps")
    for _ in range(count):
        c, before = seconds(unit), builder.calls
        wall = seconds(loop.step)
        progress()
        row = loop.rows[-1]
        row |= {"c": c, "acquisition_evaluations": builder.calls - before}
        row["wall"] = wall - row["score_seconds"] - row["recommend_seconds"]


def streamed(
    problem_name: str, sizes: Sizes, every_step: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of the early and of the late steps of one run."""
    problem, builder = synthetic(problem_name, seed=0), Counted()
    make = partial(surrogate, "wiski", grid_size=sizes.grid)
    loop, unit = BOLoop(problem, make, builder, sizes.config), cholesky(sizes.grid**3)
    loop.start()
    measured_steps(loop, sizes.last, builder, unit)
    taken = sizes.last
    if every_step:
        measured_steps(loop, sizes.late - taken, builder, unit)
        taken = sizes.late
    else:
        X = between(problem.bounds, problem.optimizers, sizes.config.q * (sizes.late - taken))
        loop.preload(X, problem(X))
        loop.step()  # the first step after a large batch pays for it
        taken += 1
    measured_steps(loop, sizes.late_steps, builder, unit)
    table = loop.table()
    early = table[(table["step"] > sizes.first) & (table["step"] <= sizes.last)]
    return early, table[table["step"] > taken]


def between(bounds: Tensor, optimizers: Tensor, count: int) -> Tensor:
    """Points where an optimiser may have been: half uniform, half around the optima."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(count, bounds.shape[1], generator=generator, dtype=torch.float64)
    near = count // 2
    which = torch.arange(near) % len(optimizers)
    spread = 0.1 * torch.randn(near, bounds.shape[1], generator=generator, dtype=torch.float64)
    X[:near] = (optimizers[which] + spread).clamp(0.0, 1.0)
    return X


def in_units(table: pd.DataFrame) -> dict[str, float]:
    """Medians of one run's rows, times in units of c."""
    c = float(table["c"].median())
    parts = ("step", "fit", "acquisition", "update")
    costs = {part: float(table[f"{part}_seconds"].median()) / c for part in parts}
    fits = table[table["fit_evaluations"] > 0]
    return {
        **costs,
        "fit evaluations": float(fits["fit_evaluations"].median()),
        "c per fit evaluation": float((fits["fit_seconds"] / fits["fit_evaluations"]).median()) / c,
        "c per acquisition evaluation": float(
            (table["acquisition_seconds"] / table["acquisition_evaluations"]).median() / c
        ),
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


def against_exact(n: int, sizes: Sizes) -> dict[str, float]:
    """Median step seconds of both families at n observations."""
    problem, row = synthetic("levy", seed=0), {"n": float(n)}
    X = between(problem.bounds, problem.optimizers, n)
    Y = problem(X)
    for family, options in (("wiski", {"grid_size": sizes.grid}), ("exact", {})):
        make = partial(_fitted_by_five, family, options)
        loop = BOLoop(problem, make, partial(build, "qucb"), replace(sizes.config, steps=0))
        loop.start(X, Y)
        for _ in range(sizes.against_steps):
            loop.step()
        row[family] = float(loop.table()["step_seconds"].iloc[1:].median())
    return {**row, "ratio": row["exact"] / row["wiski"]}


def _fitted_by_five(family: str, options: dict[str, Any], *data: Tensor, **kw: Any) -> Any:
    model: Any = surrogate(family, data[0], data[1], **options, **(RAW | kw))
    model.covar_module.base_kernel.lengthscale = 0.5
    model.likelihood.noise = 0.1
    model.fit = partial(five_evaluations, model)
    return model
