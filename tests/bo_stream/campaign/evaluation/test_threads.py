"""Campaigns whose objective runs in threads."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pandas as pd
import pytest

from bo_stream import Callback
from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.errors import StateError
from tests.bo_stream.campaign.runs import Calls, bowl, box, told_once


class Together:
    """An objective that returns once enough of it run side by side; says how many there were."""

    def __init__(self, enough: int) -> None:
        self.enough, self.now, self.most = enough, 0, 0
        self.changed = threading.Condition()

    def __call__(self, row: Any) -> float:
        with self.changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.most >= self.enough, timeout=30.0)
        time.sleep(0.01)
        with self.changed:
            self.now -= 1
        return bowl(row)


def test_an_executor_keeps_q_trials_running() -> None:
    calls, store = Calls(), MemoryStore()
    campaign = box(store, callbacks=[calls])
    objective = Together(4)
    with ThreadPoolExecutor(4) as executor:
        trials = campaign.run(objective, 13, executor, q=4)
        assert executor.submit(int, 3).result() == 3  # left open
    assert trials["status"].tolist() == ["told"] * 13
    assert objective.most == 4 and calls.asked == [1] * 13
    assert told_once(store)


def test_as_one_evaluation_returns_the_next_is_asked_with_the_rest_pending() -> None:
    gate = threading.Semaphore(0)

    class OneAtATime(Calls):
        def after_ask(self, campaign: Any, frame: pd.DataFrame) -> None:
            super().after_ask(campaign, frame)
            if len(self.asked) >= 4:
                gate.release(4 if len(self.asked) == 13 else 1)

    calls = OneAtATime()
    with ThreadPoolExecutor(4) as executor:
        box(callbacks=[calls]).run(
            lambda row: gate.acquire(timeout=30.0) * bowl(row), 13, executor, q=4
        )
    assert calls.pending == [0, 1, 2, *[3] * 10]


def test_an_executor_without_q_takes_as_many_as_there_are_processors() -> None:
    calls, processors = Calls(), os.cpu_count() or 1
    with ThreadPoolExecutor(1) as executor:
        executor.submit(time.sleep, 0.5)
        box(callbacks=[calls]).run(bowl, processors + 3, executor)
    assert calls.pending[:processors] == list(range(processors))
    assert max(calls.pending) == processors - 1


def test_errors_in_threads_fail_their_trials() -> None:
    with ThreadPoolExecutor(2) as executor:
        trials = box().run(lambda row: 1 / (row.name != 1), 3, executor, q=2)
    assert trials["reason"][1] == "ZeroDivisionError: division by zero"
    assert trials["status"].tolist() == ["told", "failed", "told"]


def test_a_thread_that_hangs_fails_its_trial_and_occupies_its_worker() -> None:
    over, calls = threading.Event(), Calls()
    objective = _hangs({1}, over)
    with ThreadPoolExecutor(2) as executor:
        try:
            slow = lambda row: time.sleep(0.35) or objective(row)  # noqa: E731
            trials = box(callbacks=[calls]).run(slow, 6, executor, q=2, timeout=1.2)
        finally:
            over.set()
    assert trials["reason"][1] == "no result within 1.2 s"
    assert calls.pending[-1] == 0
    assert trials["status"].value_counts().to_dict() == {"told": 5, "failed": 1}


def test_a_run_ends_when_all_threads_hang() -> None:
    over = threading.Event()
    campaign = box()
    with ThreadPoolExecutor(2) as executor:
        try:
            with pytest.raises(StateError, match="2 evaluations that hang"):
                campaign.run(_hangs({1, 2}, over), 9, executor, q=2, timeout=2.0)
        finally:
            over.set()
    assert campaign.trials()["status"].tolist() == ["told", "failed", "failed"]


def test_a_queued_trial_is_not_late() -> None:
    def objective(row: Any) -> float:
        time.sleep(0.5)
        return bowl(row)

    with ThreadPoolExecutor(1) as executor:
        trials = box().run(objective, 4, executor, q=4, timeout=1.9)
    assert trials["status"].tolist() == ["told"] * 4


def test_a_broken_executor_ends_the_run_and_leaves_its_trials_running() -> None:
    class Broken(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            future = super().submit(fn, *args, **kwargs)
            if args[0].name == 2:
                future.cancel()
            return future

    campaign = box()
    with Broken(1) as executor, pytest.raises(StateError, match="trial 2 cancelled"):
        campaign.run(lambda row: time.sleep(0.2) or bowl(row), 9, executor, q=3)
    assert "running" in campaign.trials()["status"].tolist()
    assert campaign.run(bowl, 4)["status"].tolist() == ["told"] * 4


def test_an_evaluation_that_returns_while_others_are_looked_at_is_not_lost() -> None:
    class Sudden(Future):  # type: ignore[type-arg]
        looks = 0

        def done(self) -> bool:
            self.looks += 1
            return self.looks > 1 and super().done()

    class Executing(Executor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            future = Sudden()
            future.set_result(fn(*args))
            return future

    assert box().run(bowl, 3, Executing(), q=1)["status"].tolist() == ["told"] * 3


def _hangs(ids: set[int], over: threading.Event) -> Callable[[Any], float]:
    def objective(row: Any) -> float:
        if row.name in ids:
            over.wait(60.0)
        return bowl(row)

    return objective


def test_an_interruption_keeps_what_was_answered_meanwhile() -> None:
    with ThreadPoolExecutor(1) as executor:

        class Interrupted(Callback):
            def after_ask(self, campaign: Any, frame: pd.DataFrame) -> None:
                if frame.index[0] == 1:
                    executor.submit(int).result()  # trial 0 has returned by then
                    raise KeyboardInterrupt

        campaign = box(callbacks=[Interrupted()])
        with pytest.raises(KeyboardInterrupt):
            campaign.run(bowl, 3, executor, q=2)
    assert campaign.trials()["status"].tolist() == ["told", "running"]
