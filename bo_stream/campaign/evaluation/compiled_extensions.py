"""Compiled extensions: a folder of their own for each environment, and no waiting on dead locks.

BoTorch compiles a C++ extension when qLogEHVI or qLogNEHVI is first used. Torch guards the
compilation by a file named ``lock``, which stays behind when the process is killed, and whoever
comes next waits until it is gone: for ever, and in silence. `prepare_extensions` is called by a
program before it uses such an acquisition function, once in every process. Importing this module
does nothing.

A lock is taken away only if nobody holds it. Torch keeps the file open for as long as it compiles,
so a holder can be seen in ``/proc``; so can a compiler that outlived the process which started it,
because it runs in the folder. That is sound among processes of one user on one machine, which is
why the folder's name has the machine's name in it (the code is compiled for its processor, too).
Where there is no ``/proc``, or the lock is another user's, only its age can tell. Processes that
already wait go on as soon as one that is started later has cleared the lock.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["clear_dead_locks", "prepare_extensions"]

VARIABLE = "TORCH_EXTENSIONS_DIR"
_PROC = Path("/proc")
_GLANCE = 0.2
"""Seconds between two looks: a lock is there a moment before its holder can be seen."""
_OLD = 1800.0
"""Seconds after which a lock is dead whose holder cannot be seen; compiling takes less than one."""
_PATIENCE = 120.0
"""Seconds that compilers left behind are waited for."""


def prepare_extensions() -> Path:
    """Choose a folder for compiled extensions and clear it of locks that nobody holds.

    Sets the environment variable ``TORCH_EXTENSIONS_DIR``, for this process and those it starts,
    unless it is set already. The folder is inside the environment (`sys.prefix`), or in the user's
    cache where that cannot be written, and is named after Python, torch and the machine.

    Returns:
        The folder.
    """
    named = os.environ.get(VARIABLE)
    folder = Path(named) if named else _own_folder()
    os.environ[VARIABLE] = str(folder)
    clear_dead_locks(folder)
    return folder


def clear_dead_locks(folder: Path) -> list[Path]:
    """Take away the locks below a folder of extensions that no process holds.

    A lock that is held is left alone, without waiting. Compilers whose parent was killed are waited
    for, as they still write; they end by themselves.

    Args:
        folder: That of ``TORCH_EXTENSIONS_DIR``: it has a folder for each extension.

    Returns:
        The locks taken away.
    """
    return [lock for lock in sorted(folder.glob("*/lock")) if _cleared(lock)]


def _own_folder() -> Path:
    """The environment's folder of extensions, made; the user's where that cannot be written."""
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
    return inside  # torch will say why it cannot be written


def _cleared(lock: Path) -> bool:
    """Take a lock away if it is dead; False if it is held, gone by itself, or not ours to take."""
    try:
        with _alone(lock.parent):
            if _dead(lock):
                lock.unlink()
                return True
    except OSError:  # gone, or in a folder that cannot be written
        pass
    return False


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one process at a time inside: a lock judged dead is the one that is taken away."""
    if sys.platform == "win32":  # a file that is open cannot be removed there
        yield
        return
    with (folder / "clearing").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # of the system: it goes with the process
        yield


def _dead(lock: Path) -> bool:
    """Whether nobody holds a lock.

    Raises:
        FileNotFoundError: if it has gone meanwhile.
    """
    seen = lock.stat()
    if not _PROC.is_dir() or (seen.st_uid != os.geteuid() and os.geteuid() != 0):
        return time.time() - seen.st_mtime > _OLD
    deadline = time.monotonic() + _PATIENCE
    while not _held(lock):
        time.sleep(_GLANCE)
        still = lock.stat()
        if (still.st_ino, still.st_ctime_ns) != (seen.st_ino, seen.st_ctime_ns):
            seen = still  # another lock: look twice at that one too
        elif not _held(lock) and (not _worked_in(lock.parent) or time.monotonic() > deadline):
            return True
    return False


def _held(lock: Path) -> bool:
    """Whether a process has the lock's file open."""
    own = lock.stat()
    for link in _links("[0-9]*/fd/*"):
        try:
            if link.readlink().name == lock.name and os.path.samestat(link.stat(), own):
                return True
        except OSError:  # the process has ended, or is another user's
            continue
    return False


def _worked_in(folder: Path) -> bool:
    """Whether another process, such as a compiler, runs in a folder."""
    for link in _links("[0-9]*/cwd"):
        try:
            if link.parent.name != str(os.getpid()) and link.samefile(folder):
                return True
        except OSError:
            continue
    return False


def _links(pattern: str) -> Iterator[Path]:
    """What is there of a kind below ``/proc``, as far as it may be seen."""
    return _PROC.glob(pattern)
