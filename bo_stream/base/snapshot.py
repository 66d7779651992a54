"""Results computed from state and hyperparameters, kept until one of these changes.

Raw parameter values alone do not show a change: a new constraint transforms them differently, a
kernel may be replaced by another with equal raw values, and settings such as Matern's ``nu`` are
not parameters. Tensor identities and versions do not either, because gpytorch's setters write
through ``.data``.
"""

from __future__ import annotations

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

from bo_stream.base.noise import noise_of_an_observation
from bo_stream.errors import NoiseError
from bo_stream.mathematics.conditioned import SubsetProcess, conditioned_on, unconditioned
from bo_stream.mathematics.lasting import lasting
from bo_stream.mathematics.process import PosteriorProcess

__all__ = [
    "Derived",
    "HyperparameterKey",
    "Key",
    "PosteriorCache",
    "PosteriorSnapshot",
    "Version",
    "fingerprint",
    "numbers_of",
    "settings_of",
]

_PLAIN = frozenset((bool, int, float, str, tuple, torch.Size, type(None)))
_NAMES: WeakKeyDictionary[nn.Module, tuple[tuple[str, ...], tuple[str, ...]]] = WeakKeyDictionary()


class HyperparameterKey:
    """The hyperparameters of some modules at the time the key is created.

    Keys are compared at every posterior, inside the loops of acquisition optimisers. `==` is fast:
    it compares the modules by identity, their settings and raw values. Keys that differ in these
    may still represent equal hyperparameters (`equivalent`), as for a copied kernel.
    """

    __slots__ = ("modules", "raw", "values")

    def __init__(self, modules: Sequence[Module]) -> None:
        self.modules = modules
        self.raw = _raw(modules)
        self.values: tuple[Any, ...] | None = None

    def settled(self) -> HyperparameterKey:
        """The key itself, after computing the transformed values that `equivalent` compares."""
        self.values = _values(self.modules)
        return self

    def equivalent(self, now: HyperparameterKey) -> bool:
        """Whether a new key represents the same kernel and transformed values."""
        return self.values is not None and self.values == _values(now.modules)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HyperparameterKey) and self.raw == other.raw

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> HyperparameterKey:
        return self


def fingerprint(module: Module) -> str:
    """Classes, settings and parameter shapes of a kernel, which a saved state must match."""
    parts = [f"{type(part).__name__}{settings_of(part)}" for part in _parts((module,))]
    shapes = [f"{name}{tuple(p.shape)}" for name, p in module.named_parameters()]
    return ";".join([*parts, *shapes])


def numbers_of(*modules: Module) -> Tensor:
    """Hyperparameters as a vector ``p`` that a state can hold, float64."""
    kernels, values, buffers = _values(modules)
    settings = repr([(kind.__qualname__, plain) for kind, plain in kernels])
    digest = int.from_bytes(hashlib.sha256(settings.encode()).digest()[:6], "big")
    numbers = [torch.tensor(value, dtype=torch.float64) for _, value in (*values, *buffers)]
    flat = [n.reshape(-1) for n in numbers]
    return torch.cat([torch.tensor([float(digest)], dtype=torch.float64), *flat])


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


def _raw(modules: Iterable[nn.Module]) -> tuple[Any, ...]:
    parts = _parts(modules)
    raw: list[Any] = []
    for part in parts:
        settings, tensors = _NAMES.get(part) or _names(part)
        held = vars(part)
        raw += [v if type(v) in _PLAIN else repr(v) for v in map(held.get, settings)]
        for name in tensors:
            tensor = getattr(part, name, None)
            raw.append(None if tensor is None else tensor.tolist())
    return parts, raw


def _names(module: nn.Module) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of a kernel's settings and of a module's own tensors; cached."""
    own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    tensors = {name: None for name, _ in own}
    settings: tuple[str, ...] = ()
    if isinstance(module, Kernel):
        settings = tuple(name for name, _ in settings_of(module))
        tensors["active_dims"] = None  # a buffer that may be None
    found = _NAMES[module] = settings, tuple(tensors)
    return found


def _values(modules: Iterable[Module]) -> tuple[Any, ...]:
    """Kernels with their settings, transformed parameters, and kernels' buffers."""
    modules = tuple(modules)
    kernels = [part for part in _parts(modules) if isinstance(part, Kernel)]
    values = []
    for module in modules:
        for name, parameter, constraint in module.named_parameters_and_constraints():
            value = parameter if constraint is None else constraint.transform(parameter)
            values.append((name, value.tolist()))
    buffers = [(n, b.tolist()) for part in kernels for n, b in part.named_buffers(recurse=False)]
    return [(type(part), settings_of(part)) for part in kernels], values, buffers


T = TypeVar("T")


class Version:
    """The identity of a state: every change creates a new one; a copy of the state keeps it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Version:
        return self


class Key:
    """Everything that a derived value depends on, recorded when the key is created.

    Args:
        version: Version of the state.
        modules: Modules whose hyperparameters matter.
        others: Further objects, compared by identity.
    """

    __slots__ = ("hyperparameters", "others", "version")

    def __init__(self, version: Version, modules: Sequence[Module] = (), *others: object) -> None:
        self.version, self.others = version, others
        self.hyperparameters = HyperparameterKey(modules)

    def same_data(self, other: Key) -> bool:
        """Whether everything but the hyperparameters is the same."""
        pairs = zip(self.others, other.others, strict=True)
        return self.version is other.version and all(a is b for a, b in pairs)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Key)
            and self.same_data(other)
            and self.hyperparameters == other.hyperparameters
        )

    __hash__ = None  # type: ignore[assignment]


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
        made = type(self)()
        made.entry = self.entry
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
            SubsetProcess(self.process, outputs),
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


@dataclass(frozen=True)
class Absorbed:
    """Transformed data absorbed between two versions of the state."""

    since: Version
    until: Version
    batches: tuple[tuple[Tensor, Tensor, Tensor], ...]

    @property
    def points(self) -> int:
        """Number of points."""
        return sum(len(X) for X, _, _ in self.batches)


class PosteriorCache(Derived[PosteriorSnapshot]):
    """The last snapshot of a surrogate, and the data absorbed since.

    Under unchanged hyperparameters the next posterior is the last one conditioned on these data,
    until there are too many of them for the family.
    """

    _absorbed: Absorbed | None = None

    def absorbed(
        self, since: Version, until: Version, X: Tensor, Y: Tensor, R: Tensor, most: int
    ) -> None:
        """Record data absorbed between two versions, at most ``most`` points."""
        batches: tuple[tuple[Tensor, Tensor, Tensor], ...] = ((X.clone(), Y.clone(), R.clone()),)
        if self._absorbed is not None and self._absorbed.until is since:
            since, batches = self._absorbed.since, self._absorbed.batches + batches
        made = Absorbed(since, until, batches)
        self._absorbed = made if made.points <= most else None

    def renewed(self, key: Key, model: Any) -> PosteriorSnapshot:
        """The current snapshot of a surrogate, conditioned from the last one if possible."""
        key.hyperparameters.settled()
        before, process = self.entry, None
        if before is not None and before[0].hyperparameters.equivalent(key.hyperparameters):
            process = self._conditioned(before[0].version, before[1].process, key.version, model)
        if process is None:
            process = model._build_process(model.state)
        noise = noise_of_an_observation(model)
        snapshot = PosteriorSnapshot(process, noise, model.outcome_map())
        self._absorbed = None
        return self.put(key, snapshot)

    def _conditioned(
        self, since: Version, process: PosteriorProcess, until: Version, model: Any
    ) -> PosteriorProcess | None:
        """The process of one version of the state, given what was absorbed until another."""
        if since is until:
            return process
        data = self._absorbed
        if data is None or data.since is not since or data.until is not until:
            return None
        if unconditioned(process)[1] + data.points > model.conditions_up_to:
            return None
        base = model._to_condition(process, data.points)
        if base is None:
            return None
        X, Y, R = zip(*data.batches, strict=True)
        noise = model._noise_scale().unsqueeze(-1) * torch.cat(R, -1)
        try:
            return conditioned_on(base, torch.cat(X), torch.cat(Y, -1), noise)
        except (NoiseError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            return None

    def __deepcopy__(self, memo: dict[int, Any]) -> PosteriorCache:
        made = PosteriorCache()
        made.entry, made._absorbed = self.entry, self._absorbed
        return made
