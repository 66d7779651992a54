"""Identifiers of the runs that evaluate trials, and whether their processes are still alive.

`bo_stream.Campaign.run` marks the trials it asks for with its machine, its process number and the
start time of its process, because process numbers are reused. A later run takes over the trials of
a run of the same machine that has died. It leaves alone trials that were asked for by hand, those
of living processes, and those of other machines, whose processes it cannot see.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

__all__ = ["has_died", "run_id"]

PREFIX = "run"


def run_id() -> str:
    """Identifier of a run in this process."""
    pid = os.getpid()
    return f"{PREFIX}:{socket.gethostname()}:{pid}:{_start_time(pid) or ''}"


def has_died(by: str | None) -> bool:
    """Whether an identifier is that of a run on this machine that cannot finish any more.

    Either its process has ended, or it was an earlier run of this process.
    """
    parts = (by or "").split(":")
    if len(parts) != 4 or parts[0] != PREFIX or not parts[2].isdecimal():
        return False
    if by == run_id():
        return True
    return parts[1] == socket.gethostname() and not _alive(int(parts[2]), parts[3])


def _alive(pid: int, started: str) -> bool:
    if os.name == "nt":
        return True  # os.kill would end the process there: its trials have to be failed by hand
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # a process of another user
    now = _start_time(pid)
    if now is None:  # cannot be read: count it as alive
        return True
    return now == started if started else now != ""


def _start_time(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; empty for a zombie, None if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before may have blanks and brackets
    return "" if fields[0] in "ZX" else fields[19]
