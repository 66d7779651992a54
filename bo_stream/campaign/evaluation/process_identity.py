"""Whose a running trial is: a run that is still alive, or one whose process has died.

`bo_stream.Campaign.run` signs the trials it asks for with its machine, its process and when that
was started, because numbers of processes are used again. A run may therefore take over what a dead
one left behind; it leaves alone what was asked for by hand, what a living process evaluates, and
what another machine asked for, of whose processes it knows nothing.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

__all__ = ["abandoned", "elsewhere", "is_run", "signature"]

PREFIX = "run"


def signature() -> str:
    """What this process signs its trials with."""
    pid = os.getpid()
    return f"{PREFIX}:{socket.gethostname()}:{pid}:{_started(pid) or ''}"


def is_run(by: str | None) -> bool:
    """Whether a trial was asked for by a run."""
    return _read(by) is not None


def elsewhere(by: str | None) -> bool:
    """Whether a trial was asked for by a run of another machine."""
    found = _read(by)
    return found is not None and found[0] != socket.gethostname()


def abandoned(by: str | None) -> bool:
    """Whether a trial was asked for by a run of this machine that cannot finish it any more.

    That is one of a process that is gone, or an earlier one of this very process.
    """
    found = _read(by)
    if found is None or elsewhere(by):
        return False
    return by == signature() or not _alive(*found[1:])


def _read(by: str | None) -> tuple[str, int, str] | None:
    """Machine, process and start of a signature; None for any other text."""
    parts = (by or "").split(":")
    if len(parts) != 4 or parts[0] != PREFIX or not parts[2].isdecimal():
        return None
    return parts[1], int(parts[2]), parts[3]


def _alive(pid: int, started: str) -> bool:
    if os.name == "nt":
        return True  # asking would end the process there: its trials have to be failed by hand
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # another user's
    now = _started(pid)
    if now is None:  # nothing can be read about it: it counts as alive
        return True
    return now == started if started else now != ""


def _started(pid: int) -> str | None:
    """When a process was started, in ticks since the machine was; empty for one that is dead but
    not yet gone, None where that cannot be known.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before may have blanks and brackets
    return "" if fields[0] in "ZX" else fields[19]
