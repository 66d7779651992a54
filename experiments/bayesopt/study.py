"""Surrogates beside each other on problems with the same seeds, read from a TOML file.

Lists in the file become a sweep: every problem, acquisition function, surrogate and seed is a run.
"""

from dataclasses import fields
from itertools import product
from typing import Any

from bo_stream.simulation import LoopConfig
from experiments.bayesopt.peers.peer import INSTALL
from experiments.bayesopt.peers.registry import skipped
from experiments.bayesopt.report import report as report
from experiments.bayesopt.runs import BayesoptRun
from experiments.common.command import TAKES, BadParameter, refuse_unknown
from experiments.common.progress import say
from experiments.common.study import (
    expanded,
    fit_policy,
    listed,
    plain,
    refuse_options,
    told_apart,
    without,
)

NEEDED = ("problem", "acquisition", "surrogate")
OWN = ("steps", "acquisition", "fit")
"""Keys by which a surrogate or a peer differs from the others."""
KEYS = (*NEEDED, "title", "seeds", "loop", "peer", TAKES)
SMOKE = {"steps": 3, "num_restarts": 2, "raw_samples": 16, "acqf_options": {"maxiter": 10}}
SMOKE |= {"fit": {"max_evals": 8, "first_max_evals": 20}}
BRIEF = {"botorch_sparse": {"steps": 20}, "turbo": {"candidates": 200}, "vbll": {"first": 50}}
"""Options of peers in a smoke run."""


def plan(c: dict[str, Any], smoke: bool = False) -> list[BayesoptRun]:
    """The runs of a configuration; see ``experiments/configs/demo.toml``.

    A list in ``[problem]``, ``[acquisition]`` or ``[[surrogate]]`` stands for several values (see
    `experiments.common.study`). ``[acquisition]`` may give ``mc_points`` as a number of Sobol
    points. ``[[peer]]`` has the name and options of another optimiser; one whose packages are not
    installed is named and left out. A surrogate or peer may have ``steps``, ``acquisition`` and
    ``fit`` of its own. With ``smoke``, one problem, seed and acquisition function, three steps and
    a token budget of the optimiser.

    Raises:
        BadParameter: for keys too many or too few.
        InputError: for configurations that cannot be told apart, or have wrong values.
    """
    if without_them := [key for key in NEEDED if key not in c]:
        named = ", ".join(without_them)
        raise BadParameter(f"expected the keys of demo.toml; got none of {named}.")
    refuse_unknown(c, KEYS, "the configuration")
    tasks, settings = _tasks(c["problem"], c["acquisition"]), c.get("loop", {})
    surrogates, peers = (_expanded(c.get(key, [])) for key in ("surrogate", "peer"))
    for entry in surrogates:
        refuse_options(entry, OWN)
    absent = skipped(peers)
    for name in absent:
        say(f"skipped: {name} ({INSTALL})")
    peers = [entry for entry in peers if entry["name"] not in absent]
    entries = [*surrogates, *peers]
    labelled = zip(*told_apart(entries, "surrogates and peers"), entries, strict=True)
    kinds = zip(labelled, [False] * len(surrogates) + [True] * len(peers), strict=True)
    seeds, runs = c.get("seeds", [0]), []
    if smoke:
        seeds, tasks = seeds[:1], tasks[:1]
    for seed, (task, function, acquisition), (known, peer) in product(seeds, tasks, list(kinds)):
        label, files, entry = known
        own = {key: entry[key] for key in ("steps", "fit") if key in entry}
        config = loop_config({**settings, **own, "seed": seed} | (SMOKE if smoke else {}))
        brief = BRIEF.get(entry["name"], {}) if smoke else {}
        family, search = without(entry, ("label", *OWN)) | brief, entry.get("acquisition")
        search = acquisition if search is None else search
        runs.append(BayesoptRun(label, family, function, search, config, files, task, peer))
    return runs


def loop_config(settings: dict[str, Any]) -> LoopConfig:
    """The settings of a loop, with those of ``fit`` among them."""
    refuse_unknown(settings, (field.name for field in fields(LoopConfig)), "[loop]")
    return LoopConfig(**{**settings, "fit": fit_policy(settings.get("fit", {}))})


def _tasks(problem: Any, acquisition: Any) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Every problem with every acquisition function, and their part in the names of files."""
    named = []
    for tables, what in ((problem, "problems"), (acquisition, "acquisition functions")):
        entries = _expanded(tables)
        labels, _ = told_apart(entries, what)
        alone = len(entries) == 1
        named.append([("" if alone else plain(k), e) for k, e in zip(labels, entries, strict=True)])
    return [("_".join(filter(None, (a, b))), f, g) for (a, f), (b, g) in product(*named)]


def _expanded(tables: Any) -> list[dict[str, Any]]:
    """Every combination of the values in one table, or in several."""
    return [entry for table in listed(tables) for entry in expanded(table)]
