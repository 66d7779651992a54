"""Steps of a surrogate that was given n points first.

The surrogate is built and fitted on the first 100 points and observes the others. A first step,
which is thrown away, pays for imports and for the fit to so many points at once; those after it are
measured, each with its fit, as in any loop.
"""

from __future__ import annotations

import tomllib
import warnings
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from botorch.utils.sampling import draw_sobol_samples

from acquisitions import build
from bo_stream import surrogate
from bo_stream.campaign.records import environment, write_table
from bo_stream.simulation import BOLoop, FitPolicy, LoopConfig
from bo_stream.surrogates.registry import in_loops
from experiments.common.kinds import surrogates, without
from experiments.common.provenance import provenance
from experiments.common.sweep import Callback
from problems import synthetic

__all__ = ["Crossover", "Given"]

FITTED = 100
"""Points that hyperparameters are first fitted to, however many are given."""
SMOKE = (20, 40)
"""Points given in a smoke run."""


@dataclass(frozen=True)
class Given:
    """Steps of one surrogate that was given n points first.

    Attributes:
        label: Name of the surrogate in tables and pictures.
        files: The same in names of files.
        surrogate: Its family's name and options.
        problem: Name and options of a synthetic problem.
        acquisition: Name and options of the acquisition function.
        config: Of the loop; it has the number of steps.
        n: Points given.
    """

    label: str
    files: str
    surrogate: dict[str, Any]
    problem: dict[str, Any]
    acquisition: dict[str, Any]
    config: LoopConfig
    n: int

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.files}_{self.n}"

    @property
    def steps(self) -> int:
        """How much work it is, in points given: with more of them, a step takes longer."""
        return self.config.steps * self.n

    def execute(self, folder: Path, progress: Callback) -> None:
        """Take the steps, and write ``<stem>.csv`` and ``.json`` into the folder.

        The table has the steps that were measured, with columns ``surrogate`` and ``given``.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # BoTorch's advice on scaling, retries of optimisers
            loop = self.loop()
            loop.step()  # is thrown away
            for k in range(self.config.steps):
                progress({**loop.step(), "step": (k + 1) * self.n})
        measured = loop.table().tail(self.config.steps)
        about = asdict(self) | {"environment": environment(), **provenance()}
        table = measured.assign(surrogate=self.label, given=self.n)
        write_table(table, folder / f"{self.stem}.csv", about)

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
            KeyError: if a key is missing.
            TypeError: for an unknown setting of the loop.
        """
        text = tomllib.loads(path.read_text(encoding="utf-8"))
        settings = dict(text["loop"])
        config = LoopConfig(**{**settings, "fit": FitPolicy(**settings["fit"])})
        if smoke:
            config = replace(config, steps=1, num_restarts=2, raw_samples=16)
        task = text["problem"], text["acquisition"]
        runs = [
            Given(label, files, without(entry, ["label"]), *task, config, n)
            for n in sorted(SMOKE if smoke else text["n"], reverse=True)  # the longest run first
            for entry, label, files in surrogates(text["surrogate"])
        ]
        return cls(text["title"], tuple(runs))
