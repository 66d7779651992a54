"""One run of a sweep in its worker: results that come whole or not at all, errors in full.

A run writes into a folder of its own inside ``.sweep``; what it wrote moves to the results once it
has ended. The row it reported last lies beside that folder, for whoever shows how far the sweep is.
A worker may outlive the process that started it, and another one may then do the same run. It
removes the folder of the first, which therefore keeps its errors to itself.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from bo_stream.errors import InputError
from experiments.common.sweep_claims import finished

__all__ = ["Callback", "Run", "error_file", "forget", "rows", "work", "written"]

HIDDEN = ".sweep"
OFTEN = 0.2
"""Seconds between two notes of how far a run is, at least."""

Callback = Callable[[Mapping[str, Any]], None]
"""Is called with a row now and then."""


class Run(Protocol):
    """A piece of work that can be pickled.

    Attributes:
        stem: Of its files, unlike that of any other run of the sweep.
        steps: How much work it is.
    """

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        ...

    @property
    def steps(self) -> int:
        """How much work it is, in steps."""
        ...

    def execute(self, folder: Path, progress: Callback) -> None:
        """Do the work, and write ``<stem>.csv`` and ``<stem>.json`` into a folder.

        Args:
            folder: An empty one; further files in it are kept, too.
            progress: To be called with a row now and then, whose ``step`` says how far the run is;
                without one, the number of calls does.
        """
        ...


def work(folder: Path, run: Run) -> float:
    """Do a run; returns the seconds it took.

    Its traceback goes to ``<stem>.error.txt`` if it fails.

    Args:
        folder: Of the results.
        run: What to do.
    """
    import torch

    torch.set_num_threads(1)
    hidden = folder / HIDDEN
    hidden.mkdir(parents=True, exist_ok=True)
    noted = hidden / f"{run.stem}.json"
    for old in (noted, error_file(folder, run.stem)):
        old.unlink(missing_ok=True)
    for left in hidden.glob(f"{escape(run.stem)}~*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{run.stem}~", dir=hidden))
    began = time.perf_counter()
    try:
        run.execute(scratch, _Note(noted))
        _keep(scratch, folder, run.stem)
    except Exception:
        if scratch.is_dir():
            written(error_file(folder, run.stem), traceback.format_exc())
        raise
    finally:
        if scratch.is_dir():
            noted.unlink(missing_ok=True)
            shutil.rmtree(scratch, ignore_errors=True)
    return time.perf_counter() - began


def rows(folder: Path) -> dict[str, tuple[int, dict[str, Any]]]:
    """The step and the row that runs under way have reported last, by stem."""
    found = {}
    for path in (folder / HIDDEN).glob("*.json"):
        with suppress(OSError, ValueError):  # gone meanwhile
            note = json.loads(path.read_text(encoding="utf-8"))
            found[path.stem] = (int(note["step"]), note["row"])
    return found


def error_file(folder: Path, stem: str) -> Path:
    """The file that the traceback of a failed run goes to."""
    return folder / f"{stem}.error.txt"


def forget(folder: Path, stem: str) -> None:
    """Remove results of a run that has failed since."""
    for suffix in ("csv", "json"):
        (folder / f"{stem}.{suffix}").unlink(missing_ok=True)


def written(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _keep(scratch: Path, folder: Path, stem: str) -> None:
    """Move what a run wrote to the results, its table last."""
    if not finished(scratch, stem):
        there = ", ".join(sorted(path.name for path in scratch.iterdir())) or "no file"
        raise InputError(f"{stem}.csv and {stem}.json", there, "Write both in execute.")
    last = [f"{stem}.json", f"{stem}.csv"]
    for name in [*(p.name for p in scratch.iterdir() if p.name not in last), *last]:
        os.replace(scratch / name, folder / name)


class _Note:
    """Keeps the last row of a run where others can see it."""

    def __init__(self, path: Path) -> None:
        self.path, self.calls, self._noted = path, 0, -OFTEN

    def __call__(self, row: Mapping[str, Any]) -> None:
        self.calls += 1
        now = time.monotonic()
        if now - self._noted < OFTEN:
            return
        self._noted = now
        note = {"step": row.get("step", self.calls), "row": dict(row)}
        with suppress(OSError):  # a run does not fail for want of spectators
            written(self.path, json.dumps(note, default=str))
