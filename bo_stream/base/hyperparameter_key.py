"""What hyperparameters mean: kernel classes, their settings and their values.

What was derived from hyperparameters holds while their meaning stays. Raw values alone do not tell:
a constraint gives them another meaning, a kernel may be replaced by one of equal raw values, and
settings such as Matern's ``nu`` are no parameters at all. gpytorch's setters write through
``.data``, so that identities and versions of tensors do not tell either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.module import Module
from torch import Tensor, nn

__all__ = ["Meaning", "fingerprint", "numbers_of"]

_PLAIN = frozenset((bool, int, float, str, tuple, torch.Size, type(None)))


class Meaning:
    """What the modules of a Gaussian process mean at one moment.

    Two are compared at every posterior, inside acquisition functions' loops: first by modules,
    settings and raw values as they stand, and only where these differ by what they mean.
    """

    __slots__ = ("_meant", "_modules", "_raw")

    def __init__(self, modules: Sequence[Module]) -> None:
        self._modules = tuple(modules)
        self._raw = _raw(self._modules)
        self._meant: tuple[Any, ...] | None = None

    def settle(self) -> Meaning:
        """Work out now what the modules mean, before they change; returns itself."""
        self._meant = _meant(self._modules)
        return self

    def as_it_stands(self, other: Meaning) -> bool:
        """Whether the same modules stand at the same settings and raw values."""
        return self._raw == other._raw

    def same_as(self, now: Meaning) -> bool:
        """Whether modules that stand differently now mean the same as when this was settled."""
        return self._meant is not None and self._meant == _meant(now._modules)


def fingerprint(module: Module) -> str:
    """Classes, settings and parameters' shapes of a kernel: what a saved state depends on."""
    parts = [f"{type(part).__name__}{_settings(part)}" for part in _walk((module,))]
    shapes = [f"{name}{tuple(p.shape)}" for name, p in module.named_parameters()]
    return ";".join([*parts, *shapes])


def numbers_of(*modules: Module) -> Tensor:
    """What modules mean, as numbers that can be kept in a state: ``p``, float64."""
    kernels, values, buffers = _meant(modules)
    settings = repr([(kind.__qualname__, plain) for kind, plain in kernels])
    digest = int.from_bytes(hashlib.sha256(settings.encode()).digest()[:6], "big")
    numbers = [torch.tensor(value, dtype=torch.float64) for _, value in (*values, *buffers)]
    flat = [n.reshape(-1) for n in numbers]
    return torch.cat([torch.tensor([float(digest)], dtype=torch.float64), *flat])


def _walk(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """The modules and all inside them, in a fixed order."""
    found: list[nn.Module] = []
    waiting: list[nn.Module | None] = list(modules)
    while waiting:
        module = waiting.pop()
        if module is not None:
            found.append(module)
            waiting.extend(module._modules.values())
    return found


def _settings(module: nn.Module) -> tuple[tuple[str, Any], ...]:
    """Plain settings of a module: those of a kernel matter, such as ``nu``."""
    return tuple(
        (name, value)
        for name, value in vars(module).items()
        if type(value) in _PLAIN and name[0] != "_" and name != "training"
    )


def _raw(modules: Sequence[nn.Module]) -> tuple[Any, ...]:
    parts = _walk(modules)
    settings = [_settings(part) for part in parts if isinstance(part, Kernel)]
    tensors = [t for m in parts for t in (*m._parameters.values(), *m._buffers.values())]
    return parts, settings, [None if t is None else t.tolist() for t in tensors]


def _meant(modules: Sequence[Module]) -> tuple[Any, ...]:
    parts = _walk(modules)
    kernels = [(type(part), _settings(part)) for part in parts if isinstance(part, Kernel)]
    values = []
    for module in modules:
        for name, parameter, constraint in module.named_parameters_and_constraints():
            value = parameter if constraint is None else constraint.transform(parameter)
            values.append((name, value.tolist()))
    buffers = [
        (name, b.tolist())
        for part in parts
        if isinstance(part, Kernel)
        for name, b in part._buffers.items()
        if b is not None
    ]
    return kernels, values, buffers
