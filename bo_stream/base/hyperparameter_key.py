"""Hyperparameters as a cache key: kernel classes, settings and parameter values.

Results computed from hyperparameters are valid until one of them changes. Raw parameter values
alone do not show this: a new constraint transforms them differently, a kernel may be replaced by
another with equal raw values, and settings such as Matern's ``nu`` are not parameters. Tensor
identities and versions do not either, because gpytorch's setters write through ``.data``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.module import Module
from gpytorch.priors import Prior
from torch import Tensor, nn

__all__ = ["HyperparameterKey", "fingerprint", "numbers_of", "settings_of"]

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
