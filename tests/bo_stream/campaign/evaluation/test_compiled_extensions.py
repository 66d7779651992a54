"""Extensions that are compiled while a process is killed: the next one goes on."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import is_ninja_available

from bo_stream.campaign.evaluation import compiled_extensions as extensions
from bo_stream.campaign.evaluation.compiled_extensions import prepare_extensions, remove_stale_locks

compiles = pytest.mark.skipif(
    shutil.which("c++") is None or not is_ninja_available(), reason="no C++ compiler or no ninja"
)
linux = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc to see holders in")

LOAD_BOTORCH = """
import torch
from botorch.acquisition.multi_objective.logei import qLogExpectedHypervolumeImprovement as qLogEHVI
from botorch.models import SingleTaskGP
from botorch.utils.multi_objective.box_decompositions import NondominatedPartitioning
X = torch.rand(4, 1, dtype=torch.double)
model = SingleTaskGP(X, torch.cat([X, 1 - X], -1))
ref = torch.zeros(2, dtype=torch.double)
qLogEHVI(model, ref, NondominatedPartitioning(ref, Y=torch.cat([X, 1 - X], -1)))
"""
PREPARE = (
    "from bo_stream.campaign.evaluation.compiled_extensions import prepare_extensions as p; p()\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of extensions, the one in use."""
    monkeypatch.setenv(extensions.VARIABLE, str(tmp_path / "extensions"))
    (tmp_path / "extensions" / "small").mkdir(parents=True)
    return tmp_path / "extensions"


@pytest.fixture
def lock(folder: Path) -> Path:
    """A lock that nobody holds."""
    (folder / "small" / "lock").touch()
    return folder / "small" / "lock"


def python(code: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,  # type: ignore[call-overload]
    )


@pytest.fixture
def holder(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock."""
    code = f"f = open({str(lock)!r}); print('held', flush=True); input()"
    process = python(code, stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def killed_while_compiling(code: str, lock: Path) -> None:
    """Start a program, and kill it and its compilers when they are at work."""
    process = python(code)
    deadline = time.monotonic() + 120
    while not lock.exists():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert lock.exists()  # whoever comes now would wait for ever


@linux
@compiles
@pytest.mark.slow
def test_botorchs_extension_too(folder: Path) -> None:
    killed_while_compiling(LOAD_BOTORCH, folder / "logei_fused_ext" / "lock")
    printed, _ = python(PREPARE + LOAD_BOTORCH).communicate(timeout=500)
    assert "Failed to compile" not in printed
    assert (folder / "logei_fused_ext" / "logei_fused_ext.so").exists()


@linux
def test_a_lock_is_cleared_when_nobody_holds_it(
    lock: Path, folder: Path, holder: subprocess.Popen[str]
) -> None:
    assert prepare_extensions() == folder
    assert lock.exists()  # held, and not waited for
    os.killpg(holder.pid, signal.SIGKILL)
    holder.wait()
    assert remove_stale_locks(folder) == [lock]
    assert not lock.exists()


@linux
def test_compilers_left_behind_are_waited_for(lock: Path, folder: Path) -> None:
    with subprocess.Popen(["sleep", "60"], cwd=lock.parent) as process:
        looks = []

        def wait(seconds: float) -> None:
            looks.append(lock.exists())
            if len(looks) == 3:
                process.kill()
                process.wait()

        assert remove_stale_locks(folder, sleep=wait) == [lock]
        assert looks == [True] * len(looks) and len(looks) >= 3


@linux
def test_a_compiler_that_never_ends_is_not(lock: Path, folder: Path) -> None:
    with subprocess.Popen(["sleep", "60"], cwd=lock.parent) as process:
        assert remove_stale_locks(folder, patience=0.5) == [lock]
        process.kill()


@linux
def test_a_new_lock_is_not_taken_for_the_old_one(lock: Path, folder: Path) -> None:
    """One process releases its lock between two looks, another takes it."""
    holders = []

    def release_and_take(seconds: float) -> None:
        lock.rename(lock.with_name("old"))
        holders.append(lock.open("w"))

    assert remove_stale_locks(folder, sleep=release_and_take) == [] and lock.exists()
    holders[0].close()


@linux
def test_of_two_processes_one_clears_it(lock: Path, folder: Path) -> None:
    cleared: list[Path] = []
    threads = [
        threading.Thread(target=lambda: cleared.extend(remove_stale_locks(folder)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cleared == [lock]


def test_where_holders_cannot_be_seen_age_decides(lock: Path, folder: Path) -> None:
    nowhere = folder / "nowhere"
    assert remove_stale_locks(folder, proc=nowhere) == [] and lock.exists()
    hour_ago = time.time() - 3600.0
    os.utime(lock, (hour_ago, hour_ago))
    assert remove_stale_locks(folder, proc=nowhere) == [lock]


def test_the_folder_is_the_environments_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(extensions.VARIABLE, "")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    found = prepare_extensions()
    assert found.is_dir() and (tmp_path / "environment") in found.parents
    assert os.environ[extensions.VARIABLE] == str(found)
    assert torch.__version__.split("+")[0] in found.name


def test_where_the_environment_cannot_be_written_it_is_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "environment").touch()  # a file has no folders
    monkeypatch.setenv(extensions.VARIABLE, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    assert (tmp_path / "cache" / "bo_stream") in prepare_extensions().parents
