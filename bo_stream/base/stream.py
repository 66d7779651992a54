"""The data-dependent part of a surrogate, and atomic changes of it by one thread at a time.

A change creates a new `StreamBuffers` that replaces the old one by a single assignment, so that
``.to``, ``state_dict`` and ``deepcopy`` never see half a change. Two decorators for methods:
`exclusive` blocks changes by other threads while a method runs. `all_or_nothing` does so too and
rolls everything back if the method raises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ContextDecorator
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from bo_stream.base.fitting import FitMemory
from bo_stream.base.snapshot import Version
from bo_stream.errors import StateError
from bo_stream.mathematics.autograd import lasting
from bo_stream.mathematics.shapes import (
    check_shapes,
    moved,
    nested,
    shaped,
    tensors_of,
    with_tensors,
)

__all__ = [
    "Guarded",
    "StateLock",
    "Stream",
    "StreamBuffers",
    "all_or_nothing",
    "exclusive",
]

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

    def restores(self, tensors: Iterable[Tensor]) -> None:
        """Give tensors their present values again if the change in progress fails."""
        for tensor in tensors if self.undo else ():
            self.undo.append(partial(tensor.data.copy_, tensor.detach().clone()))

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
    changes wait. It may call other methods decorated like this; if it fails after they have ended,
    their steps are undone too.
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


@dataclass(frozen=True)
class Stream:
    """The family's state, and the quantities that every surrogate keeps with it.

    Attributes:
        state: The family's dataclass of tensors; None before it is built.
        count: Number of observations, int64.
        noise_sum: Sum of their known noise variances, before any learned scale.
        fits: Starting information of the next fit.
    """

    state: Any = nested()
    count: Tensor = shaped("", "not negative")
    noise_sum: Tensor = shaped("o", "not negative")
    fits: FitMemory = nested()

    @classmethod
    def empty(cls, outputs: int) -> Stream:
        """Before the family's state is built."""
        count = torch.zeros((), dtype=torch.int64)
        noise = torch.zeros(outputs, dtype=torch.float64)
        return cls(None, count, noise, FitMemory.empty())

    def merged(self, other: Stream) -> Stream:
        """The stream with another one's observations, for states that are sums."""
        other = moved(other, self.count.device)
        state = self.state.merged_at(other.state, int(self.count), int(other.count))
        count, noise_sum = self.count + other.count, self.noise_sum + other.noise_sum
        return replace(self, state=state, count=count, noise_sum=noise_sum)

    def loaded(self, saved: Mapping[str, Tensor], sizes: Mapping[str, int]) -> Stream:
        """A stream of the same layout with saved tensors, on this one's device, checked.

        Args:
            saved: Tensors by name; missing ones keep their values.
            sizes: Required sizes, by letter.

        Raises:
            StateError: if the tensors do not fit together.
        """
        tensors = dict(tensors_of(self))
        for name, mine in tensors.items():
            value = saved.get(name, mine)
            if value.is_floating_point() != mine.is_floating_point():
                raise StateError(f"{name} as {mine.dtype}", f"{value.dtype}", "It is damaged.")
            # A copy has the strides of what was saved, which rounding depends on.
            tensors[name] = value.to(dtype=mine.dtype, device=mine.device, copy=True)
        made = with_tensors(self, tensors)
        if made.count.ndim:
            raise StateError("a count of observations", f"{made.count}", "It is damaged.")
        check_shapes(made, {**sizes, "n": int(made.count)})
        return made


class StreamBuffers(nn.Module):
    """The tensors of a stream as buffers.

    Args:
        contents: The stream.
        version: Version of the state; a new one by default.
        device: Device of the buffers; by default the tensors are not moved.

    Attributes:
        contents: The stream, whose tensors are the buffers.
        version: The version of everything that posteriors depend on.
    """

    count: Tensor
    noise_sum: Tensor

    def __init__(
        self, contents: Stream, version: Version | None = None, device: torch.device | None = None
    ) -> None:
        super().__init__()
        self.version = Version() if version is None else version
        given = dict(tensors_of(contents))
        held = {name: _moved(tensor, device) for name, tensor in given.items()}
        for name, tensor in held.items():
            self.register_buffer(name, tensor)
        same = all(held[name] is tensor for name, tensor in given.items())
        self.contents = contents if same else with_tensors(contents, held)

    def replaced(self, version: Version | None = None, **changes: Any) -> StreamBuffers:
        """Buffers of the stream with some parts replaced, of the given or a new version."""
        return StreamBuffers(replace(self.contents, **changes), version, self.count.device)

    def _follow_buffers(self) -> None:
        """Refer to the buffers again after torch has replaced them."""
        held = dict(self.named_buffers(recurse=False, remove_duplicate=False))
        if any(held[name] is not tensor for name, tensor in tensors_of(self.contents)):
            self.contents = with_tensors(self.contents, held)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the tensors, which are never cast."""
        super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)
        self._follow_buffers()
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._follow_buffers()


def _moved(tensor: Tensor, device: torch.device | None) -> Tensor:
    """The detached tensor, on ``device`` if given, usable outside of inference mode."""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    tensor = _copied(tensor) if tensor.is_inference() else tensor
    return tensor if device is None or tensor.device == device else tensor.to(device)


@lasting
def _copied(tensor: Tensor) -> Tensor:
    return tensor.clone()
