"""Checkpoints: a surrogate in one file, rebuilt from that file alone.

The file holds plain containers and tensors: the class, how its modules and options are made
(`bo_stream.base.serialization`), and its `state_dict`. It is read by
``torch.load(weights_only=True)``, so that it cannot bring code along; a surrogate is built from
known classes only.
"""

from __future__ import annotations

import inspect
import io
import os
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from bo_stream.base.composite import Composite
from bo_stream.base.module_equality import difference, same
from bo_stream.base.serialization import REMEDY, Reader, Writer
from bo_stream.base.state import HeldState
from bo_stream.errors import StateError, UnsupportedError

__all__ = ["dumps", "load", "loads", "save"]

FORMAT = "bo_stream checkpoint"
VERSION = 1
MODULES = ("covar_module", "mean_module", "likelihood", "input_transform", "outcome_transform")


def dumps(model: Any) -> bytes:
    """A surrogate as the contents of a file.

    Args:
        model: The surrogate; it stays as it is.

    Raises:
        UnsupportedError: if a module or option cannot be described, such as a kernel of one's own.
    """
    file = io.BytesIO()
    torch.save(model._lock(_document)(model), file)
    return file.getvalue()


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a surrogate to a file, in one piece: interrupted, it leaves an older file as it was.

    Args:
        model: The surrogate; it stays as it is.
        path: Where to.

    Raises:
        UnsupportedError: if a module or option cannot be described, such as a kernel of one's own.
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


def load(path: str | os.PathLike[str]) -> Any:
    """The surrogate that was saved to a file, on the CPU, as it was: it goes on bit-identically.

    A family defined outside bo_stream must have been imported before.

    Args:
        path: What `save` was given.

    Raises:
        StateError: if the file is damaged, of another format or version, or asks for a class that
            is not known.
        OSError: if the file cannot be read.

    Example:
        >>> import tempfile, torch
        >>> from bo_stream import ExactGP, load
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> model = ExactGP(X, X.sum(-1, keepdim=True))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.pt")
        ...     again = load(f"{folder}/model.pt")
        >>> again.num_observed
        20
    """
    return loads(Path(path).read_bytes(), Path(path).name)


def loads(contents: bytes, name: str = "the checkpoint") -> Any:
    """The surrogate in the contents of a file; see `load`.

    Args:
        contents: What `dumps` gave.
        name: By which errors call it.
    """
    document = _read(contents, name)
    cause: Exception | None = None
    try:
        with warnings.catch_warnings(action="ignore"):
            model = _build(document)
        if same(_describe(model), document):
            return model
        why = "it builds another one"
    except StateError:
        raise
    except Exception as error:
        why, cause = f"{type(error).__name__}: {error}", error
    raise StateError(
        "a checkpoint that builds the surrogate it was written from",
        f"{name} ({why})",
        "Load it with the releases of bo_stream, gpytorch and BoTorch that saved it; if these are "
        "the same, it is damaged.",
    ) from cause


def _read(contents: bytes, name: str) -> dict[str, Any]:
    """The document in a file, checked for damage, format and version."""
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


def _not_a_checkpoint(name: str, why: str) -> StateError:
    return StateError(
        "a file written by `save`, whole",
        f"{name} ({why})",
        "Nothing was built; load an earlier checkpoint.",
    )


def _document(model: Any) -> dict[str, Any]:
    """A surrogate as plain containers and tensors, found to come back as the same."""
    document = _describe(model)
    with warnings.catch_warnings(action="ignore"):  # who built the surrogate has seen them
        _check_faithful(model, document)
    return document


def _describe(model: Any) -> dict[str, Any]:
    """A surrogate as plain containers and tensors."""
    head = {"format": FORMAT, "version": VERSION, "class": _name(type(model))}
    if isinstance(model, Composite):
        settings, parts = model._taken_apart()
        described = {name: _describe(part) for name, part in parts.items()}
        return {**head, "settings": settings, "parts": described}
    writer = Writer()
    modules = {name: getattr(model, name, None) for name in MODULES}
    if model.noise_mode == "known":
        modules["likelihood"] = None
    return {
        **head,
        "sizes": [model._dim, model.num_outputs],
        "dtype": model.dtype,
        "noise": model.noise_mode,
        "modules": {k: m if m is None else writer.module(m) for k, m in modules.items()},
        "options": {k: writer.describe(v) for k, v in model._options().items()},
        "outcomes_left_out": model._outcomes_left_out,
        "learned": {name: p.requires_grad for name, p in model.named_parameters()},
        "state": {
            k: v.detach().cpu().clone() if isinstance(v, torch.Tensor) else v
            for k, v in model.state_dict().items()
        },
    }


def _modules(document: dict[str, Any], reader: Reader) -> dict[str, Any]:
    """The modules that a document describes, with their values."""
    modules = {k: m and reader.module(m) for k, m in document["modules"].items()}
    for name, module in modules.items():
        if module is not None:
            prefix = f"{name}."
            own = {
                k[len(prefix) :]: v for k, v in document["state"].items() if k.startswith(prefix)
            }
            kind = torch.float64 if name.endswith("transform") else document["dtype"]
            module.to(kind).eval().load_state_dict(own)
    return modules


def _build(document: dict[str, Any]) -> Any:
    """The surrogate that a document describes."""
    if "parts" in document:
        parts = {name: _build(part) for name, part in document["parts"].items()}
        return _family(document["class"])._put_together(document["settings"], parts)
    state, reader = document["state"], Reader()
    dim, outputs = document["sizes"]
    X = torch.empty(0, dim, dtype=document["dtype"])
    Y = X.new_empty(0, outputs)
    Yvar = None if document["noise"] == "learned" else Y
    modules = _modules(document, reader)
    options = {k: reader.rebuild(v) for k, v in document["options"].items()}
    family = _family(document["class"])
    model = family(X, Y, Yvar, bounds=state.get("bounds"), **modules, **options)
    model.load_state_dict(state)
    model._outcomes_left_out = document["outcomes_left_out"]
    for name, learned in document["learned"].items():
        model.get_parameter(name).requires_grad_(learned)
    return model


def _check_faithful(model: Any, document: dict[str, Any]) -> None:
    """Refuse to save what would come back as something else, naming it."""
    if isinstance(model, Composite):
        for name, part in model._taken_apart()[1].items():
            _check_faithful(part, document["parts"][name])
        return
    try:
        unlike = _unlike(model, _modules(document, Reader()))
        if unlike is None:
            twin = _build(document)
            again = _describe(twin)
            unlike = _unlike(model, {name: getattr(twin, name, None) for name in MODULES})
            unlike = unlike or next((k for k, v in document.items() if not same(v, again[k])), None)
    except Exception as error:
        raise UnsupportedError(
            "modules and options that can be built from their settings alone",
            f"{type(error).__name__}: {error}",
            REMEDY,
        ) from error
    if unlike is not None:
        raise UnsupportedError(
            "modules and options that can be described by their classes and settings",
            f"a {type(model).__name__} whose {unlike} would come back different",
            REMEDY,
        )


def _unlike(model: Any, modules: dict[str, Any]) -> str | None:
    """Name of the first part of a surrogate's modules that is another in these."""
    for name, module in modules.items():
        mine = getattr(model, name, None)
        if mine is not None and module is not None:
            part = difference(mine, module)
            if part is not None:
                return f"{name}.{part}"
    return None


def _name(family: type) -> str:
    """A family's name: the package it comes from, whatever the file, and its own."""
    return f"{family.__module__.partition('.')[0]}.{family.__qualname__}"


def _family(name: str) -> type[Any]:
    """The family of a name, among those that have been imported; the last one defined."""
    known = [*_families(HeldState), *_families(Composite)]
    found = [family for family in known if _name(family) == name]
    if not found:
        raise StateError(
            f"a family that has been imported: {', '.join(map(_name, known))}",
            name,
            "Import the module that defines it, then load.",
        )
    return found[-1]


def _families(base: type[Any]) -> Iterator[type[Any]]:
    """The families that have been imported, in the order of their definition."""
    for family in base.__subclasses__():
        if not inspect.isabstract(family):
            yield family
        yield from _families(family)
