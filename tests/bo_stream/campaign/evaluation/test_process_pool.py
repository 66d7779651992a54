"""Campaigns whose objective runs in processes of its own."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.errors import InputError
from tests.bo_stream.campaign.runs import Calls, bowl, box, told_once


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
    assert failed[3] == "no result within 2 s; its worker was stopped"
    assert failed[4] == "LookupError: no such oven"
    assert failed[5].startswith("the objective returned float nan")
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
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored
    with pytest.raises(KeyboardInterrupt):
        campaign.run(objective, 5, workers=2)
    signal.signal(signal.SIGINT, before)
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
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system does not fork")
    file = str(tmp_path / "pid")

    def objective(row: Any) -> None:
        import os
        import time

        with open(f"{file}-", "w") as part:
            part.write(str(os.getpid()))
        os.rename(f"{file}-", file)
        time.sleep(60)

    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=lambda: box().run(objective, 1, workers=1))
    process.start()
    _until((tmp_path / "pid").exists)
    worker = int((tmp_path / "pid").read_text())
    process.kill()
    process.join()
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
