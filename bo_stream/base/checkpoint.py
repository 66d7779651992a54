"""Checkpoints: a surrogate in one file, rebuilt from that file alone.

The file holds plain containers and tensors: the class, its constructor's arguments (modules and
options are described in `bo_stream.base.serialization`), and its `state_dict`. It is read by
``torch.load(weights_only=True)``, so it cannot execute code. A surrogate is built from known
classes only.
"""

from __future__ import annotations

import inspect
import io
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from bo_stream.base.changes import exclusive
from bo_stream.base.serialization import REMEDY, Reader, Writer, difference, same
from bo_stream.errors import StateError, UnsupportedError

__all__ = ["dumps", "load", "loadable", "loads", "save"]

FORMAT = "bo_stream checkpoint"
VERSION = 2
MODULES = ("covar_module", "mean_module", "likelihood", "input_transform", "outcome_transform")

_LOADABLE: dict[str, type[Any]] = {}


def loadable(kind: type[Any]) -> type[Any]:
    """Register a class for loading checkpoints; a later class replaces one of the same name."""
    if not inspect.isabstract(kind):
        _LOADABLE[f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"] = kind
    return kind


def dumps(model: Any) -> bytes:
    """Serialise a surrogate to the contents of a file.

    Args:
        model: The surrogate, which is not changed.

    Raises:
        UnsupportedError: if a module or option cannot be described, such as a custom kernel.
    """
    file = io.BytesIO()
    torch.save(_checked_document(model), file)
    return _compressed(file)


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a surrogate to a file atomically: if interrupted, an older file is kept.

    Args:
        model: The surrogate, which is not changed.
        path: The file to write.

    Raises:
        UnsupportedError: if a module or option cannot be described, such as a custom kernel.
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
    """Load a saved surrogate on the CPU; it continues bit-identically.

    A family defined outside bo_stream must be imported first.

    Args:
        path: The path given to `save`.

    Raises:
        StateError: if the file is damaged, of another format or version, or names an unknown
            class.
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
    """Rebuild a surrogate from the contents of a file; see `load`.

    Args:
        contents: The result of `dumps`.
        name: Name used in error messages.
    """
    document = _read(contents, name)
    cause: Exception | None = None
    try:
        with warnings.catch_warnings(action="ignore"):
            model = _build(document)
        if same(_describe(model), document):
            return model
        why = "it builds a different one"
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


def _read(contents: bytes, name: str) -> dict[str, Any]:
    """Read a file's document and check it for damage, format and version."""
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
        "a complete file written by `save`",
        f"{name} ({why})",
        "Nothing was built; load an earlier checkpoint.",
    )


@exclusive
def _checked_document(model: Any) -> dict[str, Any]:
    """Describe a surrogate as plain containers and tensors, checked to rebuild the same surrogate.

    Raises:
        UnsupportedError: naming the part that would differ.
    """
    document = _describe(model)
    with warnings.catch_warnings(action="ignore"):  # shown already when it was first built
        try:
            unlike = _difference(model, document)
            again = document if unlike else _describe(_build(document))
        except Exception as error:
            raise UnsupportedError(
                "modules and options that can be built from their settings alone",
                f"{type(error).__name__}: {error}",
                REMEDY,
            ) from error
    unlike = unlike or next((k for k, v in document.items() if not same(v, again[k])), None)
    if unlike is not None:
        raise UnsupportedError(
            "modules and options that can be described by their classes and settings",
            f"a {type(model).__name__} whose {unlike} would differ once rebuilt",
            REMEDY,
        )
    return document


def _describe(model: Any) -> dict[str, Any]:
    """Describe a surrogate as plain containers and tensors."""
    kind = type(model)
    head = {
        "format": FORMAT,
        "version": VERSION,
        "class": f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}",
    }
    if hasattr(model, "_parts"):  # composed of several surrogates
        settings, parts = model._parts()
        return {**head, "settings": settings, "parts": {k: _describe(v) for k, v in parts.items()}}
    writer = Writer(d=model._dim, m=model.num_outputs)
    children = dict(model.named_children())
    modules = {name: children.get(name) for name in MODULES}
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
            for k, v in (model.state_dict() | {"_extra_state": model._header()}).items()
        },
    }


def _build(document: dict[str, Any]) -> Any:
    """Build the surrogate described by a document."""
    kind = _class_of(document["class"])
    if "parts" in document:
        parts = {name: _build(part) for name, part in document["parts"].items()}
        return kind._of_parts(document["settings"], parts)
    state, reader = document["state"], Reader()
    dim, outputs = document["sizes"]
    X = torch.empty(0, dim, dtype=document["dtype"])
    Y = X.new_empty(0, outputs)
    Yvar = None if document["noise"] == "learned" else Y
    modules = _modules(document, reader)
    options = {k: reader.rebuild(v) for k, v in document["options"].items()}
    model = kind(X, Y, Yvar, bounds=state.get("bounds"), **modules, **options)
    model.load_state_dict(state)
    model._outcomes_left_out = document["outcomes_left_out"]
    for name, learned in document["learned"].items():
        model.get_parameter(name).requires_grad_(learned)
    return model


def _modules(document: dict[str, Any], reader: Reader) -> dict[str, Any]:
    """Build the modules described by a document, with their values."""
    modules: dict[str, Any] = {}
    for name, described in document["modules"].items():
        modules[name] = described and reader.module(described)
        if described is not None:
            start = len(name) + 1
            state = document["state"].items()
            own = {k[start:]: v for k, v in state if k.startswith(f"{name}.")}
            dtype = torch.float64 if name.endswith("transform") else document["dtype"]
            modules[name].to(dtype).eval().load_state_dict(own)
    return modules


def _difference(model: Any, document: dict[str, Any]) -> str | None:
    """Where a document's module differs from the surrogate's; None if they are equal."""
    if "parts" in document:
        parts = model._parts()[1].items()
        found = (_difference(part, document["parts"][name]) for name, part in parts)
        return next((part for part in found if part is not None), None)
    children = dict(model.named_children())
    for name, module in _modules(document, Reader()).items():
        if module is not None:
            part = difference(children[name], module, model._dim, model.num_outputs)
            if part is not None:
                return f"{name}.{part}"
    return None


def _class_of(name: str) -> type[Any]:
    """Look up an imported class by name."""
    if name not in _LOADABLE:
        raise StateError(
            f"a family that has been imported: {', '.join(_LOADABLE)}",
            name,
            "Import the module that defines it, then load.",
        )
    return _LOADABLE[name]
