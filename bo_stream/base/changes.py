"""Atomic changes of a surrogate, by one thread at a time.

Two decorators for methods: `exclusive` blocks changes by other threads while a method runs.
`all_or_nothing` does so too and rolls everything back if the method raises. The method registers
in `StateLock.undo` how to undo each of its steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch

__all__ = ["Guarded", "StateLock", "all_or_nothing", "exclusive"]

Undo = list[Callable[[], Any]]
"""Functions that undo the steps of a change."""
P = ParamSpec("P")
R = TypeVar("R")


class StateLock(type(threading.RLock()), ContextDecorator):  # type: ignore[misc]
    """A reentrant lock; copying it creates a new lock.

    It is used as a decorator, ``lock(method)(...)``, never in a `with` statement of this package:
    an interruption on the line of the `with`, after its block has ended, would leave it locked.

    Attributes:
        undo: Callables that undo the steps of the current change, in the order of the steps.
    """

    def __init__(self) -> None:
        self.undo: Undo = []

    def on_failure(self, step_back: Callable[[], Any]) -> None:
        """Register how to undo the next step, if a change is in progress."""
        if self.undo:
            self.undo.append(step_back)

    def __deepcopy__(self, memo: dict[int, Any]) -> StateLock:
        return StateLock()

    def __reduce__(self) -> tuple[type[StateLock], tuple[()]]:
        return StateLock, ()


class Guarded(Protocol):
    """An object with a lock of its own."""

    _lock: StateLock


M = TypeVar("M", bound=Guarded)


def exclusive(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """Decorate a method so that no other thread changes the object while it runs."""

    @wraps(method)
    def run(self: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._lock(method)(self, *args, **kwargs)
        return result

    return run


def all_or_nothing(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """Decorate a method that changes the object: if it raises, the object is unchanged.

    The method runs without gradients, outside of torch's inference mode, and other threads'
    changes wait. It may call other methods
    decorated like this; if it fails after they have ended, their steps are undone too.
    """

    @wraps(method)
    def change(self: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._lock(_attempt)(method, self, args, kwargs)
        return result

    return change


@torch.inference_mode(False)
@torch.no_grad()
def _attempt(method: Callable[..., R], model: Guarded, args: Any, kwargs: Any) -> R:
    """Call the method; undo its steps if it fails."""
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
        _end(undo, start)  # again: an interruption may have come during the first call


def _take_back(undo: Undo, start: int) -> None:
    while len(undo) > start:
        undo[-1]()
        undo.pop()


def _end(undo: Undo, start: int) -> None:
    """Discard the undo list once the outermost change is over."""
    if not start:
        undo.clear()


def _nothing() -> None:
    """A step that needs no undoing."""
