"""Conversion of modules and options to plain containers of tensors and back, without code.

An object is described by the public name of its class and the arguments of its constructor.
gpytorch, BoTorch and frozen dataclasses keep these as public attributes of the same names, with few
exceptions. Only classes of the packages below are described or called. Functions (transforms of
constraints and priors) are recognised by the values they compute, and `difference` checks in the
same way that a rebuilt module is equal.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
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

from bo_stream.errors import StateError, UnsupportedError

__all__ = ["REMEDY", "Reader", "Writer", "difference", "same"]

PACKAGES: dict[str, type] = {
    "gpytorch.kernels": Kernel,
    "gpytorch.means": Mean,
    "gpytorch.likelihoods": GaussianLikelihood,
    "gpytorch.constraints": Interval,
    "gpytorch.priors": Prior,
    "botorch.models.kernels": Kernel,
    "bo_stream.mathematics.hilbert_features.kernel": Kernel,
    "bo_stream.mathematics.warped.kernel": Kernel,
    "botorch.models.transforms.input": InputTransform,
    "botorch.models.transforms.outcome": OutcomeTransform,
    "bo_stream.growth": object,
    "bo_stream.actions": object,
    "bo_stream.base.fitting.schedule": object,
}
"""Allowed packages with the required base of their classes; this package's are dataclasses."""

ELSEWHERE = {
    "a": "low",
    "b": "high",
    "constant_prior": "mean_prior",
    "learn_bounds": "learn_coefficients",
}
"""Attributes whose arguments have another name."""

LEFT_OUT = {"bounds", "initial_value", "precision_matrix", "scale_tril", "validate_args"}
"""Arguments that follow from others and from the values of parameters and buffers; constraints are
described separately."""

FUNCTIONS = {"exp": torch.exp, "log": torch.log}
TRANSFORMS: dict[type, tuple[dict[str, Any], ...]] = {
    Interval: ({"transform": torch.exp, "inv_transform": torch.log}, {"transform": None}),
    Prior: ({"transform": torch.log}, {"transform": torch.exp}),
}
"""Transforms that a constraint or prior may have besides its default."""

SHIFT = 0.37
"""Offsets added to raw parameters, at which modules are compared as well."""

REMEDY = (
    "Keep the code that builds the surrogate, save its `state_dict()`, and load that into a "
    "surrogate built by the same code."
)


class Writer:
    """Describes objects; an object that occurs twice is described once and stays shared.

    Args:
        implied: Arguments by name that are known from elsewhere and left out.
    """

    def __init__(self, **implied: Any) -> None:
        self._implied = implied
        self._seen: dict[int, tuple[int, Any]] = {}

    def describe(self, value: Any) -> Any:
        """Describe an object as plain containers and tensors.

        Raises:
            UnsupportedError: naming an object that is neither plain nor of an allowed class.
        """
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, Tensor):
            return value.detach().cpu().clone()
        if isinstance(value, Integral | Real):
            return int(value) if isinstance(value, Integral) else float(value)
        if isinstance(value, list | nn.ModuleList):
            return [self.describe(v) for v in value]
        if type(value) in (tuple, Size):
            return type(value)(self.describe(v) for v in value)
        if type(value) is dict:
            return {"pairs": [(self.describe(k), self.describe(v)) for k, v in value.items()]}
        for name, function in FUNCTIONS.items():
            if value is function:
                return {"function": name}
        return self._object(value)

    def module(self, module: nn.Module) -> dict[str, Any]:
        """Describe a module with the constraints of its parameters."""
        described = {"made": self.describe(module), "constraints": {}}
        if isinstance(module, gpytorch.Module):
            for name, _, constraint in module.named_parameters_and_constraints():
                if constraint is not None:
                    described["constraints"][name] = self.describe(constraint)
        return described

    def _object(self, value: Any) -> dict[str, Any]:
        if id(value) in self._seen:
            return {"again": self._seen[id(value)][0]}
        name, positional, named = _name_of(value), *_arguments(value, self._implied)
        described: dict[str, Any] = {
            "class": name,
            "positional": [self.describe(v) for v in positional],
            "named": {k: self.describe(v) for k, v in named.items()},
        }
        number = described["number"] = len(self._seen)
        self._seen[id(value)] = number, value  # keeps the object alive, so its id stays unique
        return described


class Reader:
    """Rebuilds objects described by a `Writer`."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def rebuild(self, described: Any) -> Any:
        """Rebuild an object.

        Raises:
            StateError: for a class that is not allowed; errors of constructors are passed on.
        """
        if isinstance(described, list | tuple):
            return type(described)(self.rebuild(v) for v in described)
        if not isinstance(described, dict):
            return described
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
        """Rebuild a module with its constraints; its values are the initial ones."""
        module = cast(nn.Module, self.rebuild(described["made"]))
        for name, constraint in described["constraints"].items():
            owner, _, parameter = name.rpartition(".")
            holder = cast(gpytorch.Module, module.get_submodule(owner))
            holder.register_constraint(parameter, self.rebuild(constraint))
        return module


def _arguments(value: Any, implied: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The positional and named arguments that would rebuild an object."""
    if is_dataclass(value):
        return [], {f.name: getattr(value, f.name) for f in fields(value) if f.init}
    if isinstance(value, nn.ModuleDict):
        return [], dict(value.items())
    holder = value.noise_covar if isinstance(value, GaussianLikelihood) else value
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for p in _parameters(type(value)):
        if p.name in LEFT_OUT or p.name.endswith("_constraint"):
            continue
        held = next((n for n in (p.name, ELSEWHERE.get(p.name, "")) if hasattr(holder, n)), None)
        kept = implied.get(p.name) if held is None else getattr(holder, held)
        if p.name == "batch_shape" and isinstance(value, GaussianLikelihood):
            kept = holder.raw_noise.shape[:-1]
        if p.kind is p.VAR_POSITIONAL:
            positional = list(cast(Any, kept))
        elif not (kept is None or _is_default(kept, p) or (type(kept) is dict and not kept)):
            named[p.name] = kept  # a required argument that is kept nowhere fails at rebuilding
    for kind, choices in TRANSFORMS.items():
        if isinstance(value, kind):
            named |= _transform_of(value, type(value), named, choices)
    return positional, named


def _is_default(kept: Any, p: inspect.Parameter) -> bool:
    """Whether an argument may be left out: a default, or a transform described separately."""
    transform = p.name in ("transform", "inv_transform")
    return inspect.isroutine(kept) and (transform or kept is p.default)


def _parameters(kind: type) -> Iterator[inspect.Parameter]:
    """Parameters of a class's constructor, including those passed on to base classes."""
    known: set[str] = set()
    for base in kind.__mro__:
        if "__init__" not in vars(base):
            continue
        given = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        yield from (p for p in given if p.kind is not p.VAR_KEYWORD and p.name not in known)
        known |= {p.name for p in given}
        if not any(p.kind is p.VAR_KEYWORD for p in given):
            return


def _transform_of(
    value: Any, kind: type, named: dict[str, Any], choices: tuple[dict[str, Any], ...]
) -> dict[str, Any]:
    """The transform of a constraint or prior, recognised by the values it computes."""
    probe = torch.linspace(0.1, 2.0, 7, dtype=torch.float64).reshape(-1, 1, 1, 1)
    wanted = copy.deepcopy(value).to(probe).transform(probe)
    for choice in ({}, *choices):
        if torch.equal(kind(**named, **choice).to(probe).transform(probe), wanted):
            return choice
    return {}  # unknown: `difference` will report it


def _name_of(value: Any) -> str:
    """The public name of an object's class."""
    kind = type(value)
    for package in PACKAGES:
        here = kind.__module__.startswith(package)
        if here and getattr(import_module(package), kind.__name__, None) is kind:
            return f"{package}.{kind.__name__}"
    own = getattr(value, "__qualname__", f"{kind.__module__}.{kind.__qualname__}")  # a function's
    raise UnsupportedError(
        "modules and options of gpytorch, BoTorch and bo_stream in a surrogate to be saved",
        str(own),
        REMEDY,
    )


def _class_named(name: str) -> type:
    """Look up an allowed class by its public name."""
    package, _, own_name = name.rpartition(".")
    kind = getattr(import_module(package), own_name, None) if package in PACKAGES else None
    allowed = isinstance(kind, type) and issubclass(kind, PACKAGES[package])
    if not allowed or (PACKAGES[package] is object and not is_dataclass(kind)):
        raise StateError(
            f"classes of {', '.join(PACKAGES)}",
            name,
            "The file is damaged, or was written by another release; nothing was built.",
        )
    return cast(type, kind)


# -- comparing modules ---------------------------------------------------------------------------


def difference(a: nn.Module, b: nn.Module, dim: int, outputs: int) -> str | None:
    """The name of a quantity that two modules compute differently; None if they are equal.

    They are compared at their parameters and at others.

    Args:
        a: A module of a surrogate.
        b: The other module.
        dim: Number of inputs.
        outputs: Number of outputs.
    """
    for name in {n for n, _ in a.named_parameters()} ^ {n for n, _ in b.named_parameters()}:
        return name  # a parameter that is perhaps tied to another one
    a, b = (copy.deepcopy(m).double() for m in (a, b))
    for shift in (0.0, SHIFT):
        for parameter in (*a.parameters(), *b.parameters()):
            parameter.data.add_(shift)
        mine, theirs = (dict(_computed(m, dim, outputs)) for m in (a, b))
        for name in (*mine, *theirs):
            if name not in mine or name not in theirs or not same(mine[name], theirs[name]):
                return name
    return None


def _computed(module: nn.Module, dim: int, outputs: int) -> Iterator[tuple[str, Tensor]]:
    """The outputs and values of a module, by name."""
    generator = torch.Generator().manual_seed(0)
    X = 0.1 + torch.rand(5, dim, generator=generator, dtype=torch.float64)
    Y = 0.1 + torch.rand(5, outputs, generator=generator, dtype=torch.float64)
    yield from module.state_dict().items()
    if isinstance(module, gpytorch.Module):
        for name, parameter, constraint in module.named_parameters_and_constraints():
            if constraint is not None:
                yield f"{name}_constraint", constraint.transform(parameter)
        for name, owner, prior, closure, _ in module.named_priors():
            yield name, prior.log_prob(closure(owner)).sum()
    if isinstance(module, InputTransform):
        yield "forward", module(X)
    if isinstance(module, OutcomeTransform):
        yield "forward", module(Y, X=X)[0]


def same(a: Any, b: Any) -> bool:
    """Whether two plain values, tensors (on any device), or containers of them are equal."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        alike = a.dtype == b.dtype and a.shape == b.shape
        return alike and bool(torch.allclose(a.cpu(), b.cpu(), rtol=0.0, atol=0.0, equal_nan=True))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
