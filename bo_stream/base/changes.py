"""Changes of a surrogate: by one thread at a time, and whole or not at all.

Two decorators for methods. `exclusive` keeps other threads' changes out while a method runs.
`all_or_nothing` does so too and, if the method raises anything, brings everything back to what it
was: the method adds to `StateLock.undo` what takes each of its steps back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch

from bo_stream.mathematics.sufficient_statistics.state import Undo

__all__ = ["Guarded", "StateLock", "all_or_nothing", "exclusive"]

P = ParamSpec("P")
R = TypeVar("R")


class StateLock(type(threading.RLock()), ContextDecorator):  # type: ignore[misc]
    """A lock that its thread may take again; a copy of it is a new one.

    It is used as a decorator, ``lock(method)(...)``, and never in a `with` statement of this
    package: an interruption that arrives on the line of a `with`, when its block has ended, would
    leave the lock taken.

    Attributes:
        undo: What takes back the steps of the change under way, in the order of the steps.
    """

    def __init__(self) -> None:
        self.undo: Undo = []

    def on_failure(self, step_back: Callable[[], Any]) -> None:
        """Note what takes the next step back, if a change is under way."""
        if self.undo:
            self.undo.append(step_back)

    def __deepcopy__(self, memo: dict[int, Any]) -> StateLock:
        return StateLock()

    def __reduce__(self) -> tuple[type[StateLock], tuple[()]]:
        return StateLock, ()


class Guarded(Protocol):
    """What has a lock of its own."""

    _lock: StateLock


M = TypeVar("M", bound=Guarded)


def exclusive(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """Decorate a method during which no other thread may change the object."""

    @wraps(method)
    def run(self: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._lock(method)(self, *args, **kwargs)
        return result

    return run


def all_or_nothing(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """Decorate a method that changes the object: if it raises anything, nothing has changed.

    The method runs without gradients, and other threads' changes wait. It may call other methods
    that are decorated like this: if it fails after they have ended, their steps are taken back too.
    """

    @wraps(method)
    def change(self: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._lock(_attempt)(method, self, args, kwargs)
        return result

    return change


@torch.no_grad()
def _attempt(method: Callable[..., R], model: Guarded, args: Any, kwargs: Any) -> R:
    """Call the method; take back what it has done if it fails."""
    undo = model._lock.undo
    start = len(undo)
    try:
        try:
            undo.append(_nothing)  # so that changes inside this one are not the outermost
            return method(model, *args, **kwargs)
        except BaseException:
            try:
                _take_back(undo, start)
            finally:
                _take_back(undo, start)
            raise
        finally:
            _end(undo, start)
    finally:
        _end(undo, start)  # again: an interruption may have come while it ended


def _take_back(undo: Undo, start: int) -> None:
    while len(undo) > start:
        undo[-1]()
        undo.pop()


def _end(undo: Undo, start: int) -> None:
    """The outermost change is over: nothing will be taken back any more."""
    if not start:
        undo.clear()


def _nothing() -> None:
    """A step that needs no taking back."""
