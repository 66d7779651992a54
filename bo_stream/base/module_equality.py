"""Whether two modules are the same throughout: classes, settings, values, functions.

Modules are compared attribute by attribute, so that nothing a user has changed on one of them goes
unnoticed. What is no part of a model stays out: hooks count by their number only, and the value a
constraint started its parameter from is spent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sized
from numbers import Number
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["difference", "same"]

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_SPENT = "_initial_value"


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same: plain values, tensors on any device, containers, modules,
    functions. Objects of other kinds are taken as the same where their classes are.
    """
    if isinstance(a, Number) and isinstance(b, Number):
        return bool(a == b)
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.cpu(), b.cpu())
    if isinstance(a, nn.Module):
        return difference(a, b) is None
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if inspect.isroutine(a):
        return _same_function(a, b)
    return bool(a == b) if isinstance(a, str | bytes | torch.dtype) else True


def difference(a: nn.Module, b: nn.Module) -> str | None:
    """Name of the first part in which ``b`` is unlike ``a``; None if there is none."""
    mine, theirs = (dict(m.named_modules(remove_duplicate=False)) for m in (a, b))
    for name, part in mine.items():
        differs = _difference(part, theirs[name]) if name in theirs else "class"
        if differs is not None:
            return f"{name}.{differs}".lstrip(".")
    untied = [{name for name, _ in m.named_parameters()} for m in (a, b)]
    return min((theirs.keys() - mine.keys()) | (untied[0] ^ untied[1]), default=None)


def _difference(a: nn.Module, b: nn.Module) -> str | None:
    """Name of the first own attribute in which ``b`` is unlike ``a``; None if there is none."""
    if type(a) is not type(b):
        return "class"
    for mine, theirs in ((a._parameters, b._parameters), (a._buffers, b._buffers)):
        for name in mine.keys() | theirs.keys():
            if (
                name not in mine
                or name not in theirs
                or not same(_plain(mine[name]), _plain(theirs[name]))
            ):
                return name
    for name in vars(a).keys() | vars(b).keys():
        held = [vars(m)[name] for m in (a, b) if name in vars(m)]
        if name in _OF_EVERY_MODULE:
            if isinstance(held[0], Sized) and len(held[0]) != len(held[1]):
                return name
        elif len(held) < 2:  # worked out when first asked for, unless the class knows nothing of it
            if not hasattr(type(a), name):
                return name
        elif name != _SPENT and not same(*held):
            return name
    return None


def _plain(value: Tensor | None) -> Tensor | None:
    """A parameter as the tensor it is."""
    return None if value is None else value.detach()


def _same_function(f: Callable[..., Any], g: Callable[..., Any]) -> bool:
    """Whether two functions (or methods, whatever they are bound to) run the same code."""
    f, g = (getattr(function, "__func__", function) for function in (f, g))
    if f is g:
        return True
    code = getattr(f, "__code__", None)
    cells = [
        [cell.cell_contents for cell in function.__closure__ or ()]
        for function in (f, g)
        if hasattr(function, "__closure__")
    ]
    plain = all(isinstance(value, str | Number | type(None)) for kept in cells for value in kept)
    return code is not None and code == getattr(g, "__code__", None) and plain and same(*cells)
