"""Seconds of a step against n: from how many observations on a stream costs less than exact GP.

Every surrogate is given n points first: it is built and fitted on the first 100 and observes the
others. A step that is thrown away pays for imports and for the fit to so many points at once; those
after it are measured, each with its fit, as in any loop.
"""

from __future__ import annotations

import math
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from botorch.utils.sampling import draw_sobol_samples

from acquisitions import build
from bo_stream import surrogate
from bo_stream.families import in_loops
from bo_stream.loop import BOLoop, FitPolicy, LoopConfig
from experiments.common.command import end, swept
from experiments.common.plots import DASHES, MARKERS, logarithmic_axis, plt, save
from experiments.common.progress import say
from experiments.common.provenance import provenance
from experiments.common.sweep import table as table_of
from problems import synthetic

__all__ = ["Crossover", "Given", "crossing", "show", "told"]

FITTED = 100
"""Points that hyperparameters are first fitted to, however many are given."""

SMOKE = (20, 40)


@dataclass(frozen=True)
class Given:
    """Steps of one surrogate that was given n points first; `config` says how many.

    Attributes:
        label: Name of the surrogate in tables and pictures.
        surrogate: Its family's name and options.
        problem: Name and options of a synthetic problem.
        acquisition: Name and options of the acquisition function.
        config: Of the loop.
        n: Points given.
    """

    label: str
    surrogate: dict[str, Any]
    problem: dict[str, Any]
    acquisition: dict[str, Any]
    config: LoopConfig
    n: int

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.surrogate['name']}_{self.n}"

    @property
    def steps(self) -> int:
        """How much work it is: a step costs the more, the more points are given."""
        return self.config.steps * self.n

    def execute(self, folder: Path, progress: Callable[[Mapping[str, Any]], None]) -> None:
        """Take the steps; writes ``<stem>.csv`` and ``.json`` into the folder.

        The table has the steps that were measured, with columns ``surrogate`` and ``given``.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # BoTorch's advice on scaling, retries of optimisers
            loop = self.loop()
            loop.step()  # is thrown away
            for k in range(self.config.steps):
                progress({**loop.step(), "step": (k + 1) * self.n})
        unsaid = ("label", "config")
        loop.save(
            folder / f"{self.stem}.csv",
            label=self.label,
            **{key: value for key, value in asdict(self).items() if key not in unsaid},
            **provenance(),
        )
        measured = loop.table().tail(self.config.steps)
        measured = measured.assign(surrogate=self.label, given=self.n)
        measured.to_csv(folder / f"{self.stem}.csv", index=False)

    def loop(self) -> BOLoop:
        """The loop, started, with all n points observed."""
        problem = synthetic(**self.problem, seed=self.config.seed)
        family, acquisition = dict(self.surrogate), dict(self.acquisition)
        name = family.pop("name")
        make = partial(surrogate, name, **in_loops(name, family))
        build_named = partial(build, acquisition.pop("name"), **acquisition)
        loop = BOLoop(problem, make, build_named, self.config)
        X = draw_sobol_samples(problem.bounds, n=self.n, q=1, seed=self.config.seed).squeeze(-2)
        Y = problem(X)
        loop.start(X[:FITTED], Y[:FITTED])
        if self.n > FITTED:
            loop.preload(X[FITTED:], Y[FITTED:])
        return loop


@dataclass(frozen=True)
class Crossover:
    """Runs to be compared: every surrogate given every number of points.

    Attributes:
        title: Of picture and table.
        runs: All of them, each with a stem of its own.
    """

    title: str
    runs: tuple[Given, ...]

    @classmethod
    def read(cls, path: Path, smoke: bool = False) -> Crossover:
        """Read a TOML file with the keys of ``experiments/configs/crossover.toml``.

        With ``smoke``, few points, one step and a token budget of the optimiser.

        Raises:
            KeyError: for keys too few.
            TypeError: for keys too many.
        """
        text = tomllib.loads(path.read_text(encoding="utf-8"))
        settings = dict(text["loop"])
        config = LoopConfig(**{**settings, "fit": FitPolicy(**settings["fit"])})
        if smoke:
            config = replace(config, steps=1, num_restarts=2, raw_samples=16)
        runs = []
        for entry in text["surrogate"]:
            family = {key: value for key, value in entry.items() if key != "label"}
            for n in SMOKE if smoke else text["n"]:
                label = entry["label"]
                runs.append(Given(label, family, text["problem"], text["acquisition"], config, n))
        return cls(text["title"], tuple(runs))


def show(config: Path, folder: Path, smoke: bool = False, *options: Any) -> None:
    """Run, draw, print and say what the numbers mean.

    Writes ``crossover.csv`` and ``step_vs_n.png``; the runs' own files lie in ``crossover``, so
    that they are no part of the study in the folder.

    Args:
        config: TOML with the keys of ``experiments/configs/crossover.toml``.
        folder: Of the results.
        smoke: Whether to take seconds.
        options: As `experiments.common.command.swept` takes them: processes, and what to run again.
    """
    study = Crossover.read(config, smoke)
    say(f"\n{study.title}: every surrogate is given n points first.")
    runs = folder / "crossover"
    end(swept(study.runs, runs, smoke, *options), runs)
    table = summary([table_of(runs, run.stem) for run in study.runs])
    table.to_csv(folder / "crossover.csv", index=False)
    exact = [run.label for run in study.runs if run.surrogate["name"] == "exact"][0]
    draw(table, exact, folder / "step_vs_n.png", study.title)
    say(f"\n{study.title}, given n points first; medians of {study.runs[0].config.steps} steps\n")
    say(table.to_string(index=False, float_format="{:.3f}".format))
    say("")
    for line in told(table, exact):
        say(line)


def summary(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """A row for each surrogate and number of points: medians over its steps."""
    every = pd.concat(list(tables), ignore_index=True)
    columns = {f"{part}_seconds": f"{part} s" for part in ("fit", "acquisition", "update")}
    columns = {"step_seconds": "s/step", **columns, "fit_evaluations": "fit evaluations"}
    medians = every.groupby(["surrogate", "given"], sort=False)[list(columns)].median()
    return medians.reset_index().rename(columns={"given": "n", **columns})


def crossing(stream: pd.Series[float], exact: pd.Series[float]) -> float:
    """The n from which on a stream's step takes less time than the exact GP's.

    Between two sizes it is interpolated, straight in logarithms. The least size if the stream's
    step takes less time at every one; infinity if it does not at the largest.

    Args:
        stream: Seconds by n, ascending.
        exact: Seconds by the same n.
    """
    gains = np.log(exact.to_numpy() / stream.to_numpy())
    sizes = np.log(stream.index.to_numpy(dtype=float))
    behind = np.flatnonzero(gains <= 0)
    if not len(behind):
        return float(stream.index[0])
    k = behind[-1]
    if k == len(gains) - 1:
        return math.inf
    share = -gains[k] / (gains[k + 1] - gains[k])
    return float(np.exp(sizes[k] + share * (sizes[k + 1] - sizes[k])))


def told(table: pd.DataFrame, exact: str) -> list[str]:
    """What a table of `summary` means, in sentences.

    Args:
        table: Of `summary`.
        exact: The label of exact inference in it.
    """
    lines = []
    seconds = _by_size(table)
    least, most = seconds.index[0], seconds.index[-1]
    for label in seconds.columns.drop(exact):
        stream, other = seconds[label], seconds[exact]
        n = crossing(stream, other)
        if math.isinf(n):
            lines.append(
                f"Up to {most:,} points, a step takes less time on {exact} than on {label}."
            )
            continue
        here = f"From about {n:,.0f} points on" if n > least else f"From {least:,} points on"
        lines += [
            f"{here}, a step takes less time on {label} than on {exact}.",
            f"From {least:,} to {most:,} points, {label}'s step took"
            f" {stream[most] / stream[least]:.1f} times as long,"
            f" {exact}'s {other[most] / other[least]:.1f} times; at {most:,},"
            f" {label}'s took {stream[most]:.2g} s and {exact}'s {other[most]:.2g} s.",
        ]
        few = f"With fewer points, take {exact}: it is quicker, and approximates nothing."
        lines += [few] if n > least else []
        lines.append(
            f"Otherwise take {label} where the time of a step matters, {exact} where it does not."
        )
    return [*lines, "For other inputs, noise and drift, see the table of surrogates in the README."]


def draw(table: pd.DataFrame, exact: str, path: Path, title: str) -> None:
    """Draw seconds of a step against n, both logarithmic, and mark where streams become cheaper.

    Args:
        table: Of `summary`.
        exact: The label of exact inference in it.
        path: PNG or any format of matplotlib; folders are made.
        title: Of the picture.
    """
    figure, ax = plt.subplots(figsize=(7.0, 4.5), layout="constrained")
    seconds = _by_size(table)
    for k, label in enumerate(seconds):
        look = {"linestyle": DASHES[k % len(DASHES)], "marker": MARKERS[k % len(MARKERS)]}
        (line,) = ax.plot(seconds.index, seconds[label], label=label, **look)
        n = math.inf if label == exact else crossing(seconds[label], seconds[exact])
        if seconds.index[0] < n < math.inf:
            about = f"{label} takes less time from about {n:,.0f} points on"
            ax.axvline(n, color=line.get_color(), linestyle=":", label=about)
    ax.set(xlabel="points given first", ylabel="seconds a step", title=title)
    logarithmic_axis(ax, "x")
    logarithmic_axis(ax, "y")
    ax.grid(True, alpha=0.25)
    ax.legend(fontsize=8)
    save(figure, path)


def _by_size(table: pd.DataFrame) -> pd.DataFrame:
    """Seconds of a step, a column a surrogate, at the sizes that all have."""
    sizes = table.pivot(index="n", columns="surrogate", values="s/step").dropna().sort_index()
    return sizes[list(dict.fromkeys(table["surrogate"]))]
