"""Modules and options as plain containers of tensors, and back, without any code in between.

A recipe is a class by its public name, and the arguments that its constructor would take to make
the same object, read from the object's attributes. Only classes of the rooms below are ever
described or called. Functions are named where there is a name for them, and refused otherwise.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from importlib import import_module
from numbers import Integral, Real
from typing import Any, cast

import gpytorch
import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from gpytorch.priors import Prior
from torch import Size, Tensor, nn

from bo_stream.base.arguments import arguments, priors_by_name
from bo_stream.errors import StateError, UnsupportedError

__all__ = ["Reader", "Writer"]

ROOMS: dict[str, type] = {
    "gpytorch.kernels": Kernel,
    "gpytorch.means": Mean,
    "gpytorch.likelihoods": GaussianLikelihood,
    "gpytorch.constraints": Interval,
    "gpytorch.priors": Prior,
    "botorch.models.kernels": Kernel,
    "botorch.models.transforms.input": InputTransform,
    "botorch.models.transforms.outcome": OutcomeTransform,
    "torch.nn": nn.Softplus,
    "bo_stream.growth": object,
    "bo_stream.actions": object,
    "bo_stream.base.fitting.schedule": object,
}
"""Where classes may come from, and what they must be; those of this package are dataclasses."""

FUNCTIONS = {"exp": torch.exp, "log": torch.log, "sigmoid": torch.sigmoid}
"""What may be given to a constraint as its transform."""

REMEDY = (
    "Keep the code that builds the surrogate, save its `state_dict()`, and load that into a "
    "surrogate built by the same code."
)


class Writer:
    """Describes objects; an object met twice is described once, and shared when it is rebuilt."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, Any]] = {}

    def describe(self, value: Any) -> Any:
        """An object as plain containers and tensors.

        Raises:
            UnsupportedError: naming what is neither plain nor of an allowed class.
        """
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, Tensor):
            return value.detach().cpu().clone()
        if isinstance(value, Integral | Real):
            return int(value) if isinstance(value, Integral) else float(value)
        if isinstance(value, Size):
            return {"size": list(value)}
        if isinstance(value, list | nn.ModuleList):
            return [self.describe(v) for v in value]
        if type(value) is tuple:
            return tuple(self.describe(v) for v in value)
        if type(value) is dict:
            return {"pairs": [(self.describe(k), self.describe(v)) for k, v in value.items()]}
        for name, function in FUNCTIONS.items():
            if value is function:
                return {"function": name}
        return self._object(value)

    def module(self, module: nn.Module) -> dict[str, Any]:
        """A module with the constraints of its parameters, and priors registered by name."""
        described = {"made": self.describe(module)}
        if isinstance(module, gpytorch.Module):
            described["constraints"] = {
                name: self.describe(constraint)
                for name, _, constraint in module.named_parameters_and_constraints()
                if constraint is not None
            }
            described["priors"] = {
                name: (self.describe(prior), parameter)
                for name, prior, parameter in priors_by_name(module)
            }
        return described

    def _object(self, value: Any) -> dict[str, Any]:
        if id(value) in self._seen:
            return {"again": self._seen[id(value)][0]}
        name = _name_of(value)
        positional, named = arguments(value)
        described: dict[str, Any] = {
            "class": name,
            "positional": [self.describe(v) for v in positional],
            "named": {k: self.describe(v) for k, v in named.items()},
        }
        number = described["number"] = len(self._seen)
        self._seen[id(value)] = number, value  # held, so that its id stays its own
        return described


class Reader:
    """Rebuilds what a `Writer` has described."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def rebuild(self, described: Any) -> Any:
        """The object.

        Raises:
            StateError: on a class that is not allowed. What constructors raise passes.
        """
        if isinstance(described, list | tuple):
            return type(described)(self.rebuild(v) for v in described)
        if not isinstance(described, dict):
            return described
        if "size" in described:
            return Size(described["size"])
        if "pairs" in described:
            return {self.rebuild(k): self.rebuild(v) for k, v in described["pairs"]}
        if "function" in described:
            return FUNCTIONS[described["function"]]
        if "again" in described:
            return self._made[described["again"]]
        kind = _class_named(described["class"])
        positional = [self.rebuild(v) for v in described["positional"]]
        named = {k: self.rebuild(v) for k, v in described["named"].items()}
        made = self._made[described["number"]] = kind(*positional, **named)
        return made

    def module(self, described: dict[str, Any]) -> nn.Module:
        """The module, with its constraints and priors; values are those of a new one."""
        module = cast(nn.Module, self.rebuild(described["made"]))
        for name, constraint in described.get("constraints", {}).items():
            owner, _, parameter = name.rpartition(".")
            holder = cast(gpytorch.Module, module.get_submodule(owner))
            holder.register_constraint(parameter, self.rebuild(constraint))
        for name, (prior, parameter) in described.get("priors", {}).items():
            owner, _, own_name = name.rpartition(".")
            holder = cast(gpytorch.Module, module.get_submodule(owner))
            holder.register_prior(own_name, self.rebuild(prior), str(parameter))
        return module


def _name_of(value: Any) -> str:
    """The public name of an object's class."""
    kind = type(value)
    for room in ROOMS:
        here = kind.__module__.startswith(room)
        if here and getattr(import_module(room), kind.__name__, None) is kind:
            return f"{room}.{kind.__name__}"
    own = getattr(value, "__qualname__", f"{kind.__module__}.{kind.__qualname__}")  # a function's
    raise UnsupportedError(
        "modules and options of gpytorch, BoTorch and bo_stream in a surrogate to be saved",
        str(own),
        REMEDY,
    )


def _class_named(name: str) -> type:
    """The class of a public name, if it is allowed."""
    room, _, own_name = name.rpartition(".")
    kind = getattr(import_module(room), own_name, None) if room in ROOMS else None
    allowed = isinstance(kind, type) and issubclass(kind, ROOMS[room])
    if not allowed or (ROOMS[room] is object and not is_dataclass(kind)):
        raise StateError(
            f"classes of {', '.join(ROOMS)}",
            name,
            "The file is damaged, or was written by another release; nothing was built.",
        )
    return cast(type, kind)
