"""The data-dependent part of a surrogate, atomic changes of it, and results kept until it changes.

A change creates a new `StreamBuffers` that replaces the old one by a single assignment, so that
``.to``, ``state_dict`` and ``deepcopy`` never see half a change. Two decorators for methods:
`exclusive` blocks changes by other threads while a method runs. `all_or_nothing` does so too and
rolls everything back if the method raises.

Results computed from state and hyperparameters are kept by `Derived` under a `Key`. Raw parameter
values alone do not show a change: a new constraint transforms them differently, a kernel may be
replaced by another with equal raw values, and settings such as Matern's ``nu`` are not parameters.
Tensor identities and versions do not either, because gpytorch's setters write through ``.data``.
"""

from __future__ import annotations

import copy
import hashlib
import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ContextDecorator
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.module import Module
from gpytorch.priors import Prior
from torch import Tensor, nn

from bo_stream.mathematics.autograd import lasting
from bo_stream.mathematics.shapes import (
    DataclassInstance,
    Rows,
    moved,
    nested,
    shaped,
    tensors_of,
    with_tensors,
)
from bo_stream.mathematics.sums import SufficientStatistics

__all__ = [
    "Changeable",
    "Derived",
    "FitMemory",
    "Key",
    "StateLock",
    "Stream",
    "StreamBuffers",
    "Version",
    "all_or_nothing",
    "class_name",
    "exclusive",
    "fingerprint",
    "numbers_of",
]

Undo = list[Callable[[], Any]]
"""Functions that undo the steps of a change."""
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound=DataclassInstance)


class StateLock(type(threading.RLock()), ContextDecorator):  # type: ignore[misc]
    """A reentrant lock; copying it creates a new lock.

    It is used through `during`, never in a `with` statement of this package: an interruption on the
    line of the `with`, after its block has ended, would leave it locked.

    Attributes:
        undo: Callables that undo the steps of the current change, in the order of the steps.
        during: Calls a function with arguments, under the lock.
    """

    def __init__(self) -> None:
        self.undo: Undo = []
        self.during = self(operator.call)

    def restores(self, tensors: Iterable[Tensor]) -> None:
        """Give tensors their present values again if the change in progress fails."""
        for tensor in tensors if self.undo else ():
            self.undo.append(partial(tensor.data.copy_, tensor.detach().clone()))

    def keeps(self, owner: object, name: str) -> None:
        """Give an attribute its present value, or none, again if the change in progress fails."""
        if self.undo and hasattr(owner, name):
            self.undo.append(partial(setattr, owner, name, getattr(owner, name)))
        elif self.undo:
            self.undo.append(lambda: delattr(owner, name) if hasattr(owner, name) else None)

    def __reduce__(self) -> tuple[type[StateLock], tuple[()]]:
        return StateLock, ()


class Changeable:
    """An object with a lock, which one thread at a time changes."""

    _lock: StateLock

    def _set(self, name: str, value: Any) -> None:
        """Set an attribute; if the current change fails, it is restored."""
        self._lock.keeps(self, name)
        setattr(self, name, value)


M = TypeVar("M", bound=Changeable)


def exclusive(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """Decorate a method so that no other thread changes the object while it runs."""

    @wraps(method)
    def run(self: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._lock.during(method, self, *args, **kwargs)

    return run


def all_or_nothing(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """Decorate a method that changes the object: if it raises, the object is unchanged.

    The method runs without gradients, outside of torch's inference mode, and other threads'
    changes wait. It may call other methods decorated like this; if it fails after they have ended,
    their steps are undone too.
    """

    @exclusive
    @torch.inference_mode(False)
    @torch.no_grad()
    @wraps(method)
    def change(self: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        undo = self._lock.undo
        start = len(undo)
        try:
            try:
                undo.append(lambda: None)  # so that changes inside this one are not the outermost
                return method(self, *args, **kwargs)
            except BaseException:
                try:
                    _take_back(undo, start)
                finally:
                    _take_back(undo, start)
                raise
            finally:
                if not start:  # the outermost change is over
                    undo.clear()
        finally:
            if not start:  # again: an interruption may have come during the first time
                undo.clear()

    return change


def _take_back(undo: Undo, start: int) -> None:
    while len(undo) > start:
        undo[-1]()
        undo.pop()


# -- the stream -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Version:
    """The identity of a state: every change creates a new one; a copy of the state keeps it.

    Attributes:
        root: The last change other than by absorbing a batch.
        batches: The batches absorbed since.
        points: The number of their points.
    """

    root: object = field(default_factory=object)
    batches: tuple[Rows, ...] = ()
    points: int = 0

    def absorbing(self, batch: Rows, most: int) -> Version:
        """The version after a batch. At most ``most`` points are held in a row."""
        points = self.points + len(batch)
        return Version(self.root, (*self.batches, batch), points) if points <= most else Version()

    def since(self, other: Version) -> Sequence[Rows] | None:
        """The batches absorbed since another version; None if this is not known."""
        n, mine = len(other.batches), self.batches
        known = self.root is other.root and n <= len(mine)
        return mine[n:] if known and all(map(operator.is_, mine, other.batches)) else None

    def __deepcopy__(self, memo: dict[int, Any]) -> Version:
        return self


@dataclass(frozen=True)
class FitMemory:
    """The starting information of the next fit; empty before the first.

    Attributes:
        curvature: Inverse Hessian of the objective in the coordinates of a fit.
        explored: Number of data when distant starts were last tried, number of data at the last
            final check, then the coordinates at which the first fit started.
    """

    curvature: Tensor = shaped("c c")
    explored: Tensor = shaped("e")

    @classmethod
    def empty(cls) -> FitMemory:
        """Before the first fit."""
        none = torch.empty(0, dtype=torch.float64)
        return cls(none.reshape(0, 0), none)


@dataclass(frozen=True)
class Stream:
    """The family's state, and the quantities that every surrogate keeps with it.

    Attributes:
        state: The family's dataclass of tensors; None before it is built.
        count: Number of observations, int64.
        noise_sum: Sum of their known noise variances, before any learned scale.
        fits: Starting information of the next fit.
    """

    state: DataclassInstance | None = nested()
    count: Tensor = shaped("", "not negative")
    noise_sum: Tensor = shaped("o", "not negative")
    fits: FitMemory = nested()

    @classmethod
    def empty(cls, outputs: int) -> Stream:
        """Before the family's state is built."""
        count = torch.zeros((), dtype=torch.int64)
        return cls(None, count, torch.zeros(outputs, dtype=torch.float64), FitMemory.empty())

    @property
    def sums(self) -> SufficientStatistics:
        """The state of a family that promises to be additive."""
        return cast(SufficientStatistics, self.state)

    def merged(self, other: Stream) -> Stream:
        """The stream with another one's observations, for states that are sums."""
        other = moved(other, self.count.device)
        state = self.sums.merged_at(other.sums, int(self.count), int(other.count))
        count, noise_sum = self.count + other.count, self.noise_sum + other.noise_sum
        return replace(self, state=state, count=count, noise_sum=noise_sum)


class StreamBuffers(nn.Module, Generic[C]):
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
        self, contents: C, version: Version | None = None, device: torch.device | None = None
    ) -> None:
        super().__init__()
        self.version = Version() if version is None else version
        held = dict(tensors_of(contents))
        for name, tensor in held.items():
            detached = tensor.detach() if tensor.requires_grad else tensor
            held[name] = detached if device is None else detached.to(device)
            self.register_buffer(name, held[name])
        self.contents = with_tensors(contents, held)

    def replaced(self, version: Version | None = None, **changes: Any) -> StreamBuffers[C]:
        """Buffers of the stream with some parts replaced, of the given or a new version."""
        return StreamBuffers(replace(self.contents, **changes), version, self.count.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the tensors, which are never cast."""
        super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)
        held = dict(self.named_buffers(recurse=False, remove_duplicate=False))
        self.contents = with_tensors(self.contents, held)
        return self


# -- results that are kept ------------------------------------------------------------------------


class Key:
    """Everything that a derived value depends on, recorded when the key is created.

    Keys are compared at every posterior, inside the loops of acquisition optimisers.

    Args:
        version: Version of the state.
        modules: Modules whose hyperparameters matter: their parts are compared by identity, and
            by their settings and raw values.
        others: Further objects, compared by identity.
    """

    def __init__(self, version: Version, modules: Sequence[Module] = (), *others: object) -> None:
        self.version, self.others = version, others
        self.parts = _parts(modules)
        self.values = [_values(part) for part in self.parts]

    def same_but_for_data(self, other: Key) -> bool:
        """Whether the modules, their values and the other objects are the same."""
        others = all(map(operator.is_, self.others, other.others))
        return others and self.parts == other.parts and self.values == other.values

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Key)
            and self.version is other.version
            and self.same_but_for_data(other)
        )


class Derived(Generic[T]):
    """A cache of one derived value.

    Threads may use it without a lock: key and value are replaced together. A copy shares the
    value; a pickle omits it.
    """

    def __init__(self) -> None:
        self.entry: tuple[Key, T] | None = None

    def made(self, key: Key, make: Callable[[], T]) -> T:
        """The value for a key, computed if there is none for an equal key."""
        entry = self.entry
        if entry is None or entry[0] != key:
            self.entry = entry = key, lasting(make)()
        return entry[1]

    def __deepcopy__(self, memo: dict[int, Any]) -> Derived[T]:
        made = Derived[T]()
        made.entry = self.entry and (copy.deepcopy(self.entry[0], memo), self.entry[1])
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {"entry": None}


# -- hyperparameters -------------------------------------------------------------------------------


PLAIN = (bool, int, float, str, tuple, type(None))
_NAMES: WeakKeyDictionary[nn.Module, list[str]] = WeakKeyDictionary()


def class_name(value: Any) -> str:
    """The full name of a value's class."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def fingerprint(module: Any) -> str:
    """Class, then classes and settings of the parts, and shapes of the state, of a module; the
    class of anything else.
    """
    if not isinstance(module, nn.Module):
        return class_name(module)
    parts = [(type(part).__name__, settings_of(part)) for part in _parts((module,))]
    shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    return f"{class_name(module)} {parts} {shapes}"


def numbers_of(*modules: Module) -> Tensor:
    """Hyperparameters as a vector ``p`` that a state can hold, float64.

    A digest of the kernels' classes and settings, the parameters as their constraints transform
    them, and the kernels' buffers.
    """
    kernels = [part for part in _parts(modules) if isinstance(part, Kernel)]
    settings = repr([(type(part).__qualname__, settings_of(part)) for part in kernels])
    digest = int.from_bytes(hashlib.sha256(settings.encode()).digest()[:6], "big")
    numbers = [torch.tensor([float(digest)], dtype=torch.float64)]
    for module in modules:
        for _, parameter, constraint in module.named_parameters_and_constraints():
            value = parameter if constraint is None else constraint.transform(parameter)
            numbers.append(value.detach().cpu().double().reshape(-1))
    for part in kernels:
        numbers += [b.cpu().double().reshape(-1) for _, b in part.named_buffers(recurse=False)]
    return torch.cat(numbers)


def settings_of(module: nn.Module) -> tuple[tuple[str, Any], ...]:
    """Plain public attributes of a module, such as Matern's ``nu``."""
    return tuple(
        (name, value)
        for name, value in vars(module).items()
        if isinstance(value, PLAIN) and name[0] != "_" and name != "training"
    )


def _parts(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """The modules, their submodules and constraints in a fixed order, without priors."""
    found: list[nn.Module] = []
    waiting = list(modules)
    while waiting:
        part = waiting.pop()
        found.append(part)
        if not isinstance(part, Interval):
            waiting += [child for child in part.children() if not isinstance(child, Prior)]
    return found


def _values(part: nn.Module) -> list[Any]:
    """A kernel's settings, and a module's parameters and buffers, whose names are cached, raw."""
    kernel, names = isinstance(part, Kernel), _NAMES.get(part)
    if names is None:
        own = (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False))
        names = [name for name, _ in own] + ["active_dims"] * kernel  # which may be None
        _NAMES[part] = names
    tensors = [getattr(part, name, None) for name in names]
    values = [None if tensor is None else tensor.tolist() for tensor in tensors]
    return [settings_of(part), *values] if kernel else values
