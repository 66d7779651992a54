"""What an object was built from, read from its attributes.

gpytorch, BoTorch and frozen dataclasses keep a constructor's arguments as attributes of the same
names, with few exceptions.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import gpytorch
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import NormalPrior, Prior
from torch import nn

from bo_stream.base.module_equality import same

__all__ = ["arguments", "priors_by_name"]

ELSEWHERE: dict[str, tuple[str, ...]] = {
    "a": ("low",),
    "b": ("high",),
    "constant_prior": ("mean_prior",),
    "learn_bounds": ("learn_coefficients",),
    "scale_tril": ("_unbroadcasted_scale_tril",),
}
"""Where a class keeps an argument under another name than its own."""

IMPLIED = {"covariance_matrix", "precision_matrix", "initial_value"}
"""Arguments that others say already; constraints, too, are told apart."""

_MISSING = object()


def arguments(value: Any) -> tuple[list[Any], dict[str, Any]]:
    """What the constructor of an object would take: positional arguments, and named ones.

    Constraints, and priors that were registered by name, are left to be registered again.
    """
    if isinstance(value, nn.ModuleDict):
        return [], dict(value.items())
    holder = value.noise_covar if isinstance(value, GaussianLikelihood) else value
    registered = [prior for name, prior, _ in priors_by_name(holder) if "." not in name]
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for p in _parameters(type(value)):
        kept = _kept(holder, p.name)
        if kept is _MISSING or any(kept is prior for prior in registered):
            continue  # what is needed and kept nowhere shows when the object is rebuilt
        if p.kind is p.VAR_POSITIONAL:
            positional = list(kept)
        elif not _left_out(kept, p.default):
            named[p.name] = kept
    return positional, named


def _left_out(kept: Any, default: Any) -> bool:
    """Whether an argument need not be given: None (or nothing, for it), or the default function."""
    if default is None:
        return kept is None or (isinstance(kept, dict) and not kept)
    return inspect.isroutine(kept) and same(kept, default)


def _parameters(kind: type) -> Iterator[inspect.Parameter]:
    """Parameters of a class's constructor, those handed on to base classes included."""
    known: set[str] = set()
    for base in kind.__mro__:
        if "__init__" not in vars(base):
            continue
        given = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        yield from (p for p in given if p.kind is not p.VAR_KEYWORD and p.name not in known)
        known |= {p.name for p in given}
        if not any(p.kind is p.VAR_KEYWORD for p in given):
            return


def _kept(value: Any, name: str) -> Any:
    """What an object was given for an argument, where it keeps that under its name or ``_name``."""
    if name in IMPLIED or name.endswith("_constraint"):
        return _MISSING
    held = dict(vars(value))
    for group in ("_parameters", "_buffers", "_modules"):
        held.update(held.get(group, {}))
    for candidate in (name, f"_{name}", *ELSEWHERE.get(name, ())):
        if candidate in held:
            return held[candidate]
    if name == "batch_shape" and "raw_noise" in held:
        return held["raw_noise"].shape[:-1]
    return getattr(value, name, _MISSING)


def priors_by_name(module: Any) -> Iterator[tuple[str, Prior, str]]:
    """Priors registered on a parameter by its name: full name, prior, parameter."""
    if isinstance(module, gpytorch.Module):
        for name, _, prior, closure, _ in module.named_priors():
            if getattr(closure, "__code__", None) is _BY_NAME:
                yield name, prior, inspect.getclosurevars(closure).nonlocals["param"]


def _code_by_name() -> Any:
    """The code by which gpytorch looks up a parameter that a prior was registered on by name."""
    module = gpytorch.Module()
    module.register_parameter("p", nn.Parameter(torch.zeros(())))
    module.register_prior("p_prior", NormalPrior(0.0, 1.0), "p")
    return next(iter(module.named_priors()))[3].__code__


_BY_NAME = _code_by_name()
