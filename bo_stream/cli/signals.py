"""Ctrl-C that lets a write to the store finish first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bo_stream.campaign.storage.store import Store, Turn

__all__ = ["Careful", "held_back"]


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C inside takes effect at the end, as the `KeyboardInterrupt` that it always is.

    Python gives signals to the main thread only: in any other there is nothing to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


class Careful:
    """A store whose writes Ctrl-C does not cut short.

    Args:
        store: Any store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def writing(self, name: str) -> AbstractContextManager[Turn]:
        """A writer's turn, from its first check to its commit."""
        return self._writing(name)

    @contextmanager
    def _writing(self, name: str) -> Iterator[Turn]:
        with held_back(), self._store.writing(name) as turn:
            yield turn

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Keep a snapshot, all of it."""
        with held_back():
            return self._store.save_snapshot(name, about, model)
