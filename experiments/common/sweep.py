"""A sweep: many runs, done by any executor, that can be continued after any crash.

Runs are claimed in a store in the folder of the results (``sweep.db``), so any number of processes
may sweep one folder. A run is done once its files are there and the store says so: killed anywhere
and started again, a sweep does what is left and ends with the same tables. A run that fails leaves
its traceback in ``<stem>.error.txt``, and the others go on.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.campaign.evaluation.evaluators import Evaluator, SerialEvaluator
from bo_stream.campaign.evaluation.process_pool import ProcessPool
from bo_stream.campaign.evaluation.user_executor import UserExecutor
from bo_stream.campaign.records import environment
from bo_stream.errors import InputError
from experiments.common.progress import say
from experiments.common.provenance import provenance
from experiments.common.sweep_claims import Claims, Outcome, Redo
from experiments.common.sweep_display import Display, Show, watching
from experiments.common.sweep_work import Callback, Run, error_file, forget, rows, work, written

__all__ = ["Callback", "Outcome", "Redo", "Run", "sweep", "table"]

GLANCE = 0.3
"""Seconds between two looks at the progress of runs."""
WAIT = 0.5
"""Seconds between two looks at what other processes have done, while this one has nothing to do."""


def sweep(
    runs: Sequence[Run],
    folder: Path,
    *,
    workers: int = 2,
    executor: Executor | None = None,
    show: Show | None = None,
    redo: Redo = "nothing",
    about: Mapping[str, Any] | None = None,
) -> list[Outcome]:
    """Do all runs in their order, and write ``sweep.csv`` with how each of them ended.

    Runs that another process is doing are waited for, and taken over if it dies. A sweep is refused
    if a run's configuration has changed since it was done; a run that failed under another
    configuration is run again.

    Args:
        runs: What to do.
        folder: The results go here; made if it does not exist. If an executor uses other machines,
            they must share it.
        workers: Processes, with one torch thread each; 0: this process, one run after the other.
            With an executor, how many runs it does at a time.
        executor: One of `concurrent.futures`, left open; of a Dask client,
            ``client.get_executor()``.
        show: Shows the progress; lines or bars on standard output by default.
        redo: Which runs that have ended before are run again.
        about: Added to ``sweep.json``, beside versions, processor and commit.

    Returns:
        How each run ended, in their order.

    Raises:
        InputError: for runs that share a stem.
        StateError: for a folder with results of other configurations of these runs.
    """
    _check_stems([run.stem for run in runs])
    folder.mkdir(parents=True, exist_ok=True)
    claims = Claims(folder, {run.stem: _fingerprint(run) for run in runs}, redo)
    facts = {**(about or {}), "workers": workers, **provenance(), "environment": environment()}
    written(folder / "sweep.json", json.dumps(facts, indent=2, default=str) + "\n")
    left = claims.pending()
    if len(left) < len(runs):
        say(f"{len(runs) - len(left)} of {len(runs)} runs had ended before; see {folder}/.")
    if others := claims.others():
        shown_first = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        say(
            f"{folder}/ also has {len(others)} runs that are not part of this sweep"
            f" ({shown_first}); bo-stream report shows them, too."
        )
    shown = (show or watching())([run for run in runs if run.stem in left])
    crew = _crew(partial(work, folder.absolute()), workers, executor)
    course = _Course(claims, crew, dict(enumerate(runs)), shown, set(claims.outcomes()))
    try:
        with _Glances(folder, shown), warnings.catch_warnings():
            # loky's advice on workers that grow: it replaces them
            warnings.filterwarnings(
                "ignore", message="A worker was restarted", category=UserWarning
            )
            course.run()
    finally:
        crew.close()
        shown.close()
        known = claims.outcomes()
        outcomes = [known[run.stem] for run in runs if run.stem in known]
        written(folder / "sweep.csv", pd.DataFrame(map(asdict, outcomes)).to_csv(index=False))
    return outcomes


def table(folder: Path, stem: str) -> pd.DataFrame:
    """The table of a run."""
    return pd.read_csv(folder / f"{stem}.csv")


class _Course:
    """The course of a sweep in this process."""

    def __init__(
        self,
        claims: Claims,
        crew: Evaluator,
        runs: Mapping[int, Run],
        shown: Display,
        known: set[str],
    ) -> None:
        self.claims, self.crew, self.runs, self.shown = claims, crew, runs, shown
        self._known = known
        self._ids = {run.stem: id for id, run in runs.items()}
        self._began: dict[int, float] = {}
        self._waiting = False

    def run(self) -> None:
        """Take part until every run has an outcome."""
        try:
            while self._started():
                if self.crew.running:
                    self.crew.wait()
                    self._book()
                else:
                    self._wait()
        except BaseException:
            self.crew.collect()
            self._book()
            raise

    def _started(self) -> bool:
        """Claim as many runs as there is room for; returns whether any run has no outcome yet."""
        while self.crew.capacity > 0:
            stem = self.claims.claim({self.runs[id].stem for id in self.crew.running})
            if stem is None:
                break
            id, run = self._ids[stem], self.runs[self._ids[stem]]
            self._began[id] = time.monotonic()
            row: Any = run
            self.crew.start(id, row)
        self._show()
        return bool(self.crew.running or self.claims.pending())

    def _wait(self) -> None:
        """Wait for other processes, and say so once if some are on other machines."""
        names = self.claims.elsewhere()
        if names and not self._waiting:
            say(
                f"Waiting for {', '.join(names[:5])}, claimed on another machine. If nothing runs"
                " there any more, stop this command and start it again with --retry."
            )
        self._waiting = True
        time.sleep(WAIT)

    def _book(self) -> None:
        """Record what was answered; a crew forgets an answer only after that."""
        for id, answer in list(self.crew.results.items()):
            stem, folder = self.runs[id].stem, self.claims.folder
            if answer.reason is None:
                self.claims.settle(Outcome(stem, "done", answer.y))
            else:
                reason = " ".join(answer.reason.split())
                forget(folder, stem)
                if not error_file(folder, stem).exists():  # its worker died
                    written(error_file(folder, stem), f"{answer.reason}\n")
                seconds = time.monotonic() - self._began[id]
                self.claims.settle(Outcome(stem, "failed", seconds, reason))
            del self.crew.results[id]
        self._show()

    def _show(self) -> None:
        """Show new outcomes, including those of other processes."""
        for stem, outcome in self.claims.outcomes().items():
            if stem not in self._known:
                self._known.add(stem)
                self.shown.ended(outcome)


class _Glances(threading.Thread):
    """Regularly shows the progress of the runs in a folder."""

    def __init__(self, folder: Path, shown: Display) -> None:
        super().__init__(daemon=True)
        self.folder, self.shown, self._over = folder, shown, threading.Event()

    def run(self) -> None:
        while not self._over.wait(GLANCE):
            for stem, (step, row) in rows(self.folder).items():
                self.shown.row(stem, step, row)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join()


def _crew(objective: partial[float], workers: int, executor: Executor | None) -> Evaluator:
    if executor is not None:
        return UserExecutor(objective, max(workers, 1), None, executor)
    return ProcessPool(objective, workers, None) if workers else SerialEvaluator(objective, 1)


def _fingerprint(run: Run) -> str:
    """A hash of a run's configuration."""
    fields = asdict(run) if is_dataclass(run) and not isinstance(run, type) else vars(run)
    plain = json.loads(json.dumps(fields, default=str))  # sorted once every key is a string
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _check_stems(stems: Sequence[str]) -> None:
    lower = [stem.lower() for stem in stems]  # some file systems ignore case
    twice = sorted({stem for stem in stems if lower.count(stem.lower()) > 1})
    if twice:
        raise InputError(
            "runs with different names of files",
            f"several runs named {', '.join(twice[:5])}",
            "Give the configurations different labels.",
        )
