"""Checkpoints: a surrogate in one file, rebuilt by its class.

The file holds plain containers and tensors: the class, the arguments of its constructor without
data, and its `state_dict`. It is read by ``torch.load(weights_only=True)``, so it cannot execute
code. Kernels, means, likelihoods and transforms are not in it: the constructor makes its defaults
again, and any other module that it was passed, as a policy of your own, is handed in when the file
is loaded. What was handed in or made is compared with a description of what was saved.
"""

from __future__ import annotations

import copy
import inspect
import io
import json
import os
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import gpytorch
import torch
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Standardize
from torch import Tensor, nn

from bo_stream.base.fitting import log_prior
from bo_stream.base.options import from_plain, is_plain, to_plain
from bo_stream.base.stream import (
    Changeable,
    StreamBuffers,
    class_name,
    exclusive,
    fingerprint,
    numbers_of,
)
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.mathematics.autograd import lasting

__all__ = [
    "EXTRA",
    "OF_DATA",
    "STATE_VERSION",
    "STREAM",
    "Saveable",
    "build",
    "check_values",
    "dumps",
    "entries",
    "load",
    "packed",
    "read",
    "unpacked",
]

STATE_VERSION = 10
EXTRA, STREAM = "_extra_state", "stream."
OF_DATA = (STREAM, "bounds", "input_transform.", "outcome_transform.")
"""Prefix of the entries of a `state_dict` that come from data, not from fits."""


def packed(metadata: Mapping[str, Any]) -> Tensor:
    """Metadata as a tensor of bytes, so that a `state_dict` holds nothing but tensors."""
    return torch.tensor(list(json.dumps(metadata).encode()), dtype=torch.uint8)


def unpacked(value: Any) -> dict[str, Any]:
    """The metadata in an entry of a `state_dict`; empty if there are none."""
    try:
        found = json.loads(bytes(value.tolist()))
    except (AttributeError, TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def entries(state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The entries of a `state_dict` whose names begin with a prefix, without it."""
    return {name[len(prefix) :]: v for name, v in state.items() if name.startswith(prefix)}


def check_values(saved: Mapping[str, Any]) -> None:
    """Refuse what is no tensor or has NaN, and a count that is no whole number."""
    for name, value in saved.items():
        wrong = not isinstance(value, Tensor) or ("constraint" not in name and value.isnan().any())
        if wrong or (name == "stream.count" and (value.ndim or value.is_floating_point())):
            remedy = "The saved state is damaged; load an earlier one."
            raise StateError(f"{name} without NaN, of its kind", "NaN, or another kind", remedy)


FORMAT = "bo_stream checkpoint"
VERSION = 6
TRANSFORMS = {"input_transform": Normalize, "outcome_transform": Standardize}
"""Transforms that are made again, by the name of their argument; others are handed in."""

_LOADABLE: dict[str, type[Any]] = {}


class Saveable(Changeable, nn.Module, ABC):
    """A model with one or several streams that is saved, and loaded by its class.

    Constructors of subclasses run outside of torch's inference mode. A later class replaces one of
    the same name.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = lasting(cls.__init__)  # type: ignore[method-assign]
        if not inspect.isabstract(cls):
            _LOADABLE[_registered(cls)] = cls

    @abstractmethod
    def _arguments(self) -> dict[str, Any]:
        """The arguments of its constructor by name, with no data."""

    @abstractmethod
    def _header(self) -> dict[str, Any]:
        """Class and settings, which are checked when a state is loaded."""

    def _noted(self) -> dict[str, Any]:
        """Plain values that are saved with the header, and loaded with the data."""
        return {}

    @property
    def state_bytes(self) -> int:
        """Size in bytes of all state buffers."""
        streams = (part for part in self.modules() if isinstance(part, StreamBuffers))
        return sum(buffer.nbytes for stream in streams for buffer in stream.buffers())

    def get_extra_state(self) -> Tensor:
        """The metadata of a `state_dict` as a tensor of bytes."""
        return packed(self._header() | self._noted())

    def set_extra_state(self, state: Any) -> None:
        """Do nothing: the metadata are read when a `state_dict` is loaded."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint atomically, from which `bo_stream.load` rebuilds the model.

        If interrupted, an older file is kept. It holds the class, its options and the
        `state_dict`, no code: a kernel, mean, likelihood, transform or policy of your own is handed
        to `load` again.

        Args:
            path: The file to write.

        Raises:
            UnsupportedError: if the class cannot be built from the options in its attributes.
        """
        contents = dumps(self)
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


@exclusive
def dumps(model: Saveable) -> bytes:
    """Serialise a surrogate to the contents of a file.

    Args:
        model: The surrogate, which is not changed.

    Raises:
        UnsupportedError: if its class cannot be built from the options in its attributes.
    """
    try:
        arguments = model._arguments()
    except AttributeError as error:
        raise UnsupportedError(
            "a surrogate whose class keeps its options in attributes of the same names",
            f"a {type(model).__name__} ({error})",
            "Save its `state_dict()`, and load that into a surrogate built by the same code.",
        ) from error
    kinds = {
        n: fingerprint(value) for n, value in arguments.items() if isinstance(value, nn.Module)
    }
    plain = {n: _plain(value) for n, value in arguments.items() if n not in kinds}
    own = {n: class_name(arguments[n]) for n, value in plain.items() if not is_plain(value)}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "class": _registered(type(model)),
        "arguments": {name: value for name, value in plain.items() if name not in own},
        "handed_in": own,
        "kinds": kinds,
        "numbers": _numbers(arguments),
        "outcomes_left_out": getattr(model, "_outcomes_left_out", False),
        "learned": {name: p.requires_grad for name, p in model.named_parameters()},
        "state": {name: value.detach().clone() for name, value in model.state_dict().items()},
    }
    file = io.BytesIO()
    torch.save(document, file)
    return file.getvalue()


def load(path: str | os.PathLike[str], **modules: Any) -> Any:
    """Load a saved surrogate on the CPU; it continues bit-identically.

    A family defined outside bo_stream must be imported first.

    Args:
        path: The path given to `save`.
        modules: The modules that the surrogate was built with, and policies of your own, by the
            names of the constructor's arguments: ``covar_module``, ``mean_module``, ``likelihood``,
            ``input_transform``, ``outcome_transform``, ``growth``, ... They are copied, and their
            parameters and buffers are those of the file. What was left out, `Normalize` and
            `Standardize` need nothing.

    Raises:
        InputError: if one of these is missing, or of another class, or with other settings,
            constraints or priors, than the saved one.
        StateError: if the file is damaged, of another format or version, or names an unknown class.
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
    return build(read(Path(path).read_bytes(), Path(path).name), Path(path).name, **modules)


def read(contents: bytes, name: str = "the checkpoint") -> dict[str, Any]:
    """Read what a file describes and check it for damage, format and version.

    Args:
        contents: The result of `dumps`.
        name: Name used in error messages.

    Returns:
        The arguments of `build`. Its entries ``kinds`` and ``handed_in`` describe by name the
        modules, which may have to be handed in, and what must be.
    """
    document: Any = None
    with suppress(Exception), zipfile.ZipFile(io.BytesIO(contents)) as archive:
        attributes = any(entry.external_attr for entry in archive.infolist())  # as of a folder
        if archive.testzip() is None and not attributes:  # torch looks at no checksums
            document = torch.load(io.BytesIO(contents), "cpu", weights_only=True)
    read = document if isinstance(document, dict) else {}
    if (read.get("format"), read.get("version")) != (FORMAT, VERSION):
        raise StateError(
            f"a complete file written by `save`, of version {VERSION}",
            f"one that is damaged, or of another kind, or of version {read.get('version')}",
            f"Nothing was built of {name}. Load it with the release that saved it, or build the "
            "surrogate from the data.",
        )
    return read


def build(document: Mapping[str, Any], name: str = "the checkpoint", **modules: Any) -> Any:
    """Build the surrogate of a file.

    Args:
        document: The result of `read`.
        name: Name used in error messages.
        modules: As for `load`.
    """
    if document["class"] not in _LOADABLE:
        raise StateError(
            f"a family that has been imported: {', '.join(_LOADABLE)}",
            document["class"],
            "Import the module that defines it, then load.",
        )
    kinds, needed = document["kinds"], document["handed_in"]
    known = [*kinds, *needed]
    unknown = [key for key in modules if key not in known]
    if unknown:
        remedy = f"Hand in what the surrogate in {name} was built with."
        raise InputError(f"one of {', '.join(known)}", ", ".join(unknown), remedy)
    unlike = [key for key in needed if class_name(modules.get(key)) != needed[key]]
    try:
        with warnings.catch_warnings(action="ignore"):
            arguments = _arguments(document, modules)
            unlike += _unlike(kinds, {name: arguments.get(name) for name in TRANSFORMS})
            if not unlike:
                model = _LOADABLE[document["class"]](**arguments)
                unlike = _unlike(kinds, dict.fromkeys(kinds) | model._arguments())
            if not unlike:
                model.load_state_dict(document["state"])
                for parameter, learned in document["learned"].items():
                    model.get_parameter(parameter).requires_grad_(learned)
                model._outcomes_left_out = document["outcomes_left_out"]
                saved, found = document["numbers"], _numbers(model._arguments())
                close = partial(torch.allclose, rtol=1e-5, equal_nan=True)  # on any processor
                unlike = [key for key in saved if not close(saved[key], found[key])]
    except Exception as error:
        raise StateError(
            "a checkpoint that builds the surrogate it was written from",
            f"{name} ({type(error).__name__}: {error})",
            "Load it with the releases of bo_stream, gpytorch and BoTorch that saved it, and with "
            "modules built as the saved ones were; if these are the same, it is damaged.",
        ) from error
    if unlike:
        classes = {key: (kinds | needed)[key].partition(" ")[0] for key in unlike}
        raise InputError(
            f"what {name} was written with: "
            + ", ".join(f"{key} of class {kind}" for key, kind in classes.items()),
            "none, or others by class, settings, constraints or priors",
            "Hand in what you built it with, built as it was: bo_stream.load(path, "
            f"{', '.join(f'{key}=...' for key in unlike)}). A default of the family needs the "
            "releases of gpytorch and BoTorch that saved it.",
        )
    return model


def _arguments(document: Mapping[str, Any], modules: Mapping[str, Any]) -> dict[str, Any]:
    """The constructor's arguments, with transforms as they were."""
    arguments = {
        name: from_plain(name, _LOADABLE.get(value, value) if isinstance(value, str) else value)
        for name, value in document["arguments"].items()
    }
    arguments |= copy.deepcopy(dict(modules))
    for name, kind in TRANSFORMS.items():
        if name not in document["kinds"]:
            continue
        state = {
            key.partition(f"{name}.")[2]: value
            for key, value in document["state"].items()
            if f"{name}." in key
        }
        if name not in modules:
            sizes = [value.shape[-1] for value in state.values() if value.dim()]
            arguments[name] = kind(max(sizes, default=1))
        transform = arguments[name].to(torch.float64).eval()
        if fingerprint(transform) == document["kinds"][name]:
            transform.load_state_dict(state)
    return arguments


def _unlike(kinds: Mapping[str, str], found: Mapping[str, Any]) -> list[str]:
    return [key for key in kinds if key in found and fingerprint(found[key]) != kinds[key]]


@torch.no_grad()
def _numbers(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """What settings, constraints and priors of each module make of the state."""
    found = {}
    for name, module in arguments.items():
        if isinstance(module, gpytorch.Module):
            density = torch.zeros(1).double()
            with suppress(ValueError):  # outside of a prior's support
                density += log_prior(module)
            found[name] = torch.cat([numbers_of(module), density])
    return found


def _plain(value: Any) -> Any:
    """An argument as plain containers and tensors; what is neither stays as it is."""
    if isinstance(value, Tensor):
        return value
    return _registered(value) if isinstance(value, type) else to_plain(value)


def _registered(kind: type[Any]) -> str:
    """The name of a class in a checkpoint."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
