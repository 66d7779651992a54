"""A sweep: many runs, done by any executor, that goes on where it was stopped.

A run is done when its result is there: ``<stem>.csv``, and ``<stem>.json`` with the fingerprint of
its configuration. Both are moved there whole, the JSON last. So a sweep that was killed at any
moment and is started again does what is left and ends with the same tables. A run that fails leaves
its traceback in ``<stem>.error.txt``, and the others go on. Several processes may sweep one folder;
now and then two of them then do the same run, and one of two equal results stays.
"""

import hashlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

import pandas as pd
import torch
from loky import ProcessPoolExecutor

from bo_stream.errors import InputError, StateError
from experiments.common.progress import Progress, say
from experiments.common.records import environment

Redo = Literal["nothing", "failed", "all"]
STALE: dict[Redo, str] = {"nothing": "", "failed": "error.txt", "all": "error.txt json"}
"""What is removed first, for each run."""
HIDDEN = ".sweep"


class Run(Protocol):
    """A piece of work that can be pickled; a dataclass whose fields are its configuration."""

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        ...

    def execute(self, folder: Path) -> None:
        """Do the work, and write ``<stem>.csv``, ``<stem>.json`` and what else is wanted."""
        ...


@dataclass(frozen=True)
class RunEnd:
    """How a run ended: its stem, the seconds it took, and why it failed, None if it is done."""

    stem: str
    seconds: float
    reason: str | None = None


def sweep(
    runs: Sequence[Run],
    folder: Path,
    *,
    workers: int = 2,
    executor: Executor | None = None,
    redo: Redo = "nothing",
    about: Mapping[str, Any] | None = None,
    minutes: float | None = None,
) -> list[RunEnd]:
    """Do all runs, and write ``sweep.csv`` with how each of them ended.

    Args:
        runs: What to do, in this order.
        folder: The results go here; shared, if the executor uses other machines.
        workers: Processes, with one torch thread each; 0: this process.
        executor: One of `concurrent.futures` instead, left open; of a Dask client,
            ``client.get_executor()``.
        redo: Which runs that have ended before are done again.
        about: Added to ``sweep.json``, beside versions, processor and commit.
        minutes: No run begins later than so many minutes after the sweep; those left are for
            another time.

    Returns:
        How each run ended, in their order, without those that did not begin.

    Raises:
        InputError: for runs that share a stem.
        StateError: for a folder with results of other configurations of these runs.
    """
    marks = {run.stem: _fingerprint(run) for run in runs}
    if len({stem.lower() for stem in marks}) < len(runs):  # some file systems ignore case
        stems = ", ".join(sorted(run.stem for run in runs)[:6])
        raise InputError("runs with stems of their own", stems, "Give them different labels.")
    (folder / HIDDEN).mkdir(parents=True, exist_ok=True)
    for stem in marks:
        for suffix in STALE[redo].split():
            (folder / f"{stem}.{suffix}").unlink(missing_ok=True)
    facts = {**(about or {}), "workers": workers, **_commit(), "environment": environment()}
    _write(folder / "sweep.json", json.dumps(facts, indent=2, default=str) + "\n")
    ended = {s: outcome for s, mark in marks.items() if (outcome := _ended(folder, s, mark))}
    if ended:
        say(f"{len(ended)} of {len(runs)} runs had ended before; see {folder}/.")
    left = [(folder.absolute(), run, marks[run.stem]) for run in runs if run.stem not in ended]
    if any((folder / HIDDEN).iterdir()):  # another process may be at work: rarely do the same
        random.Random(os.getpid()).shuffle(left)
    try:
        with Progress(len(left), "runs") as progress:
            until = math.inf if minutes is None else time.monotonic() + 60.0 * minutes
            for outcome in _outcomes(left, workers, executor, until):
                ended[outcome.stem] = outcome
                failed = f" failed: {outcome.reason}" if outcome.reason else ""
                progress(f"{outcome.stem}{failed}", urgent=bool(failed))
    finally:
        outcomes = [ended[stem] for stem in marks if stem in ended]
        lines = [{**asdict(o), "state": "failed" if o.reason else "done"} for o in outcomes]
        frame = pd.DataFrame(lines, columns=["stem", "state", "seconds", "reason"])
        _write(folder / "sweep.csv", frame.to_csv(index=False))
    shutil.rmtree(folder / HIDDEN, ignore_errors=True)
    return outcomes


def finished(runs: Sequence[Run], folder: Path) -> list[tuple[Run, pd.DataFrame]]:
    """Those of the runs that are done, now or before, each with its table."""
    ends = [(run, _ended(folder, run.stem, _fingerprint(run))) for run in runs]
    done = [run for run, end in ends if end is not None and end.reason is None]
    return [(run, table(folder, run.stem)) for run in done]


def table(folder: Path, stem: str) -> pd.DataFrame:
    """The table of a run."""
    return pd.read_csv(folder / f"{stem}.csv")


Work = tuple[Path, Run, str]
"""The folder of the results, a run, and the fingerprint of its configuration."""


def _outcomes(
    work: Sequence[Work], workers: int, executor: Executor | None, until: float
) -> Iterator[RunEnd]:
    """How runs end that begin before a time of the clock, in the order in which they end.

    Every process is an executor of its own: one that dies fails its own run and no other.
    """
    if executor is None and not workers:
        yield from (_done(*each) for each in work if time.monotonic() < until)
        return
    left, idle, busy = deque(work), list[Any](), dict[Future[RunEnd], tuple[Any, Work]]()
    try:
        while left or busy:
            if time.monotonic() >= until:
                left.clear()
            while left and (executor or len(busy) < workers):
                pool = executor or (idle or [ProcessPoolExecutor(1, initializer=_begin)]).pop()
                each = left.popleft()
                busy[pool.submit(_done, *each)] = pool, each
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                pool, each = busy.pop(future)
                try:
                    outcome = future.result()
                    idle.append(pool)
                except BrokenExecutor as error:
                    outcome = _failed(*each, 0.0, f"its process died: {error}")
                yield outcome
    finally:
        for pool in (*idle, *(pool for pool, _ in busy.values())):
            if pool is not executor:
                pool.shutdown(kill_workers=True)


def _begin() -> None:
    """Leave Ctrl-C to the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _done(folder: Path, run: Run, mark: str) -> RunEnd:
    """Do a run, unless another process has done it by now."""
    if outcome := _ended(folder, run.stem, mark):
        return outcome
    torch.set_num_threads(1)
    began, scratch = time.perf_counter(), tempfile.mkdtemp(prefix=run.stem, dir=folder / HIDDEN)
    try:
        run.execute(Path(scratch))
        seconds, result = time.perf_counter() - began, Path(scratch, f"{run.stem}.json")
        about = {"environment": environment(), **_commit(), **json.loads(result.read_text())}
        about["sweep"] = {"fingerprint": mark, "seconds": seconds}
        result.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        for path in sorted(Path(scratch).iterdir(), key=lambda path: path == result):
            os.replace(path, folder / path.name)
    except Exception as error:
        why, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
        by_another = _ended(folder, run.stem, mark)
        return by_another or _failed(folder, run, mark, time.perf_counter() - began, why, trace)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    (folder / f"{run.stem}.error.txt").unlink(missing_ok=True)
    return RunEnd(run.stem, seconds)


def _failed(
    folder: Path, run: Run, mark: str, seconds: float, reason: str, trace: str = ""
) -> RunEnd:
    """Record that a run failed."""
    outcome = RunEnd(run.stem, seconds, " ".join(reason.split()))
    head = json.dumps({"fingerprint": mark, **asdict(outcome)})
    _write(folder / f"{run.stem}.error.txt", f"{head}\n{trace}")
    return outcome


def _ended(folder: Path, stem: str, mark: str) -> RunEnd | None:
    """How a run ended, if it has.

    Raises:
        StateError: if it was done under another configuration.
    """
    result, error = folder / f"{stem}.json", folder / f"{stem}.error.txt"
    if result.is_file() and (folder / f"{stem}.csv").is_file():
        said = json.loads(result.read_text(encoding="utf-8")).get("sweep", {})
        if said.get("fingerprint") == mark:
            return RunEnd(stem, said["seconds"])
        raise StateError(
            f"a folder without results of other configurations of {stem}",
            f"{folder}, where they are",
            "Name another folder (--out), or do all runs again (--fresh).",
        )
    head = json.loads(error.read_text(encoding="utf-8").split("\n")[0]) if error.is_file() else {}
    known = head.pop("fingerprint", None) == mark
    return RunEnd(**head) if known else None


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _fingerprint(run: Any) -> str:
    """A hash of a run's configuration."""
    plain = json.loads(json.dumps(asdict(run), default=str))  # sorted once every key is a string
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@cache
def _commit() -> dict[str, Any]:
    """The git commit of this code, and whether the files of it were clean; None if unknown."""
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        ran = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:
        return {"commit": None, "clean": None}
    commit, _, dirty = ran.stdout.strip().partition("-")
    return {"commit": commit or None, "clean": not dirty if commit else None}
