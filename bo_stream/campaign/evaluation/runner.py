"""A run: trials are asked for, evaluated and told until there are as many as the budget says.

Whatever ends it, what was answered has been told, and what was not answered is still running in the
store: the same call goes on from there.
"""

from __future__ import annotations

import math
import os
from concurrent import futures
from typing import Any

import numpy as np
import pandas as pd

from bo_stream.campaign.ask_tell import AskTell
from bo_stream.campaign.evaluation.evaluation_result import Answer
from bo_stream.campaign.evaluation.evaluators import Crew, Objective, Serial
from bo_stream.campaign.evaluation.process_identity import abandoned, is_run, signature
from bo_stream.campaign.evaluation.process_pool import Workers
from bo_stream.campaign.evaluation.user_executor import Borrowed
from bo_stream.campaign.space import Pool
from bo_stream.campaign.trial_frames import asked_frame
from bo_stream.campaign.trials import Trial
from bo_stream.errors import InputError, StateError

__all__ = ["evaluate"]


def evaluate(
    campaign: AskTell,
    objective: Objective,
    budget: int,
    executor: futures.Executor | None,
    q: int | None,
    workers: int | None,
    timeout: float | None,
) -> None:
    """Run a campaign; the arguments are those of `bo_stream.Campaign.run`."""
    crew = _crew(objective, executor, q, workers, timeout)
    _whole("budget", budget)
    try:
        try:
            while _fill(campaign, crew, budget):
                with campaign.row.timed("evaluation_seconds"):
                    crew.wait()
                _book(campaign, crew)
        except BaseException:
            crew.gather()
            _book(campaign, crew)
            raise
    finally:
        crew.close()
        for callback in campaign.callbacks:
            callback.at_end(campaign)


def _crew(
    objective: Objective,
    executor: futures.Executor | None,
    q: int | None,
    workers: int | None,
    timeout: float | None,
) -> Crew:
    """Who evaluates."""
    if not callable(objective):
        raise InputError("an objective to be called", repr(objective), "Give a function.")
    if executor is not None and not isinstance(executor, futures.Executor):
        raise InputError(
            "an executor of concurrent.futures",
            type(executor).__name__,
            "Of a Dask client, give client.get_executor().",
        )
    if workers is not None and (executor is not None or q is not None):
        raise InputError(
            "workers=N by itself",
            "an executor or q beside it",
            "N processes keep N trials running; with an executor, q says how many.",
        )
    for name, value in (("q", q), ("workers", workers)):
        if value is not None:
            _whole(name, value)
    if timeout is not None and not (timeout > 0.0 and math.isfinite(timeout)):
        raise InputError("timeout, positive seconds", repr(timeout), "Leave it out for none.")
    if workers is not None:
        return Workers(objective, workers, timeout)
    if executor is not None:
        return Borrowed(objective, q or os.cpu_count() or 1, timeout, executor)
    if timeout is not None:
        raise InputError(
            "workers or an executor beside timeout",
            "neither",
            "Use workers=1: what hangs in this process could not be stopped.",
        )
    return Serial(objective, q or 1)


def _whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name}, a whole number from 1 on", repr(value), "Correct it.")


def _fill(campaign: AskTell, crew: Crew, budget: int) -> bool:
    """Give the crew as many trials as it takes; says whether anything is under way."""
    while trials := _next(campaign, crew, budget):
        for id, row in _rows(campaign, trials):
            crew.start(id, row)
    return bool(crew.running)


def _next(campaign: AskTell, crew: Crew, budget: int) -> list[Trial]:
    """The trials to be evaluated next.

    Those that a dead run left behind come first. Those that another run is evaluating count towards
    the budget as if they were finished.
    """
    ledger = campaign.ledger
    left = budget - len(ledger.of("told", "failed")) - len(crew.running)
    room = min(crew.room, left) if left > 0 else 0
    if room <= 0:
        return []
    others = [t for t in ledger.of("running") if t.id not in crew.running]
    found = [t for t in others if abandoned(t.by)]
    if found:
        return found[:room]
    new = min(room, crew.batch, left - sum(is_run(t.by) for t in others))
    if isinstance(campaign.space, Pool):
        new = min(new, campaign.free_places)
    if new <= 0:
        return []
    ids = campaign.ask(new, by=signature()).index
    return [campaign.ledger.trials[int(id)] for id in ids]


def _rows(campaign: AskTell, trials: list[Trial]) -> list[tuple[int, pd.Series[Any]]]:
    """Trials as the objective gets them, each named by its id."""
    frame = asked_frame(trials, campaign.space)
    if isinstance(campaign.space, Pool):
        frame = frame.astype(object)  # a place keeps its type beside the numbers
    return [(trial.id, frame.iloc[i].rename(trial.id)) for i, trial in enumerate(trials)]


def _book(campaign: AskTell, crew: Crew) -> None:
    """Tell what was answered; a crew forgets an answer only once it has been told."""
    for id, answer in list(crew.answered.items()):
        _tell(campaign, id, answer)
        del crew.answered[id]


def _tell(campaign: AskTell, id: int, answer: Answer) -> None:
    """Tell one answer, unless somebody else has told that trial."""

    def told() -> bool:
        return campaign.ledger.trials[id].status == "told"

    try:
        if answer.reason is not None:
            campaign.fail(id, answer.reason)
            return
        frame = pd.DataFrame({"y": [answer.y]}, pd.Index([id], name="trial"))
        if answer.yvar is not None:
            frame["yvar"] = answer.yvar
        campaign.tell(frame)
    except StateError:
        if not told():  # else somebody was faster
            raise
    except InputError as error:  # noise given now and then
        if told():
            raise
        campaign.fail(id, str(error))
