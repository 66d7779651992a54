"""Seconds of the parts of a step of one surrogate that has observed n points, for growing n.

Seconds are processor time on one thread, medians of repetitions that alternate between the parts.
The unit, one 1,000 x 1,000 Cholesky factorisation in the same process, is measured likewise.
Hyperparameters are learned from as many points as the least n, and stay.
"""

import copy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib import pyplot as plt
from torch import Tensor

from acquisitions import build, optimize_acqf
from acquisitions.build import NAMES
from bo_stream.base.streaming_gp import StreamingGP
from experiments.benchmarks.timing import alternated, cholesky
from experiments.common.baselines.registry import FAMILIES
from experiments.common.command import BadParameter, refuse_unknown
from experiments.common.plots import draw_band, in_words, legend, logarithmic_axis, save
from experiments.common.progress import say
from experiments.common.study import (
    ABOUT,
    listed,
    quiet,
    refuse_options,
    surrogates,
    takes_part,
    without,
)
from experiments.common.tables import write_table
from problems import synthetic

PARTS = {
    "update": "one point observed",
    "predict": "posterior at {points} points",
    "fit_evaluation": "one evaluation of a fit, with gradient",
    "acquisition": "one acquisition step",
}
"""What is timed: the column before ``_seconds`` or ``_c``, and what it is."""
CHUNK = 1000
"""Points observed at a time before the timing starts."""
SMOKE = {"n": [20, 40], "points": 10, "repetitions": 1, "unit": 50, "evaluations": 3}
SMOKE |= {"num_restarts": 1, "raw_samples": 4}

Draw = Callable[[int], tuple[Tensor, Tensor]]
"""So many points drawn anew, uniformly from the box, and noisy values there."""


@dataclass(frozen=True)
class CostSizes:
    """What is measured: points that surrogates have seen, in increasing order; points at which the
    posterior is taken; repetitions of each timing; rows of the factorisation that is the unit; the
    most evaluations of the objective in the only fit; the optimiser of an acquisition function.
    """

    n: tuple[int, ...]
    points: int
    repetitions: int
    unit: int
    evaluations: int
    num_restarts: int
    raw_samples: int


@dataclass(frozen=True)
class CostRun:
    """One surrogate, problem and seed, at every n; ``most`` among a surrogate's options is the
    largest that it gets. ``label`` and ``files`` are what it is called in tables and in names of
    files.
    """

    label: str
    files: str
    surrogate: dict[str, Any]
    function: str
    inputs: int
    acquisition: dict[str, Any]
    sizes: CostSizes
    seed: int

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.function}_{self.inputs}_{self.files}_{self.seed}"

    @property
    def n(self) -> list[int]:
        """The numbers of points of this surrogate."""
        return [n for n in self.sizes.n if n <= self.surrogate.get("most", n)]

    def execute(self, folder: Path) -> None:
        """Measure, and write a row for each n."""
        with quiet(), torch.random.fork_rng():
            torch.manual_seed(self.seed)
            table = pd.DataFrame(self.measured())
        about: dict[str, Any] = {"label": self.label, "surrogate": self.surrogate}
        about |= {"problem": {"name": self.function, "inputs": self.inputs}}
        about |= {"acquisition": self.acquisition, "seed": self.seed, "config": asdict(self.sizes)}
        write_table(table, folder / f"{self.stem}.csv", about)

    def measured(self) -> Iterator[dict[str, Any]]:
        """A row for each n."""
        problem, sizes = synthetic(self.function, dim=self.inputs, seed=self.seed), self.sizes

        def draw(n: int) -> tuple[Tensor, Tensor]:
            X = torch.rand(n, self.inputs, dtype=torch.float64)
            return X, problem(X)

        X, Y = draw(sizes.n[0])
        options = without(self.surrogate, (*ABOUT, "most"))
        model = FAMILIES[self.surrogate["name"]](X, Y, bounds=problem.bounds, **options)
        model.fit(sizes.evaluations)
        best, baseline = float(Y.max()), X[:64]
        for step, n in enumerate(self.n):
            while model.num_observed < n:
                model.observe(*draw(min(CHUNK, n - model.num_observed)))
            model.process()
            twin = copy.deepcopy(model)  # its hyperparameters change, which would slow updates
            choose = partial(self._choose, model, problem.bounds, baseline, best)
            tasks: dict[str, Callable[[], object]] = {
                "c": cholesky(sizes.unit),
                "update": partial(observe, model, draw),
                "predict": partial(predict, model, draw, sizes.points),
                "fit_evaluation": partial(evaluate, twin),
                "acquisition": choose,
            }
            size = model.state_bytes
            times = alternated(tasks, sizes.repetitions, time.process_time)
            seconds = {part: statistics.median(values) for part, values in times.items()}
            row: dict[str, Any] = {"step": step, "n": n, "bytes": size}
            row |= {f"{part}_seconds": value for part, value in seconds.items()}
            yield row | {f"{part}_c": seconds[part] / seconds["c"] for part in PARTS}

    def _choose(self, model: StreamingGP, bounds: Tensor, X: Tensor, best: float) -> None:
        """Choose the next point."""
        options, sizes = dict(self.acquisition), self.sizes
        acqf = build(options.pop("name"), model, X_baseline=X, best_f=best, **options)
        restarts, raw = sizes.num_restarts, sizes.raw_samples
        optimize_acqf(acqf, bounds, q=1, num_restarts=restarts, raw_samples=raw)


def observe(model: StreamingGP, draw: Draw) -> None:
    """Observe one more point and bring the posterior up to date."""
    model.observe(*draw(1))
    model.process()


def predict(model: StreamingGP, draw: Draw, points: int) -> None:
    """Predict means and variances."""
    at = model.posterior(draw(points)[0])
    torch.stack([at.mean, at.variance])


def evaluate(model: StreamingGP) -> None:
    """Evaluate what a fit climbs, and its gradient, at new hyperparameters."""
    mll = model.make_mll()
    with torch.no_grad():
        for parameter in mll.parameters():
            parameter.add_(1e-6)
    mll.zero_grad()
    mll().backward()


def plan(c: dict[str, Any], smoke: bool = False) -> list[CostRun]:
    """Every number of inputs, surrogate and seed of a configuration.

    See ``experiments/configs/cost.toml``. A smoke run has few points, one repetition, one number of
    inputs, one seed.

    Raises:
        BadParameter: for what the configuration cannot mean, in one line.
    """
    for entry in c["surrogate"]:
        refuse_options(entry, ["most"])
    refuse_unknown([c["acquisition"].get("name", "none")], NAMES, "acquisition")
    known = {field.name: c[field.name] for field in fields(CostSizes)} | (SMOKE if smoke else {})
    known["n"] = tuple(sorted(listed(known["n"])))
    if not known["n"] or known["n"][0] < 2:
        raise BadParameter(f"n is {list(known['n'])}; it has to be a list of numbers from 2 on.")
    sizes = CostSizes(**known)
    methods = surrogates(c["surrogate"])
    for entry, *_ in methods:
        if entry.get("most", sizes.n[0]) < sizes.n[0]:
            raise BadParameter(f"surrogate {entry['name']} has most below the least n.")
    seeds, inputs = ([c[key][0]] if smoke else c[key] for key in ("seeds", "inputs"))
    return [
        CostRun(label, files, entry, c["function"], dim, c["acquisition"], sizes, seed)
        for dim, (entry, label, files), seed in product(inputs, methods, seeds)
        if takes_part(entry, dim)
    ]


def report(c: dict[str, Any], done: Sequence[tuple[CostRun, pd.DataFrame]], folder: Path) -> None:
    """Draw costs, print their medians in seconds and in c, and write ``cost.csv``."""
    tables = [
        table.assign(surrogate=run.label, inputs=run.inputs, seed=run.seed) for run, table in done
    ]
    whole = pd.concat(tables, ignore_index=True).drop(columns="step")
    whole.to_csv(folder / "cost.csv", index=False)
    points = done[0][0].sizes.points
    for inputs, part in whole.groupby("inputs"):
        title = f"{c['title']}: {c['function']}, {inputs} inputs"
        draw_costs(part, folder / f"cost_{inputs}_inputs.png", title, points)
    keys = ["inputs", "surrogate", "n"]
    for unit, words in (("seconds", "processor seconds"), ("c", "one Cholesky factorisation")):
        shown = whole.groupby(keys, sort=False)[[f"{part}_{unit}" for part in PARTS]].median()
        shown.columns = [part.format(points=points) for part in PARTS.values()]
        say(f"\nIn units of {words}\n")
        say(shown.reset_index().to_string(index=False, float_format="{:.3g}".format))
    say(f"\nWrote {folder}/")


def draw_costs(table: pd.DataFrame, path: Path, title: str, points: int) -> None:
    """Draw medians over seeds of the rows of one problem, both axes logarithmic."""
    figure, panels = plt.subplots(2, 2, figsize=(12.5, 8), sharex=True, layout="constrained")
    for ax, (part, words) in zip(panels.flat, PARTS.items(), strict=True):
        seeds = []
        for k, (label, runs) in enumerate(table.groupby("surrogate", sort=False)):
            drawn, named = runs.assign(step=runs["n"]), in_words(str(label))
            seeds.append(draw_band(ax, drawn, f"{part}_seconds", "n", named, k)[1])
        ax.set(title=words.format(points=points), ylabel="processor seconds")
        for which in "xy":
            logarithmic_axis(ax, which)
        ax.grid(True, alpha=0.25)
    for ax in panels[-1]:
        ax.set_xlabel("observations seen before")
    legend(panels.flat[1], seeds, beside=True)
    figure.suptitle(title)
    save(figure, path)
