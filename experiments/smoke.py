"""Every study, every configuration and every benchmark, each on little data for seconds.

Run `python -m experiments.smoke` (or `make smoke`). Each command runs in a process of its own with
one torch thread; what they print and write goes to a folder a command under `results/smoke`. Ends
with a table of seconds, and with exit code 1 if a command failed.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import import_module
from multiprocessing import connection, get_context
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Annotated, Any

from experiments.common.command import CONFIGS, Choice, Out, command, option, start
from experiments.common.progress import say

__all__ = ["commands", "main"]

ROOT = CONFIGS.parent
OPTION = "--smoke"
RUNS = {
    "demo": "bayesopt demo",
    "bo_*": "bayesopt run {}",
    "malaria_*": "active_learning {}",
    "decoupled_sinc": "decoupled sinc {}",
    "decoupled_arm*": "decoupled arm {}",
    "decoupled_stream": "decoupled stream {}",
    "fx*": "fx_stream {}",
    "comparison*": "bayesopt run {}",
    "crossover": "bayesopt demo",
    "peers": "bayesopt run {}",
    "stream_*": "stream_regression {}",
    "classes": "stream_classification {}",
}
"""What runs a configuration, by its name; others are run by the study they are named after."""
LINES = 15
"""Of what a command that failed printed."""
SHARED = ("torch", "botorch", "gpytorch", "pandas", "matplotlib.pyplot", "bo_stream", "problems")
"""Imported once, before processes are forked."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        name: The command.
        seconds: That it took.
        code: Its exit code.
    """

    name: str
    seconds: float
    code: int


def commands() -> list[str]:
    """Every command, without ``--smoke``: studies by their configurations, then benchmarks.

    Raises:
        ValueError: for a configuration that no study runs.
    """
    studies = sorted(p.parent.name for p in ROOT.glob("*/__main__.py") if _has_smoke(p))
    found = [_run_by(path, studies) for path in sorted(CONFIGS.glob("*.toml"))]
    taken = {name.split()[0] for name in found}
    benchmarks = sorted(p for p in ROOT.glob("benchmarks/*.py") if _has_smoke(p))
    found += [study for study in studies if study not in taken]
    return list(dict.fromkeys(found)) + [f"benchmarks.{path.stem}" for path in benchmarks]


def main(
    out: Out = None,
    only: Choice = None,
    workers: Annotated[int, option(min=1, help="Commands at a time.")] = 2,
) -> None:
    """Run every command with --smoke."""
    chosen = [name for name in commands() if not only or any(part in name for part in only)]
    folder = (out or Path("results/smoke")).absolute()
    began = time.perf_counter()
    ended = _all(chosen, folder, workers)
    wide = max(len(each.name) for each in ended)
    say("\n" + "\n".join(_line(each, wide) for each in sorted(ended, key=lambda e: -e.seconds)))
    failed = [each for each in ended if each.code]
    for each in failed:
        text = _log(folder, each.name).read_text(encoding="utf-8", errors="replace")
        say(f"\n{each.name} {OPTION} ended with {each.code}:")
        say("\n".join(text.splitlines()[-LINES:]))
    spent, children = time.perf_counter() - began, getrusage(RUSAGE_CHILDREN)
    cpu = children.ru_utime + children.ru_stime
    say(f"\n{len(ended)} commands in {spent:.0f} s ({cpu:.0f} s of CPU time), {len(failed)} failed")
    if failed:
        sys.exit(1)


def _all(names: Sequence[str], folder: Path, workers: int) -> list[Ended]:
    """Run commands, so many at a time, each forked from this process."""
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    for module in SHARED:
        import_module(module)
    import_module("torch").set_num_threads(1)
    waiting, under_way, ended = list(names), dict[Any, tuple[str, float, Any]](), list[Ended]()
    fork = get_context("fork")
    while waiting or under_way:
        while waiting and len(under_way) < workers:
            name = waiting.pop(0)
            process = fork.Process(target=_run, args=(name, folder))
            process.start()
            under_way[process.sentinel] = (name, time.perf_counter(), process)
        for sentinel in connection.wait(list(under_way)):
            name, began, process = under_way.pop(sentinel)
            process.join()
            ended.append(Ended(name, time.perf_counter() - began, process.exitcode or 0))
            say(_line(ended[-1], 0))
    return ended


def _run(name: str, folder: Path) -> None:
    """One command, in a process of its own: its output to a file, its results beside it."""
    log = _log(folder, name)
    log.parent.mkdir(parents=True, exist_ok=True)
    file = open(log, "w", buffering=1, encoding="utf-8")  # noqa: SIM115 (until the process ends)
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = file, file
    os.chdir(log.parent)
    module, *arguments = name.split()
    known = [str(CONFIGS / a) if a.endswith(".toml") else a for a in arguments]
    sys.argv = [module, *known, OPTION]
    runpy.run_module(f"experiments.{module}", run_name="__main__", alter_sys=True)


def _run_by(config: Path, studies: Sequence[str]) -> str:
    for pattern, command_line in RUNS.items():
        if fnmatch(config.stem, pattern):
            return command_line.format(config.name)
    own = [study for study in studies if config.stem.startswith(study)]
    if not own:
        raise ValueError(
            f"Expected every configuration to be run by a study; got {config.name}. "
            "Name it after one, or add it to RUNS."
        )
    return f"{max(own, key=len)} {config.name}"


def _has_smoke(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return "__main__" in text and ("smoke: Smoke" in text or "import study" in text)


def _log(folder: Path, name: str) -> Path:
    return folder / name.replace(" ", "_").removesuffix(".toml") / "printed.txt"


def _line(each: Ended, wide: int) -> str:
    state = f"failed ({each.code})" if each.code else ""
    return f"{each.name:<{wide}}  {each.seconds:6.1f} s  {state}".rstrip()


app = command(main)

if __name__ == "__main__":
    start(app)
