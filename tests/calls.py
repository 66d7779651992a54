"""Calls of a function, seen through the interpreter's trace: nothing is patched."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def calls_of(function: Callable[..., Any]) -> Iterator[list[dict[str, Any]]]:
    """The arguments of every call of a Python function in this thread."""
    seen: list[dict[str, Any]] = []
    with _at_each_call(function, lambda frame: seen.append(dict(frame.f_locals))):
        yield seen


@contextmanager
def failing(function: Callable[..., Any], error: BaseException) -> Iterator[None]:
    """An error where a Python function begins, in this thread."""

    def fail(frame: FrameType) -> None:
        raise error

    with _at_each_call(function, fail):
        yield


@contextmanager
def _at_each_call(
    function: Callable[..., Any], action: Callable[[FrameType], None]
) -> Iterator[None]:
    code = inspect.unwrap(getattr(function, "__func__", function)).__code__

    def look(frame: FrameType, event: str, arg: Any) -> None:
        if frame.f_code is code:
            action(frame)

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield
    finally:
        sys.settrace(before)
