"""Checkpoints: a surrogate in one file, rebuilt by its class.

The file holds plain containers and tensors: the class, the arguments of its constructor without
data, and its `state_dict`. It is read by ``torch.load(weights_only=True)``, so it cannot execute
code. Modules that the class makes itself are made again. A user's kernel, mean, likelihood,
transform or policy is handed in when the file is loaded.
"""

from __future__ import annotations

import copy
import inspect
import io
import os
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from numbers import Integral, Real
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import gpytorch
import torch
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Standardize
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor, nn

from bo_stream.base.changes import exclusive
from bo_stream.base.hyperparameter_key import settings_of
from bo_stream.base.plain_policies import from_plain, to_plain
from bo_stream.errors import InputError, StateError, UnsupportedError

__all__ = ["build", "dumps", "load", "loadable", "loads", "read", "save"]

FORMAT = "bo_stream checkpoint"
VERSION = 3
MODULES = ("covar_module", "mean_module", "likelihood", "input_transform", "outcome_transform")
TRANSFORMS = {"input_transform": Normalize, "outcome_transform": Standardize}
"""Transforms that are made again, by the name of their argument; others are handed in."""

_LOADABLE: dict[str, type[Any]] = {}


def loadable(kind: type[Any]) -> type[Any]:
    """Register a class for loading checkpoints; a later class replaces one of the same name."""
    if not inspect.isabstract(kind):
        _LOADABLE[_registered(kind)] = kind
    return kind


def dumps(model: Any) -> bytes:
    """Serialise a surrogate to the contents of a file.

    Args:
        model: The surrogate, which is not changed.

    Raises:
        UnsupportedError: if its class cannot be built from the options in its attributes.
    """
    file = io.BytesIO()
    try:
        document = _describe(model)
    except Exception as error:
        raise UnsupportedError(
            "a surrogate whose class keeps its options in attributes of the same names",
            f"a {type(model).__name__} ({type(error).__name__}: {error})",
            "Save its `state_dict()`, and load that into a surrogate built by the same code.",
        ) from error
    torch.save(document, file)
    return _compressed(file)


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a surrogate to a file atomically: if interrupted, an older file is kept.

    Args:
        model: The surrogate, which is not changed.
        path: The file to write.

    Raises:
        UnsupportedError: if its class cannot be built from the options in its attributes.
    """
    contents = dumps(model)
    target = Path(path)
    part = target.with_name(f".{target.name}.{uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], **modules: Any) -> Any:
    """Load a saved surrogate on the CPU; it continues bit-identically.

    A family defined outside bo_stream must be imported first.

    Args:
        path: The path given to `save`.
        modules: Modules and policies of your own that the surrogate was built with, by the names
            of the constructor's arguments: ``covar_module``, ``mean_module``, ``likelihood``,
            ``input_transform``, ``outcome_transform``, ``growth``, ... They are copied, and their
            parameters and buffers are those of the file. Defaults, `Normalize` and `Standardize`
            need nothing.

    Raises:
        InputError: if one of these is missing, or of another class than the saved one.
        StateError: if the file is damaged, of another format or version, names an unknown class,
            or does not fit the modules.
        OSError: if the file cannot be read.

    Example:
        >>> import tempfile, torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from bo_stream import ExactGP, load
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> model = ExactGP(X, X.sum(-1, keepdim=True), covar_module=RBFKernel())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.pt")
        ...     again = load(f"{folder}/model.pt", covar_module=RBFKernel())
        >>> again.num_observed
        20
    """
    return loads(Path(path).read_bytes(), Path(path).name, **modules)


def loads(contents: bytes, name: str = "the checkpoint", **modules: Any) -> Any:
    """Rebuild a surrogate from the contents of a file; see `load`.

    Args:
        contents: The result of `dumps`.
        name: Name used in error messages.
        modules: As for `load`.
    """
    return build(read(contents, name), name, **modules)


def read(contents: bytes, name: str = "the checkpoint") -> dict[str, Any]:
    """Read what a file describes and check it for damage, format and version.

    Args:
        contents: The result of `dumps`.
        name: Name used in error messages.

    Returns:
        The arguments of `build`. Its entry ``handed_in`` names the modules to be handed in.
    """
    file = io.BytesIO(contents)
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()  # torch itself does not look at the checksums
        file.seek(0)
        document: Any = None if damaged else torch.load(file, weights_only=True)
    except Exception as error:
        raise _not_a_checkpoint(name, type(error).__name__) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _not_a_checkpoint(name, "damaged" if document is None else "of another kind")
    if document.get("version") != VERSION:
        raise StateError(
            f"a checkpoint of version {VERSION}",
            f"one of version {document.get('version')}",
            "Load it with the release that saved it, or build the surrogate from the data.",
        )
    return document


def build(document: Mapping[str, Any], name: str = "the checkpoint", **modules: Any) -> Any:
    """Build the surrogate of a file.

    Args:
        document: The result of `read`.
        name: Name used in error messages.
        modules: As for `load`.
    """
    _check_handed_in(document, name, modules)
    try:
        with warnings.catch_warnings(action="ignore"):
            model = _empty(document, modules)
            model.load_state_dict(document["state"])
        for parameter, learned in document["learned"].items():
            model.get_parameter(parameter).requires_grad_(learned)
        model._outcomes_left_out = document["outcomes_left_out"]
        found = {key: _facts(module) for key, module in _modules(model._arguments()).items()}
        unlike = [key for key, facts in document["modules"].items() if not _same(facts, found[key])]
    except StateError:
        raise
    except Exception as error:
        raise StateError(
            "a checkpoint that builds the surrogate it was written from",
            f"{name} ({type(error).__name__}: {error})",
            "Load it with the releases of bo_stream, gpytorch and BoTorch that saved it, and with "
            "modules built as the saved ones were; if these are the same, it is damaged.",
        ) from error
    if unlike:
        raise StateError(
            f"the {', '.join(unlike)} that {name} was written with",
            "other classes, settings, constraints or priors",
            f"Hand it in, built as it was: bo_stream.load(path, {unlike[0]}=...); a default of the "
            "family needs the releases of gpytorch and BoTorch that saved it.",
        )
    return model


def _compressed(file: io.BytesIO) -> bytes:
    """The archive with the entries compressed that are mostly zeros, as sums of few points are."""
    smaller = io.BytesIO()
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(smaller, "w") as written:
        for name in archive.namelist():
            entry = archive.read(name)
            sparse = entry.count(0) > len(entry) / 2
            how = zipfile.ZIP_DEFLATED if sparse else zipfile.ZIP_STORED
            written.writestr(zipfile.ZipInfo(name), entry, how, compresslevel=1)
    return smaller.getvalue()


def _not_a_checkpoint(name: str, why: str) -> StateError:
    return StateError(
        "a complete file written by `save`",
        f"{name} ({why})",
        "Nothing was built; load an earlier checkpoint.",
    )


@exclusive
def _describe(model: Any) -> dict[str, Any]:
    """Describe a surrogate as plain containers and tensors."""
    arguments = model._arguments()
    plain = {name: _plain(value) for name, value in arguments.items()}
    modules = _modules(arguments)
    facts = {name: _facts(module) for name, module in modules.items()}
    own = {k: v for k, v in arguments.items() if k not in modules and not _is_plain(plain[k])}
    for name in (name for name in modules if name in TRANSFORMS):
        made = _made(name, modules[name].state_dict())
        if not _alike(made, modules[name], facts[name]):
            own[name] = modules[name]
    document = {
        "format": FORMAT,
        "version": VERSION,
        "class": _registered(type(model)),
        "arguments": {k: v for k, v in plain.items() if k not in own and k not in modules},
        "modules": facts,
        "outcomes_left_out": getattr(model, "_outcomes_left_out", False),
        "learned": {name: p.requires_grad for name, p in model.named_parameters()},
        "state": {name: value.detach().cpu().clone() for name, value in model.state_dict().items()},
    }
    with warnings.catch_warnings(action="ignore"):  # shown already when it was first built
        default = _modules(_empty(document, own)._arguments())
    for name in (name for name in modules if name not in TRANSFORMS):
        if not _alike(default[name], modules[name], facts[name]):
            own[name] = modules[name]
    return document | {"handed_in": {name: _class_name(value) for name, value in own.items()}}


def _empty(document: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    """The surrogate before any data, with transforms as they were."""
    arguments = {k: from_plain(k, _read(v)) for k, v in document["arguments"].items()}
    arguments |= copy.deepcopy(dict(own))
    for name in TRANSFORMS.keys() & document["modules"].keys():
        state = {
            key.partition(f"{name}.")[2]: value
            for key, value in document["state"].items()
            if f"{name}." in key
        }
        transform = arguments[name] if name in own else _made(name, state)
        transform.to(torch.float64).eval().load_state_dict(state)
        arguments[name] = transform
    if arguments.get("train_Yvar") is not None and "likelihood" in document["modules"]:
        shape = document["state"]["likelihood.noise_covar.raw_noise"].shape[:-1]
        arguments.setdefault("likelihood", GaussianLikelihood(batch_shape=shape))
    return _class_of(document["class"])(**arguments)


def _check_handed_in(document: Mapping[str, Any], name: str, modules: Mapping[str, Any]) -> None:
    """Refuse modules that are missing, unknown or of other classes."""
    needed = document["handed_in"]
    missing = {key: kind for key, kind in needed.items() if key not in modules}
    if missing:
        raise InputError(
            f"what {name} does not hold: "
            + ", ".join(f"{key} of class {kind}" for key, kind in missing.items()),
            f"no {', '.join(missing)}",
            "Hand it in, built as it was: bo_stream.load(path, "
            f"{', '.join(f'{key}=...' for key in needed)}).",
        )
    known = document["modules"] | needed
    for key, value in modules.items():
        if key not in known or _class_name(value) != needed.get(key, _class_name(value)):
            raise InputError(
                f"{key} of class {needed[key]}" if key in needed else f"one of {', '.join(known)}",
                _class_name(value) if key in needed else key,
                f"Hand in what the surrogate in {name} was built with.",
            )


def _made(name: str, state: Mapping[str, Tensor]) -> nn.Module:
    """The transform that is made for an argument, of the size of a saved one."""
    sizes = [value.shape[-1] for value in state.values() if value.dim()]
    return TRANSFORMS[name](sizes[0] if sizes else 1).to(torch.float64).eval()


def _modules(arguments: Mapping[str, Any]) -> dict[str, nn.Module]:
    """The kernel, mean, likelihood and transforms among the arguments of a constructor."""
    return {
        name: arguments[name]
        for name in MODULES
        if arguments.get(name) is not None and isinstance(arguments[name], nn.Module)
    }


def _alike(made: nn.Module, module: nn.Module, facts: Mapping[str, Any]) -> bool:
    """Whether a new module, once it has the values of another one, has the same facts."""
    try:
        made.load_state_dict(module.state_dict())
    except RuntimeError:
        return False
    return _same(_facts(made), facts)


@torch.no_grad()
def _facts(module: nn.Module) -> dict[str, Any]:
    """Classes and settings of a module's parts, and what its constraints and priors compute."""
    parts = [f"{n}: {_class_name(part)}{settings_of(part)}" for n, part in module.named_modules()]
    values: dict[str, Tensor] = {name: torch.zeros(0) for name, _ in module.named_parameters()}
    if isinstance(module, gpytorch.Module):
        for name, parameter, constraint in module.named_parameters_and_constraints():
            if constraint is not None:
                values[name] = constraint.transform(parameter).cpu()
        for name, owner, prior, closure, _ in module.named_priors():
            with suppress(ValueError):  # outside of the prior's support
                values[name] = prior.log_prob(closure(owner)).sum().cpu()
    return {"parts": parts, "values": values}


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two modules' facts are equal, up to the rounding of another processor."""
    ours, theirs = a["values"], b["values"]
    return (
        a["parts"] == b["parts"]
        and ours.keys() == theirs.keys()
        and all(
            value.shape == theirs[name].shape
            and torch.allclose(value, theirs[name], rtol=1e-5, equal_nan=True)
            for name, value in ours.items()
        )
    )


def _plain(value: Any) -> Any:
    """A value as plain containers and tensors; what is neither stays as it is."""
    value = to_plain(value)
    if isinstance(value, Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, Integral | Real) and not isinstance(value, bool):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, type) and value in _LOADABLE.values():
        return {"class": _registered(cast("type[Any]", value))}
    return value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | dict):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, Tensor | bool | int | float | str)


def _read(value: Any) -> Any:
    """A value from plain containers."""
    return _class_of(value["class"]) if isinstance(value, dict) and "class" in value else value


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _registered(kind: type[Any]) -> str:
    """The name of a class in a checkpoint."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"


def _class_of(name: str) -> type[Any]:
    """Look up an imported class by name."""
    if name not in _LOADABLE:
        raise StateError(
            f"a family that has been imported: {', '.join(_LOADABLE)}",
            name,
            "Import the module that defines it, then load.",
        )
    return _LOADABLE[name]
