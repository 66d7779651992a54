"""Every study, every configuration and every benchmark, each on little data for seconds.

Run `python -m experiments.smoke` (or `make smoke`). Each command runs in a process of its own with
one torch thread; what they print and write goes to a folder a command under `results/smoke`. Ends
with a table of seconds, and with exit code 1 if a command failed.
"""

import os
import re
import runpy
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from importlib import import_module
from multiprocessing import connection, get_context
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Annotated, Any

from experiments.common.command import CONFIGS, Choice, Out, command, option, start
from experiments.common.progress import say

ROOT = CONFIGS.parent
OPTION = "--smoke"
RUNS = {
    "malaria_*": "active_learning {}",
    "decoupled_sinc": "decoupled sinc {}",
    "decoupled_arm*": "decoupled arm {}",
    "decoupled_stream": "decoupled stream {}",
    "schools": "counts.schools {}",
    "toys": "growth.toys {}",
    "stream_*": "stream_regression {}",
    "classes": "stream_classification {}",
    **dict.fromkeys(("classics", "demo", "large", "lander", "noisy"), "comparison {}"),
    **dict.fromkeys(("outcomes", "readme", "rotated", "thirty", "tuning"), "comparison {}"),
}
"""What runs a configuration, by its name; others are run by the study they are named after."""
KNOWN = re.compile(r"smoke: Smoke|(configured|sweeping|benchmark)\(")
"""In a program that has the option."""
SHARED = ("torch", "botorch", "gpytorch", "pandas", "matplotlib.pyplot", "bo_stream", "problems")
"""Imported once, before processes are forked."""


def commands() -> list[str]:
    """Every command, without ``--smoke``: studies by their configurations, then benchmarks.

    Raises:
        ValueError: for a configuration that no study runs.
    """
    names = programs("*/__main__.py") + programs("*.py")
    found = [run_by(path, names) for path in sorted(CONFIGS.glob("*.toml"))]
    taken = {name.split()[0] for name in found}
    found += [study for study in names if study not in taken]
    return list(dict.fromkeys(found)) + programs("benchmarks/*_*.py")


def programs(pattern: str) -> list[str]:
    """Modules that can be run with ``--smoke``, among the files of a pattern."""
    paths = (path for path in ROOT.glob(pattern) if path != Path(__file__))
    known = (path.relative_to(ROOT) for path in paths if KNOWN.search(path.read_text("utf-8")))
    return sorted(".".join(path.with_suffix("").parts).removesuffix(".__main__") for path in known)


def run_by(config: Path, studies: Sequence[str]) -> str:
    """The command that takes a configuration."""
    for pattern, line in RUNS.items():
        if fnmatch(config.stem, pattern):
            return line.format(config.name)
    own = [study for study in studies if config.stem.startswith(study)]
    if not own:
        raise ValueError(
            f"Expected every configuration to be run by a study; got {config.name}. "
            "Name it after one, or add it to RUNS."
        )
    return f"{max(own, key=len)} {config.name}"


def main(
    out: Out = None,
    only: Choice = None,
    workers: Annotated[int, option(min=1, help="Commands at a time.")] = 2,
) -> None:
    """Run every command with --smoke."""
    chosen = [name for name in commands() if not only or any(part in name for part in only)]
    if report(chosen, (out or Path("results/smoke")).absolute(), workers):
        sys.exit(1)


def report(names: Sequence[str], folder: Path, workers: int) -> int:
    """Run commands, print the last lines of those that fail and the time; how many failed."""
    began, wide = time.perf_counter(), max(map(len, names), default=0)
    codes = all_of(names, folder, workers, wide)
    failed = {name: code for name, code in codes.items() if code}
    for name, code in failed.items():
        said = printed(folder, name).read_text(encoding="utf-8", errors="replace").splitlines()
        say("\n".join([f"\n{name} {OPTION} ended with {code}:", *said[-15:]]))
    spent, children = time.perf_counter() - began, getrusage(RUSAGE_CHILDREN)
    cpu = children.ru_utime + children.ru_stime
    say(f"\n{len(codes)} commands in {spent:.0f} s ({cpu:.0f} s of CPU time), {len(failed)} failed")
    return len(failed)


def all_of(names: Sequence[str], folder: Path, workers: int, wide: int) -> dict[str, int]:
    """Exit codes of commands, run so many at a time, each forked from this process."""
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    for module in SHARED:
        import_module(module)
    import_module("torch").set_num_threads(1)
    waiting, under_way, codes = list(names), dict[Any, tuple[str, float, Any]](), dict[str, int]()
    fork = get_context("fork")
    while waiting or under_way:
        while waiting and len(under_way) < workers:
            process = fork.Process(target=run, args=(name := waiting.pop(0), folder))
            process.start()
            under_way[process.sentinel] = (name, time.perf_counter(), process)
        for sentinel in connection.wait(list(under_way)):
            name, began, process = under_way.pop(sentinel)
            process.join()
            codes[name] = process.exitcode or 0
            state = f"  failed ({codes[name]})" if codes[name] else ""
            say(f"{name:<{wide}}  {time.perf_counter() - began:6.1f} s{state}")
    return codes


def run(name: str, folder: Path) -> None:
    """One command, in a process of its own: its output to a file, its results beside it."""
    log = printed(folder, name)
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


def printed(folder: Path, name: str) -> Path:
    """The file with what a command prints."""
    return folder / name.replace(" ", "_").removesuffix(".toml") / "printed.txt"


app = command(main)

if __name__ == "__main__":
    start(app)
