"""A study: surrogates beside each other on one problem with the same seeds, read from a TOML file.

Runs go to worker processes with one torch thread each, the longest first.
"""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from queue import Empty
from typing import Any

import pandas as pd
import torch
from botorch.utils.sampling import draw_sobol_samples

from acquisitions import build
from bo_stream import actions, surrogate
from bo_stream.families import in_loops
from bo_stream.loop import BOLoop, FitPolicy, LoopConfig
from experiments.bayesopt.peer_loop import PeerLoop
from experiments.bayesopt.peer_runs import installed, peer_loop
from problems import synthetic

__all__ = ["Run", "Study", "execute"]


@dataclass(frozen=True)
class Run:
    """One surrogate, or a peer, on one problem with one seed; `config` holds seed and steps.

    Attributes:
        label: Name of the surrogate in tables and figures.
        surrogate: Its family's name and options; ``actions`` are given by the name and options of a
            policy of `bo_stream.actions`. Those of the peer, if it is one.
        problem: Name and options of a synthetic problem; ``moved`` says whether its box is moved,
            by the seed.
        acquisition: Name and options of the acquisition function.
        config: Of the loop.
        files: What the names of its files start with, the same for all its seeds.
        peer: Whether this is an optimiser of `experiments.common.peers`.
    """

    label: str
    surrogate: dict[str, Any]
    problem: dict[str, Any]
    acquisition: dict[str, Any]
    config: LoopConfig
    files: str
    peer: bool = False

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.files}_{self.config.seed}"

    def loop(self, callback: Callable[[dict[str, Any]], None] | None = None) -> BOLoop | PeerLoop:
        """The loop, not started."""
        given, seed = dict(self.problem), self.config.seed
        moved = seed if given.pop("moved", False) else None
        problem = synthetic(**given, seed=seed, moved=moved)
        family = dict(self.surrogate)
        if self.peer:
            return peer_loop(family, problem, self.config, callback)
        if "actions" in family:
            choice = dict(family["actions"])
            family["actions"] = getattr(actions, choice.pop("name"))(**choice)
        name = family.pop("name")
        make = partial(surrogate, name, **in_loops(name, family))
        options = dict(self.acquisition)
        if "mc_points" in options:
            options["mc_points"] = draw_sobol_samples(
                problem.bounds, n=options["mc_points"], q=1, seed=self.config.seed
            ).squeeze(-2)
        build_named = partial(build, options.pop("name"), **options)
        return BOLoop(problem, make, build_named, self.config, callback)


@dataclass(frozen=True)
class Study:
    """Runs to be compared.

    Attributes:
        title: Of pictures and tables.
        runs: All of them, each with a stem of its own.
        takes: How long all of it takes, in words; None if that is not known.
        skipped: Peers left out because their packages are not installed, and what is missing.
    """

    title: str
    runs: tuple[Run, ...]
    takes: str | None = None
    skipped: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, smoke: bool = False, problem: str | None = None) -> Study:
        """Read a TOML file; see ``experiments/configs/demo.toml``.

        ``[acquisition]`` may give ``mc_points`` as a number of Sobol points. With ``smoke``, one
        seed, three steps and a token budget of the optimiser. ``problem`` takes the place of the
        name in the file. ``[[peer]]`` has the name and options of another optimiser.

        Raises:
            KeyError: for keys too many or too few.
            ValueError: for surrogates that cannot be told apart.
        """
        text = tomllib.loads(path.read_text(encoding="utf-8"))
        missing = [key for key in ("problem", "acquisition", "surrogate") if key not in text]
        if missing:
            raise KeyError(f"Expected the keys of demo.toml; got none of {missing}.")
        settings = dict(text.pop("loop", {}))
        if "fit" in settings:
            settings["fit"] = FitPolicy(**settings["fit"])
        title, seeds = text.pop("title", path.stem), text.pop("seeds", [0])
        function, acquisition = dict(text.pop("problem")), text.pop("acquisition")
        if problem is not None:
            function["name"], title = problem, f"{problem}: {title}"
        peers, skipped = installed(text.pop("peer", []))
        entries, takes, runs = [*text.pop("surrogate"), *peers], text.pop("takes", None), []
        for entry, label, files in zip(entries, *_told_apart(entries), strict=True):
            family = {key: entry[key] for key in entry if key not in ("label", "steps")}
            steps = entry.get("steps", settings.get("steps", LoopConfig.steps))
            for seed in seeds[:1] if smoke else seeds:
                config = LoopConfig(**{**settings, "steps": steps, "seed": seed})
                if smoke:
                    config = replace(config, steps=3, num_restarts=2, raw_samples=16)
                peer = any(entry is p for p in peers)
                runs.append(Run(label, family, function, acquisition, config, files, peer))
        if text:
            raise KeyError(f"Expected no other keys than those of demo.toml; got {sorted(text)}.")
        return cls(title, tuple(runs), takes, skipped)


def _told_apart(entries: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Labels of a study's surrogates, and what the names of their files start with.

    A family that occurs once goes by its name. One that occurs more than once goes by its options
    where it has no label, and its files have the label in their names.
    """
    names = [entry["name"] for entry in entries]
    labels, files = [], []
    for entry in entries:
        name, options = (
            entry["name"],
            {k: v for k, v in entry.items() if k not in ("name", "label")},
        )
        alone = names.count(name) == 1
        described = ", ".join([name, *(f"{k} {v}" for k, v in options.items())])
        labels.append(entry.get("label", name if alone else described))
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", labels[-1]).strip("-")
        files.append(name if alone else f"{name}_{plain}")
    if len({file.lower() for file in files}) < len(files) or len(set(labels)) < len(labels):
        raise ValueError(
            f"Expected surrogates that can be told apart by their labels; got {labels}. Give each "
            "a label of its own, different in letters or digits."
        )
    return labels, files


def execute(
    study: Study, folder: Path, workers: int = 2
) -> Iterator[tuple[Run, dict[str, Any] | pd.DataFrame]]:
    """Run a study; yields rows as they are recorded and each run's table when it is done.

    Writes ``<surrogate>_<seed>.csv`` and ``.json`` into the folder (with the label between them
    where a family occurs more than once).
    """
    context = get_context("spawn")
    order = sorted(study.runs, key=lambda run: -run.config.steps)
    with context.Manager() as manager, ProcessPoolExecutor(workers, mp_context=context) as pool:
        rows: Any = manager.Queue()
        futures: dict[Future[pd.DataFrame], Run] = {
            pool.submit(_work, run, folder, workers, rows): run for run in order
        }
        while futures:
            try:
                stem, row = rows.get(timeout=0.2)
                yield next(run for run in order if run.stem == stem), row
            except Empty:
                for future in [f for f in futures if f.done()]:
                    yield futures.pop(future), future.result()


def _work(run: Run, folder: Path, workers: int, rows: Any) -> pd.DataFrame:
    """One run, in a worker: a throw-away step first, so that no timing pays for imports."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BoTorch's advice on scaling, and retries of optimisers
        replace(run, config=replace(run.config, steps=1)).loop().run()
        loop = run.loop(lambda row: rows.put((run.stem, row)))
        table = loop.run()
    about = {key: value for key, value in asdict(run).items() if key not in ("config", "files")}
    loop.save(folder / f"{run.stem}.csv", **about, workers=workers)
    return table
