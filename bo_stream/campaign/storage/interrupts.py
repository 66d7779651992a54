"""Deferring Ctrl-C until a write to the store has finished."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["defer_interrupts"]


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Raise the `KeyboardInterrupt` of Ctrl-C inside the block at its end.

    Where Ctrl-C is ignored it stays so. Python handles signals in the main thread only, so that
    there is nothing to defer in other threads.
    """
    before = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or before in (signal.SIG_IGN, None):
        yield
        return
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        raise KeyboardInterrupt
