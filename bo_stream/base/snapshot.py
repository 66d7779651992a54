"""Results computed from state and hyperparameters, kept until one of these changes.

Raw parameter values alone do not show a change: a new constraint transforms them differently, a
kernel may be replaced by another with equal raw values, and settings such as Matern's ``nu`` are
not parameters. Tensor identities and versions do not either, because gpytorch's setters write
through ``.data``.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import torch
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.module import Module
from gpytorch.priors import Prior
from torch import Tensor, nn

from bo_stream.errors import NoiseError
from bo_stream.mathematics.autograd import lasting
from bo_stream.mathematics.process import PosteriorProcess
from bo_stream.mathematics.rows import Rows

__all__ = [
    "Derived",
    "Key",
    "PosteriorSnapshot",
    "Version",
    "fingerprint",
    "numbers_of",
    "settings_of",
]

T = TypeVar("T")

_PLAIN = frozenset((bool, int, float, str, tuple, torch.Size, type(None)))
_NAMES: WeakKeyDictionary[nn.Module, tuple[tuple[str, ...], tuple[str, ...]]] = WeakKeyDictionary()


class Version:
    """The identity of a state: every change creates a new one; a copy of the state keeps it.

    Args:
        before: The version that became this one by absorbing a batch; None after other changes.
        batch: That batch.
    """

    def __init__(self, before: Version | None = None, batch: Rows | None = None) -> None:
        self.before, self.batch = before, batch
        self.points: int = 0 if before is None or batch is None else before.points + len(batch)

    def absorbing(self, batch: Rows, most: int) -> Version:
        """The version after a batch. At most ``most`` points are held in a row."""
        few = self.points + len(batch) <= most
        return Version(self, batch) if few else Version()

    def since(self, other: Version) -> list[Rows] | None:
        """The batches absorbed since another version; None if this is not known."""
        batches: list[Rows] = []
        version = self
        while version is not other:
            if version.before is None or version.batch is None:
                return None
            batches.append(version.batch)
            version = version.before
        return batches[::-1]

    def __deepcopy__(self, memo: dict[int, Any]) -> Version:
        return self


class Key:
    """Everything that a derived value depends on, recorded when the key is created.

    Keys are compared at every posterior, inside the loops of acquisition optimisers.

    Args:
        version: Version of the state.
        modules: Modules whose hyperparameters matter: their parts are compared by identity, and
            by their settings and raw values.
        others: Further objects, compared by identity.
    """

    __slots__ = ("others", "parts", "values", "version")

    def __init__(self, version: Version, modules: Sequence[Module] = (), *others: object) -> None:
        self.version, self.others = version, others
        self.parts = _parts(modules)
        self.values = [value for part in self.parts for value in _values(part)]

    def same_hyperparameters(self, other: Key) -> bool:
        """Whether the modules and their values are the same."""
        return self.parts == other.parts and self.values == other.values

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Key)
            and self.version is other.version
            and all(a is b for a, b in zip(self.others, other.others, strict=True))
            and self.same_hyperparameters(other)
        )

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Key:
        """The key of a model's copy: of the modules that are copied with it."""
        made = copy.copy(self)
        made.parts, made.others = copy.deepcopy((self.parts, self.others), memo)
        return made


class Derived(Generic[T]):
    """A cache of one derived value.

    Threads may use it without a lock: key and value are replaced together. A copy shares the
    value; a pickle omits it.
    """

    def __init__(self) -> None:
        self.entry: tuple[Key, T] | None = None

    def get(self, key: Key) -> T | None:
        """The value if it was computed for an equal key, else None."""
        entry = self.entry
        return entry[1] if entry is not None and entry[0] == key else None

    def made(self, key: Key, make: Callable[[], T]) -> T:
        """The value for a key, computed if there is none for an equal key."""
        found = self.get(key)
        return self.put(key, lasting(make)()) if found is None else found

    def put(self, key: Key, value: T) -> T:
        """Store and return the value for a key that was created before the computation."""
        self.entry = (key, value)
        return value

    def __deepcopy__(self, memo: dict[int, Any]) -> Derived[T]:
        made = Derived[T]()
        if self.entry is not None:
            made.entry = copy.deepcopy(self.entry[0], memo), self.entry[1]
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {"entry": None}


@dataclass(frozen=True)
class PosteriorSnapshot:
    """The ingredients of a posterior, independent of later changes of the surrogate.

    Attributes:
        process: The posterior process, in transformed space.
        noise: Typical noise variance (``o``), transformed; None if the noise is known and none
            was seen.
        outcome_transform: How raw outcomes became those of the process, or None.
    """

    process: PosteriorProcess
    noise: Tensor | None
    outcome_transform: OutcomeTransform | None

    def of_outputs(self, outputs: list[int]) -> PosteriorSnapshot:
        """The same of some outputs."""
        transform = self.outcome_transform
        return PosteriorSnapshot(
            self.process.outputs(outputs),
            None if self.noise is None else self.noise[outputs],
            None if transform is None else transform.subset_output(outputs),
        )

    def typical_noise(self) -> Tensor:
        """The typical noise variance (``o``).

        Raises:
            NoiseError: if no noise was seen.
        """
        if self.noise is None:
            raise NoiseError(
                "observations with known noise before their typical noise is used",
                "none so far",
                "Give the noise of new observations as a Tensor (`observation_noise`, `noise`).",
            )
        return self.noise


# -- hyperparameters -------------------------------------------------------------------------------


def fingerprint(module: Module) -> str:
    """Classes, settings and parameter shapes of a kernel, which a saved state must match."""
    parts = [f"{type(part).__name__}{settings_of(part)}" for part in _parts((module,))]
    shapes = [f"{name}{tuple(p.shape)}" for name, p in module.named_parameters()]
    return ";".join([*parts, *shapes])


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
        if type(value) in _PLAIN and name[0] != "_" and name != "training"
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
    """A kernel's settings, and a module's parameters and buffers, raw."""
    settings, tensors = _NAMES.get(part) or _names(part)
    attributes = vars(part)
    values = [v if type(v) in _PLAIN else repr(v) for v in map(attributes.get, settings)]
    for name in tensors:
        tensor = getattr(part, name, None)
        values.append(None if tensor is None else tensor.tolist())
    return values


def _names(module: nn.Module) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of a kernel's settings and of a module's tensors; cached."""
    tensors = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    names = {name: None for name, _ in tensors}
    settings: tuple[str, ...] = ()
    if isinstance(module, Kernel):
        settings = tuple(name for name, _ in settings_of(module))
        names["active_dims"] = None  # a buffer that may be None
    found = _NAMES[module] = settings, tuple(names)
    return found
