"""Deferring Ctrl-C until a write to the store has finished."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bo_stream.campaign.storage.store import Store, Transaction

__all__ = ["InterruptSafeStore", "defer_interrupts"]


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


class InterruptSafeStore:
    """A store whose writes Ctrl-C does not interrupt.

    Args:
        store: Any store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def transaction(self, name: str) -> AbstractContextManager[Transaction]:
        """A transaction, deferring Ctrl-C until it has ended."""
        return self._transaction(name)

    @contextmanager
    def _transaction(self, name: str) -> Iterator[Transaction]:
        with defer_interrupts(), self._store.transaction(name) as transaction:
            yield transaction

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Save a snapshot, deferring Ctrl-C until it is saved."""
        with defer_interrupts():
            return self._store.save_snapshot(name, about, model)
