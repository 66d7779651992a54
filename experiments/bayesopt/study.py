"""A study: surrogates beside each other on problems with the same seeds, read from a TOML file.

Lists in the file become a sweep: every problem, acquisition function, surrogate and seed is a run.
"""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from botorch.utils.sampling import draw_sobol_samples

from acquisitions import build
from bo_stream import surrogate
from bo_stream.simulation import BOLoop, FitPolicy, LoopConfig
from bo_stream.surrogates.registry import in_loops
from experiments.bayesopt.peer_loop import PeerLoop
from experiments.bayesopt.peer_runs import installed, peer_loop
from experiments.common.expand import expanded, plain, told_apart
from experiments.common.kinds import built
from experiments.common.provenance import provenance
from experiments.common.sweep import Callback
from problems import synthetic

__all__ = ["Run", "Study"]


@dataclass(frozen=True)
class Run:
    """One surrogate, or a peer, on one problem with one seed; `config` holds seed and steps.

    Attributes:
        label: Name of the surrogate in tables and figures.
        surrogate: Its family's name and options; ``actions`` and ``growth`` are given by the name
            and options of a policy of `bo_stream.actions` or `bo_stream.growth`. Those of the peer,
            if it is one.
        problem: Name and options of a synthetic problem; ``moved`` says whether its box is moved,
            by the seed.
        acquisition: Name and options of the acquisition function.
        config: Of the loop.
        files: What stands for the surrogate in the names of its files, the same for all seeds.
        task: What stands there for problem and acquisition; empty if the study has one of each.
        peer: Whether this is an optimiser of `experiments.common.peers`.
    """

    label: str
    surrogate: dict[str, Any]
    problem: dict[str, Any]
    acquisition: dict[str, Any]
    config: LoopConfig
    files: str
    task: str = ""
    peer: bool = False

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        parts = (self.task, self.files, str(self.config.seed))
        return "_".join(part for part in parts if part)

    @property
    def steps(self) -> int:
        """How much work it is."""
        return self.config.steps

    def loop(self, callback: Callable[[dict[str, Any]], None] | None = None) -> BOLoop | PeerLoop:
        """The loop, not started."""
        given, seed = dict(self.problem), self.config.seed
        moved = seed if given.pop("moved", False) else None
        problem = synthetic(**given, seed=seed, moved=moved)
        family = dict(self.surrogate)
        if self.peer:
            return peer_loop(family, problem, self.config, callback)
        name = family.pop("name")
        make = partial(surrogate, name, **in_loops(name, built(family)))
        options = dict(self.acquisition)
        if "mc_points" in options:
            options["mc_points"] = draw_sobol_samples(
                problem.bounds, n=options["mc_points"], q=1, seed=self.config.seed
            ).squeeze(-2)
        build_named = partial(build, options.pop("name"), **options)
        return BOLoop(problem, make, build_named, self.config, callback)

    def execute(self, folder: Path, progress: Callback) -> None:
        """Run it, after a throw-away step, so that no timing pays for imports.

        Writes ``<stem>.csv`` and ``.json`` into the folder.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # BoTorch's advice on scaling, retries of optimisers
            replace(self, config=replace(self.config, steps=1)).loop().run()
            loop = self.loop(progress)
            loop.run()
        unsaid = ("config", "files", "task")
        about = {key: value for key, value in asdict(self).items() if key not in unsaid}
        loop.save(folder / f"{self.stem}.csv", **about, **provenance())


@dataclass(frozen=True)
class Study:
    """Runs to be compared.

    Attributes:
        title: Of pictures and tables.
        runs: All of them, each with a stem of its own.
        takes: How long all of it takes, in words; None if that is not known.
        source: The file's contents.
        skipped: Peers left out because their packages are not installed, and what is missing.
    """

    title: str
    runs: tuple[Run, ...]
    takes: str | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, smoke: bool = False, problem: str | None = None) -> Study:
        """Read a TOML file; see ``experiments/configs/demo.toml``.

        A list in ``[problem]``, ``[acquisition]`` or ``[[surrogate]]`` stands for several values
        (see `experiments.common.expand`). ``[acquisition]`` may give ``mc_points`` as a number of
        Sobol points. With ``smoke``, one problem, seed and acquisition function, three steps
        and a token budget of the optimiser.
        ``problem`` takes the place of the names in the file. ``[[peer]]`` has the name and options
        of another optimiser.

        Raises:
            KeyError: for keys too many or too few.
            ValueError: for configurations that cannot be told apart, or have wrong values.
        """
        source = tomllib.loads(path.read_text(encoding="utf-8"))
        text = dict(source)
        missing = [key for key in ("problem", "acquisition", "surrogate") if key not in text]
        if missing:
            raise KeyError(f"Expected the keys of demo.toml; got none of {missing}.")
        settings = dict(text.pop("loop", {}))
        if "fit" in settings:
            settings["fit"] = FitPolicy(**settings["fit"])
        title, seeds = text.pop("title", path.stem), text.pop("seeds", [0])
        functions = text.pop("problem")
        if problem is not None:
            functions = [{**each, "name": problem} for each in _tables(functions)]
            title = f"{problem}: {title}"
        tasks = _tasks(functions, text.pop("acquisition"))
        peers, skipped = installed(_expanded(text.pop("peer", [])))
        entries = _named(_expanded(text.pop("surrogate")), peers)
        takes, runs = text.pop("takes", None), []
        if text:
            raise KeyError(f"Expected no other keys than those of demo.toml; got {sorted(text)}.")
        for seed, (task, function, acquisition), entry in product(
            seeds[:1] if smoke else seeds, tasks[:1] if smoke else tasks, entries
        ):
            label, files, said, peer = entry
            family = {key: said[key] for key in said if key not in ("label", "steps")}
            steps = said.get("steps", settings.get("steps", LoopConfig.steps))
            config = LoopConfig(**{**settings, "steps": steps, "seed": seed})
            if smoke:
                config = replace(config, steps=3, num_restarts=2, raw_samples=16)
            runs.append(Run(label, family, function, acquisition, config, files, task, peer))
        return cls(title, tuple(runs), takes, source, skipped)


def _named(
    surrogates: list[dict[str, Any]], peers: list[dict[str, Any]]
) -> list[tuple[str, str, dict[str, Any], bool]]:
    """Every entry with its label, its part in the names of files, and whether it is a peer."""
    entries, kinds = [*surrogates, *peers], [False] * len(surrogates) + [True] * len(peers)
    return list(zip(*told_apart(entries, "surrogates and peers"), entries, kinds, strict=True))


def _tasks(problem: Any, acquisition: Any) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Every problem with every acquisition function, and their part in the names of files."""
    named = []
    for said, what in ((problem, "problems"), (acquisition, "acquisition functions")):
        entries = _expanded(said)
        labels, _ = told_apart(entries, what)
        alone = len(entries) == 1
        named.append([("" if alone else plain(k), e) for k, e in zip(labels, entries, strict=True)])
    return [("_".join(filter(None, (a, b))), f, g) for (a, f), (b, g) in product(*named)]


def _expanded(said: Any) -> list[dict[str, Any]]:
    """Every combination of the values in one table, or in several."""
    return [entry for table in _tables(said) for entry in expanded(table)]


def _tables(said: Any) -> list[dict[str, Any]]:
    """One table, or several in brackets of two."""
    return list(said) if isinstance(said, list) else [said]
