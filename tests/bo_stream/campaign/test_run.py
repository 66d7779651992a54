"""Campaigns that evaluate by themselves: in this process, in local ones and on a cluster."""

import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from bo_stream.campaign import Box, Callback, Campaign, Pool
from bo_stream.campaign.answers import Answer
from bo_stream.campaign.ledger import Event
from bo_stream.campaign.owners import abandoned, is_run, signature
from bo_stream.campaign.proposals import Optimiser
from bo_stream.campaign.store import MemoryStore
from bo_stream.errors import InputError, StateError

CHEAP = Optimiser(2, 16)


class Calls(Callback):
    """What was asked, told and ended."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.pending: list[int] = []  # when something was asked for
        self.told: list[int] = []
        self.ends = 0

    def after_ask(self, campaign: Any, frame: pd.DataFrame) -> None:
        self.asked.append(len(frame))
        self.pending.append(len(campaign.ledger.of("running")) - len(frame))

    def after_tell(self, campaign: Any, frame: pd.DataFrame) -> None:
        self.told += frame.index.tolist()

    def at_end(self, campaign: Any) -> None:
        self.ends += 1


def box(store: MemoryStore | None = None, **options: Any) -> Campaign:
    settings: dict[str, Any] = {"surrogate": "exact", "seed": 0, "optimiser": CHEAP}
    return Campaign(Box({"x": (0.0, 4.0)}), store=store, **{**settings, **options})


def bowl(row: "pd.Series[Any]") -> float:
    return -((row["x"] - 3.0) ** 2)


def told_once(store: MemoryStore) -> bool:
    events: list[Event] = store.since("campaign", 0)
    ids = Counter(id for e in events if e["kind"] == "told" for id, _, _ in e["values"])
    return set(ids.values()) <= {1}


# -- in this process -----------------------------------------------------------------------------


def test_serial_run_ends_at_its_budget_and_finds_the_optimum() -> None:
    calls = Calls()
    campaign = box(callbacks=[calls])
    trials = campaign.run(bowl, 12)
    assert trials["status"].tolist() == ["told"] * 12
    assert np.allclose(trials["y"], -((trials["x"] - 3.0) ** 2))
    assert abs(campaign.best()["x"] - 3.0) < 0.1
    assert calls.asked == [1] * 12 and calls.told == list(range(12)) and calls.ends == 1
    assert len(campaign.run(bowl, 12)) == 12  # it is done
    assert len(campaign.run(bowl, 14)) == 14
    same = box()
    same.run(bowl, 5)
    pd.testing.assert_frame_equal(same.run(bowl, 14), campaign.trials())


def test_q_says_how_many_are_asked_for_at_a_time() -> None:
    calls = Calls()
    assert len(box(callbacks=[calls]).run(bowl, 7, q=3)) == 7
    assert calls.asked == [3, 3, 1]


def test_an_objective_gets_its_inputs_by_name_and_the_trial_as_its_name() -> None:
    campaign = Campaign(Box({"a": (0.0, 1.0), "b": (2.0, 3.0)}), "exact", optimiser=CHEAP)
    seen = []

    def objective(row: Any) -> float:
        seen.append(row.name)
        return (lambda a, b: 10.0 * a + b)(**row)

    trials = campaign.run(objective, 3)
    assert seen == [0, 1, 2] and all(type(id) is int for id in seen)
    assert np.allclose(trials["y"], 10.0 * trials["a"] + trials["b"])


def test_a_pool_gives_places_of_their_own_type_and_ends_when_used_up() -> None:
    table = pd.DataFrame({"east": np.linspace(0.0, 1.0, 5)}, index=[7, 8, 9, 10, 11])
    campaign = Campaign(Pool(table), "exact", goal="learn", initial=2)
    places: list[Any] = []

    def objective(row: Any) -> float:
        places.append(row["place"])
        return float(table["east"][row["place"]] == row["east"])

    trials = campaign.run(objective, 30, q=2)
    assert sorted(places) == [7, 8, 9, 10, 11] and all(isinstance(p, int) for p in places)
    assert trials["y"].tolist() == [1.0] * 5
    assert campaign.free_places == 0


def test_noise_variances_come_beside_outcomes() -> None:
    trials = box().run(lambda row: (bowl(row), 0.01), 6)
    assert trials["yvar"].tolist() == [0.01] * 6


def test_noise_given_now_and_then_fails_the_trials_that_do_not_fit() -> None:
    trials = box().run(lambda row: (1.0, 0.1) if row.name != 1 else 2.0, 3)
    assert trials["status"].tolist() == ["told", "failed", "told"]
    assert "yvar" in trials["reason"][1]


def test_what_gives_no_value_fails_with_its_reason() -> None:
    def objective(row: Any) -> Any:
        if row.name == 1:
            raise ValueError("the oven is cold")
        return {2: math.nan, 3: "3.5", 4: None, 5: -math.inf}.get(row.name, bowl(row))

    campaign = box()
    trials = campaign.run(objective, 8)
    assert trials["status"].tolist() == ["told"] + ["failed"] * 5 + ["told"] * 2
    assert trials["reason"][1] == "ValueError: the oven is cold"
    assert trials["reason"][2] == "the objective returned nan"
    assert "no number but str '3.5'" in trials["reason"][3]
    assert "no number but NoneType None" in trials["reason"][4]
    assert trials["reason"][5] == "the objective returned -inf"


@pytest.mark.parametrize(
    "value",
    [
        2,
        2.0,
        np.float32(2.0),
        np.array(2.0),
        np.array([[2.0]]),
        torch.tensor([2.0], requires_grad=True),
        pd.Series([2.0], index=["y"]),
        [2.0],
    ],
    ids=lambda value: type(value).__name__,
)
def test_one_number_in_any_wrapping_is_an_outcome(value: Any) -> None:
    assert Answer.read(value) == Answer(2.0)
    assert Answer.read((value, value)) == Answer(2.0, 2.0)


@pytest.mark.parametrize(
    "value", [True, "2", None, [], [1.0, 2.0, 3.0], np.ones(2), {}, 1j, (1.0, 0.0), (1.0, math.nan)]
)
def test_anything_else_is_a_reason(value: Any) -> None:
    assert "the objective returned" in (Answer.read(value).reason or "")


def test_seconds_of_evaluating_are_counted() -> None:
    campaign = box()
    campaign.run(lambda row: time.sleep(0.05) or bowl(row), 2)
    assert 0.1 <= campaign.row["evaluation_seconds"] < 5.0


def test_an_interruption_leaves_the_trial_running_and_the_next_run_takes_it_first() -> None:
    calls = Calls()
    campaign = box(callbacks=[calls])
    seen = []

    def objective(row: Any) -> float:
        seen.append(row.name)
        if seen == [0, 1, 2]:
            raise KeyboardInterrupt
        return bowl(row)

    with pytest.raises(KeyboardInterrupt):
        campaign.run(objective, 6, q=4)
    assert campaign.trials()["status"].tolist() == ["told", "told", "running", "running"]
    assert calls.ends == 1
    assert campaign.run(objective, 6)["status"].tolist() == ["told"] * 6
    assert seen == [0, 1, 2, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget"),
        ({"budget": 2.5}, "budget"),
        ({"q": 0}, "q, a whole number"),
        ({"workers": 0}, "workers, a whole number"),
        ({"workers": True}, "workers, a whole number"),
        ({"workers": 2, "q": 2}, "by itself"),
        ({"timeout": 1.0}, "workers=1"),
        ({"workers": 2, "timeout": -1.0}, "positive seconds"),
        ({"executor": 4}, "get_executor"),
        ({"objective": 4}, "to be called"),
    ],
)
def test_arguments_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    campaign = box()
    with pytest.raises(InputError, match=message):
        campaign.run(**{"objective": bowl, "budget": 3, **options})
    assert not len(campaign.trials())


# -- runs that died ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dead() -> str:
    """The signature of a process that is gone."""
    code = "from bo_stream.campaign.owners import signature; print(signature())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def living() -> Iterator[str]:
    """The signature of another process that is alive."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    stat = Path(f"/proc/{process.pid}/stat")
    started = stat.read_text().rpartition(")")[2].split()[19] if stat.exists() else ""
    yield ":".join([*signature().split(":")[:2], str(process.pid), started])
    process.kill()
    process.wait()


def test_trials_of_a_dead_run_are_evaluated_first_and_others_left_alone(
    dead: str, living: str
) -> None:
    campaign = box()
    elsewhere = "run:another-machine:1:1"
    for by in (None, dead, "the night shift", living, elsewhere, dead):
        campaign.ask(by=by)
    seen = []

    def objective(row: Any) -> float:
        seen.append(row.name)
        return bowl(row)

    trials = campaign.run(objective, 7)
    assert seen == [1, 5, 6, 7, 8]  # two in the budget belong to other runs
    running = trials.index[trials["status"] == "running"].tolist()
    assert running == [0, 2, 3, 4]


def test_who_is_gone(dead: str, living: str) -> None:
    head, machine, pid, started = living.split(":")
    assert is_run(dead) and is_run(living) and not is_run(None) and not is_run("by hand")
    assert abandoned(dead) and abandoned(signature())
    assert not abandoned(living) and not abandoned(None) and not abandoned("run:x:1:1")
    if started:  # the number is used again by a process that was started later
        assert abandoned(f"{head}:{machine}:{pid}:{int(started) - 1}")
        zombie = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        before = Path(f"/proc/{zombie.pid}/stat").read_text().rpartition(")")[2].split()[19]
        zombie.communicate()  # ended and gone
        assert abandoned(f"{head}:{machine}:{zombie.pid}:{before}")


def test_what_somebody_else_told_meanwhile_is_not_told_again() -> None:
    store = MemoryStore()
    campaign = box(store)
    other = Campaign.resume(store)

    def objective(row: Any) -> float:
        if row.name == 1:
            other.tell(pd.DataFrame({"y": [-9.0]}, pd.Index([1], name="trial")))
        return bowl(row)

    trials = campaign.run(objective, 4)
    assert trials["status"].tolist() == ["told"] * 4 and trials["y"][1] == -9.0
    assert told_once(store)


# -- threads -------------------------------------------------------------------------------------


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
            slow = lambda row: time.sleep(0.2) or objective(row)  # noqa: E731
            trials = box(callbacks=[calls]).run(slow, 6, executor, q=2, timeout=0.7)
        finally:
            over.set()
    assert trials["reason"][1] == "no answer within 0.7 s"
    assert calls.pending[-1] == 0
    assert trials["status"].value_counts().to_dict() == {"told": 5, "failed": 1}


def test_a_run_ends_when_all_threads_hang() -> None:
    over = threading.Event()
    campaign = box()
    with ThreadPoolExecutor(2) as executor:
        try:
            with pytest.raises(StateError, match="2 evaluations that hang"):
                campaign.run(_hangs({1, 2}, over), 9, executor, q=2, timeout=0.3)
        finally:
            over.set()
    assert campaign.trials()["status"].tolist() == ["told", "failed", "failed"]


def test_a_queued_trial_is_not_late() -> None:
    def objective(row: Any) -> float:
        time.sleep(0.3)
        return bowl(row)

    with ThreadPoolExecutor(1) as executor:
        trials = box().run(objective, 4, executor, q=4, timeout=0.7)
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


# -- local processes -----------------------------------------------------------------------------


def test_workers_crash_hang_and_return_nonsense_and_the_run_goes_on(tmp_path: Path) -> None:
    loky = pytest.importorskip("loky")
    assert loky
    folder = str(tmp_path)

    def objective(row: Any) -> Any:
        import os
        import time
        from pathlib import Path

        calls = Path(folder, f"{row.name}")
        attempt = len(calls.read_text()) if calls.exists() else 0
        calls.write_text("x" * (attempt + 1))
        if row.name == 1 or (row.name == 2 and attempt == 0):
            os._exit(3)
        if row.name == 3:
            time.sleep(60.0)
        if row.name == 4:
            raise LookupError("no such oven")
        if row.name == 5:
            return float("nan")
        if row.name == 6:
            raise SystemExit("enough")
        if row.name == 7:
            os.kill(os.getpid(), 2)  # Ctrl-C is not for workers
        return -((row["x"] - 3.0) ** 2)

    store, calls = MemoryStore(), Calls()
    trials = box(store, callbacks=[calls]).run(objective, 10, workers=2, timeout=2.0)
    failed = trials["reason"].dropna().to_dict()
    assert sorted(failed) == [1, 3, 4, 5, 6]
    assert "its worker died 2 times (TerminatedWorkerError" in failed[1]
    assert failed[3] == "no answer within 2 s; its worker was stopped"
    assert failed[4] == "LookupError: no such oven"
    assert failed[5] == "the objective returned nan"
    assert failed[6] == "SystemExit: enough"
    assert trials["status"][2] == "told"
    tries = {int(p.name): len(p.read_text()) for p in tmp_path.iterdir()}
    assert tries == {**dict.fromkeys(range(10), 1), 1: 2, 2: 2}
    assert told_once(store) and sorted(calls.told) == list(range(10)) and calls.ends == 1


def test_workers_run_side_by_side_without_torch(tmp_path: Path) -> None:
    pytest.importorskip("loky")
    folder = str(tmp_path)

    def objective(row: Any) -> float:
        import sys
        import time
        from pathlib import Path

        here = Path(folder, str(row.name))
        here.touch()
        until = time.monotonic() + 20.0
        while len(list(Path(folder).iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.01)  # until another one runs as well
        return float(len(list(Path(folder).iterdir()))) + 100.0 * ("torch" in sys.modules)

    trials = box().run(objective, 4, workers=2)
    assert trials["y"].between(2.0, 4.0).all()


def test_an_interruption_stops_the_workers_and_keeps_what_was_answered(tmp_path: Path) -> None:
    pytest.importorskip("loky")
    folder = str(tmp_path)

    def objective(row: Any) -> float:
        import os
        import time
        from pathlib import Path

        if row.name == 0:
            return 1.0
        Path(folder, str(row.name)).write_text(str(os.getpid()))
        time.sleep(60.0)
        return 2.0

    def interrupt() -> None:
        until = time.monotonic() + 60.0
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    calls = Calls()
    campaign = box(callbacks=[calls])
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        campaign.run(objective, 5, workers=2)
    assert campaign.trials()["status"].tolist() == ["told", "running", "running"]
    assert calls.ends == 1
    for file in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)
    assert campaign.run(bowl, 3)["status"].tolist() == ["told"] * 3


def test_an_objective_that_cannot_be_sent_is_refused() -> None:
    pytest.importorskip("loky")
    lock = threading.Lock()
    campaign = box()
    with pytest.raises(InputError, match="sent to another process"):
        campaign.run(lambda row: float(lock.locked()), 3, workers=1)
    assert not len(campaign.trials())


def test_a_missing_loky_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "loky", None)
    with pytest.raises(ImportError, match=r"pip install 'bo_stream\[workers\]'"):
        box().run(bowl, 3, workers=2)


def test_workers_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("loky")
    code = f"""
import os, time
from bo_stream import Box, Campaign
def objective(row):
    import os, time
    open({str(tmp_path / "pid")!r} + "-", "w").write(str(os.getpid()))
    os.rename({str(tmp_path / "pid")!r} + "-", {str(tmp_path / "pid")!r})
    time.sleep(60)
Campaign(Box({{"x": (0.0, 1.0)}}), "exact").run(objective, 1, workers=1)
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    _until(lambda: (tmp_path / "pid").exists())
    worker = int((tmp_path / "pid").read_text())
    process.kill()
    process.wait()
    _until(lambda: not _runs(worker))


def _until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 60.0
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


# -- a cluster -----------------------------------------------------------------------------------


@contextmanager
def dask(workers: int, folder: Path) -> Iterator[Any]:
    """The client of a cluster of processes."""
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        local_directory=str(folder),
        silence_logs=logging.CRITICAL,
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with dask(2, tmp_path_factory.mktemp("dask")) as client:
        yield client


class Killer:
    """Kills workers at random, each time after the one before was replaced."""

    def __init__(self, client: Any, workers: int, most: int) -> None:
        self.client, self.workers, self.most = client, workers, most
        self.killed: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._kill)

    def _kill(self) -> None:
        random = np.random.default_rng(0)
        while len(self.killed) < self.most and not self._over.wait(0.5 * random.random()):
            pids = list(self.client.run(os.getpid, on_error="ignore").values())
            if len(pids) == self.workers:
                self.killed.append(int(random.choice(pids)))
                os.kill(self.killed[-1], signal.SIGKILL)

    def __enter__(self) -> "Killer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _survives(client: Any, workers: int, budget: int, deaths: int) -> None:
    def objective(row: Any) -> float:
        import time

        time.sleep(0.1)
        return -((row["x"] - 3.0) ** 2)

    store, calls = MemoryStore(), Calls()
    campaign = box(store, surrogate={"name": "wiski", "grid_size": 12}, callbacks=[calls])
    with Killer(client, workers, deaths) as killer:
        trials = campaign.run(objective, budget, client.get_executor(), q=workers)
    assert killer.killed
    assert trials["status"].tolist() == ["told"] * budget
    assert np.allclose(trials["y"], -((trials["x"] - 3.0) ** 2))
    assert told_once(store) and sorted(calls.told) == list(range(budget))


def test_a_dask_worker_killed_at_random_loses_nothing(client: Any) -> None:
    _survives(client, workers=2, budget=12, deaths=1)


@pytest.mark.slow
def test_dask_workers_killed_at_random_lose_nothing_of_a_hundred_trials(tmp_path: Path) -> None:
    with dask(3, tmp_path) as client:
        _survives(client, workers=3, budget=100, deaths=12)


def test_a_dask_trial_that_hangs_fails(client: Any, tmp_path: Path) -> None:
    over = str(tmp_path / "over")

    def objective(row: Any) -> float:
        import os
        import time

        while row.name == 1 and not os.path.exists(over):
            time.sleep(0.05)
        return 1.0

    client.wait_for_workers(2)
    trials = box().run(objective, 4, client.get_executor(), q=2, timeout=3.0)
    Path(over).touch()
    assert trials["status"].tolist() == ["told", "failed", "told", "told"]
    assert trials["reason"][1] == "no answer within 3 s"


@pytest.mark.slow
def test_a_dask_trial_that_kills_its_workers_fails(tmp_path: Path) -> None:
    settings = pytest.importorskip("dask").config

    def objective(row: Any) -> float:
        import os
        from pathlib import Path

        with Path(tmp_path, str(row.name)).open("a") as file:
            file.write("x")
        if row.name == 0:
            os._exit(1)
        return 1.0

    with settings.set({"distributed.scheduler.allowed-failures": 1}), dask(1, tmp_path) as client:
        trials = box().run(objective, 2, client.get_executor(), q=1)
    assert trials["status"].tolist() == ["failed", "told"]
    assert trials["reason"][0].startswith("KilledWorker")
    assert (tmp_path / "0").read_text() == "xxxx"  # twice as often as Dask allows
