"""A folder of its own for each environment's compiled extensions, and removal of stale locks.

BoTorch compiles a C++ extension when qLogEHVI or qLogNEHVI is first used. Torch guards the
compilation by a file named ``lock``, which stays behind if the process is killed; later processes
then wait forever, without a message. A program calls `prepare_extensions` once in every process
before it uses such an acquisition function. Importing this module has no side effects.

A lock is removed only if no process holds it. Torch keeps the file open while it compiles, so that
its holder is visible in ``/proc``; so is a compiler that outlived its parent, because it runs in
the folder. That is reliable for processes of one user on one machine, and therefore the folder's
name contains the machine's name (the code is compiled for its processor as well). Without
``/proc``, or for another user's lock, the age of the lock decides. Processes that already wait go
on as soon as a later one has removed the lock.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["prepare_extensions", "remove_stale_locks"]

VARIABLE = "TORCH_EXTENSIONS_DIR"
PROC = Path("/proc")
POLL = 0.2
"""Seconds between two looks: a lock exists shortly before its holder is visible."""
STALE = 1800.0
"""Age in seconds of a stale lock whose holder is not visible; compiling takes less than a minute.
"""
PATIENCE = 120.0
"""Maximum seconds to wait for compilers whose parent was killed."""


def prepare_extensions() -> Path:
    """Choose a folder for compiled extensions and remove stale locks from it.

    Sets the environment variable ``TORCH_EXTENSIONS_DIR`` for this process and its children, unless
    it is set already. The folder is inside the environment (`sys.prefix`), or in the user's cache
    if that is not writable, and is named after Python, torch and the machine.

    Returns:
        The folder.
    """
    named = os.environ.get(VARIABLE)
    folder = Path(named) if named else _own_folder()
    os.environ[VARIABLE] = str(folder)
    remove_stale_locks(folder)
    return folder


def remove_stale_locks(
    folder: Path,
    *,
    proc: Path = PROC,
    patience: float = PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Path]:
    """Remove the locks in a folder of extensions that no process holds.

    A lock that is held is left alone, without waiting. Compilers whose parent was killed are waited
    for, because they still write.

    Args:
        folder: The folder of ``TORCH_EXTENSIONS_DIR``, with a folder for each extension.
        proc: Where processes are listed.
        patience: Maximum seconds to wait for such compilers.
        sleep: Waits a number of seconds.

    Returns:
        The locks that were removed.
    """
    return [
        lock
        for lock in sorted(folder.glob("*/lock"))
        if _remove_if_stale(lock, proc, patience, sleep)
    ]


def _own_folder() -> Path:
    """The environment's folder of extensions, or the user's if that is not writable; created."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    name = f"{python}-torch{version('torch')}-{platform.node() or 'machine'}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    inside = Path(sys.prefix) / "var" / "torch_extensions" / name
    for folder in (inside, cache / "bo_stream" / "torch_extensions" / name):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return inside  # torch's error will name it


def _remove_if_stale(
    lock: Path, proc: Path, patience: float, sleep: Callable[[float], None]
) -> bool:
    """Remove a lock if it is stale; False if it is held, gone, or not removable."""
    try:
        with _exclusive(lock.parent):
            if _is_stale(lock, proc, patience, sleep):
                lock.unlink()
                return True
    except OSError:  # gone, or in a folder that is not writable
        pass
    return False


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Let one process at a time in, so that the lock that is removed is the one examined."""
    if sys.platform == "win32":  # an open file cannot be removed there
        yield
        return
    with (folder / "clearing").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # released by the system if the process dies
        yield


def _is_stale(lock: Path, proc: Path, patience: float, sleep: Callable[[float], None]) -> bool:
    """Whether no process holds a lock.

    Raises:
        FileNotFoundError: if it has gone meanwhile.
    """
    first = lock.stat()
    if not proc.is_dir() or (first.st_uid != os.geteuid() and os.geteuid() != 0):
        return time.time() - first.st_mtime > STALE
    deadline = time.monotonic() + patience
    while not _is_held(lock, proc):
        sleep(POLL)
        now = lock.stat()
        if (now.st_ino, now.st_ctime_ns) != (first.st_ino, first.st_ctime_ns):
            first = now  # another lock: look twice at that one as well
        elif not _is_held(lock, proc) and (
            not _is_working_directory(lock.parent, proc) or time.monotonic() > deadline
        ):
            return True
    return False


def _is_held(lock: Path, proc: Path) -> bool:
    """Whether a process has the lock's file open."""
    own = lock.stat()
    for link in proc.glob("[0-9]*/fd/*"):
        try:
            if link.readlink().name == lock.name and os.path.samestat(link.stat(), own):
                return True
        except OSError:  # the process has ended, or is another user's
            continue
    return False


def _is_working_directory(folder: Path, proc: Path) -> bool:
    """Whether another process, such as a compiler, runs in a folder."""
    for link in proc.glob("[0-9]*/cwd"):
        try:
            if link.parent.name != str(os.getpid()) and link.samefile(folder):
                return True
        except OSError:
            continue
    return False
