"""Checkpoints: a surrogate in one file, rebuilt by its class.

The file holds plain containers and tensors: the class, the arguments of its constructor without
data, and its `state_dict`. It is read by ``torch.load(weights_only=True)``, so it cannot execute
code. What was left out of the constructor is made again. A kernel, mean, likelihood, transform or
policy that it was passed is handed in when the file is loaded.
"""

from __future__ import annotations

import copy
import inspect
import io
import json
import os
import warnings
import zipfile
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from functools import partial, wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import gpytorch
import torch
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Standardize
from torch import Tensor, nn

from bo_stream.base.fitting import log_prior
from bo_stream.base.options import from_plain, is_plain, to_plain
from bo_stream.base.snapshot import numbers_of, settings_of
from bo_stream.base.stream import exclusive
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.mathematics.autograd import lasting

__all__ = [
    "EXTRA",
    "STATE_VERSION",
    "adopt",
    "build",
    "dumps",
    "load",
    "load_part",
    "loadable",
    "loads",
    "packed",
    "read",
    "save",
    "unpacked",
]

STATE_VERSION = 9
EXTRA, STREAM = "_extra_state", "stream."
LEARNED = ("covar_module", "mean_module", "likelihood")
OF_DATA = (STREAM, "bounds", "input_transform.", "outcome_transform.")
"""Prefix of the entries of a `state_dict` that come from data, not from fits."""
WITHOUT_DATA = ("class", "version", "dim", "outputs", "noise", "kernel")
"""Layout entries that must match if only hyperparameters are loaded."""


def packed(metadata: Mapping[str, Any]) -> Tensor:
    """Metadata as a tensor of bytes, so that a `state_dict` holds nothing but tensors."""
    return torch.tensor(list(json.dumps(metadata).encode()), dtype=torch.uint8)


def unpacked(value: Any) -> dict[str, Any] | None:
    """The metadata in an entry of a `state_dict`; None if there are none.

    Earlier releases stored a mapping.
    """
    if isinstance(value, Mapping):
        value = packed(value)
    try:
        found = json.loads(bytes(value.to(torch.uint8).tolist())) if len(value) else None
    except (AttributeError, TypeError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def adopt(model: Any, header: Mapping[str, Any]) -> None:
    """Take over the saved standardisation, or its absence, if the constructor left it out.

    Args:
        model: The surrogate.
        header: The metadata of the saved state.
    """
    kind = (header.get("transforms") or [None, None])[1]
    old = model._frozen_outcomes
    have = type(old).__name__
    if not model._outcomes_left_out or {kind, have} != {"Standardize", "NoneType"}:
        return
    new = Standardize(m=model.num_outputs).to(model._like).eval() if have == "NoneType" else None
    model._lock.on_failure(partial(_put_outcome_transform, model, old))
    _put_outcome_transform(model, new)


def _put_outcome_transform(model: Any, transform: nn.Module | None) -> None:
    if transform is not None:
        model.outcome_transform = transform
    elif hasattr(model, "outcome_transform"):
        del model.outcome_transform


def load_state(model: Any, state: Mapping[str, Any], strict: bool, assign: bool) -> Any:
    """Load a `state_dict` within a change; see `StreamingGP.load_state_dict`."""
    state = dict(state)
    if assign:  # the caller keeps the tensors that are loaded
        state = {k: v.clone() if isinstance(v, Tensor) else v for k, v in state.items()}
    buffers = (b for name, b in model.named_buffers() if not name.startswith(STREAM))
    model._lock.restores([*model.parameters(), *buffers])
    check_header(model, state)
    checked = state if loads_data(model, state) else with_own_data(model, state)
    check_keys(model, checked, strict)
    return nn.Module.load_state_dict(model, state, strict, assign)


def load_part(model: Any, state: MutableMapping[str, Any], prefix: str) -> None:
    """Replace a surrogate's stream by a saved one after checking it; or keep it.

    If it is kept, the entries of data in ``state`` become the surrogate's own.

    Args:
        model: The surrogate.
        state: A `state_dict`, possibly of a module that contains the surrogate.
        prefix: Prefix of the surrogate's entries.
    """
    own = {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}
    check_header(model, own)
    saved = {k[len(STREAM) :]: v for k, v in own.items() if k.startswith(STREAM)}
    if loads_data(model, own):
        stream = model.stream.contents.loaded(saved, model._sizes())
        model._replace(**{part: getattr(stream, part) for part in vars(stream)})
        return
    _warn_of_more(model, saved.get("count"))
    _load_hyperparameters(model, own)
    kept = with_own_data(model, own)
    for name in own.keys() - kept.keys():
        del state[prefix + name]
    state.update({prefix + name: value for name, value in kept.items()})


def _load_hyperparameters(model: Any, saved: Mapping[str, Any]) -> None:
    """Load them before torch does, because the state of some families depends on them."""
    before = [p.detach().clone() for p in model.parameters()]
    modules = LEARNED[:-1] if model.noise_mode == "known" else LEARNED  # its noise comes with data
    for name in modules:
        start = len(name) + 1
        part = {k[start:]: v for k, v in saved.items() if k.startswith(f"{name}.")}
        getattr(model, name).load_state_dict(part, strict=False)
    if not all(map(torch.equal, model.parameters(), before)):
        model._hyperparameters_changed(saved)


def loads_data(model: Any, state: Mapping[str, Any]) -> bool:
    """Whether to load the data of a saved state: by default if the surrogate has none."""
    if EXTRA not in state and not any(name.startswith(STREAM) for name in state):
        return False  # some hyperparameters
    wanted: bool | None = model._loads_data
    return model.num_observed == 0 if wanted is None else wanted


def with_own_data(model: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """A saved state with the surrogate's own entries of data."""
    of_data = (*OF_DATA, "likelihood.") if model.noise_mode == "known" else OF_DATA
    own = {k: v for k, v in model.state_dict().items() if k.startswith(of_data)}
    return {**{k: v for k, v in state.items() if not k.startswith(of_data)}, **own}


def _warn_of_more(model: Any, count: Any) -> None:
    """Warn if a surrogate leaves out a state of more observations than it has itself."""
    saved = int(count) if isinstance(count, Tensor) and count.numel() == 1 else 0
    if model._loads_data is None and saved > model.num_observed > 0:
        warnings.warn(
            f"The surrogate keeps its {model.num_observed} observations and takes only the "
            f"hyperparameters of a state of {saved}. To resume that state, use `save` and "
            "`bo_stream.load`, or load it into a surrogate built without data (n = 0).",
            stacklevel=5,
        )


def check_header(model: Any, state: Mapping[str, Any]) -> None:
    """Adapt a surrogate to a saved state's metadata, or refuse it.

    Args:
        model: The surrogate.
        state: Its saved `state_dict`. Hyperparameters alone need no metadata.

    Raises:
        StateError: if the state is of another version or layout.
    """
    full = loads_data(model, state)
    header = unpacked(state.get(EXTRA)) or {}
    if EXTRA not in state and not full:
        return
    if header.get("version") != STATE_VERSION:
        raise StateError(
            f"a state of version {STATE_VERSION}",
            f"one of version {header.get('version')}",
            "Load it with the release that saved it, or build the surrogate from the data.",
        )
    if full:
        model._adopt(header)
    own = unpacked(packed(model._header())) or {}
    compared = [k for k in own.keys() | header.keys() if full or k in WITHOUT_DATA]
    differs = sorted(key for key in compared if own.get(key) != header.get(key))
    if differs:
        raise StateError(
            f"a state of {own}",
            f"{header} (different: {', '.join(differs)})",
            "Load it into a surrogate built as the saved one was.",
        )


def check_keys(model: Any, state: Mapping[str, Any], strict: bool) -> None:
    """Refuse a `state_dict` with missing, unexpected, misshapen or NaN entries.

    Raises:
        StateError: naming the entries.
    """
    own = model.state_dict()
    missing, unexpected = set(own) - set(state), set(state) - set(own)
    if strict and (missing or unexpected):
        raise StateError(
            f"the state of a {type(model).__name__} built with the same arguments",
            f"missing {sorted(missing)}, unexpected {sorted(unexpected)}",
            "Build the surrogate as the saved one was, then load.",
        )
    for name in set(own) - missing:
        mine, saved = own[name], state[name]
        if name == EXTRA:
            continue
        fits = isinstance(saved, Tensor) and (
            mine.shape == saved.shape or name.startswith(STREAM)  # streams may have any size
        )
        if not fits:
            shape = tuple(saved.shape) if isinstance(saved, Tensor) else type(saved).__name__
            raise StateError(
                f"{name} of shape {tuple(mine.shape)}",
                f"{shape}",
                "Build the surrogate with the modules and transforms the saved one had.",
            )
        if saved.is_floating_point() and "constraint" not in name and bool(saved.isnan().any()):
            raise StateError(
                f"{name} without NaN", "NaN", "The saved state is damaged; load an earlier one."
            )


FORMAT = "bo_stream checkpoint"
VERSION = 4
MODULES = ("covar_module", "mean_module", "likelihood", "input_transform", "outcome_transform")
TRANSFORMS = {"input_transform": Normalize, "outcome_transform": Standardize}
"""Transforms that are made again, by the name of their argument; others are handed in."""

NO_CHECKPOINT = "a complete file written by `save`", "one that is damaged, or of another kind"

_LOADABLE: dict[str, type[Any]] = {}


def loadable(kind: type[Any]) -> None:
    """Register a class for loading checkpoints; a later class replaces one of the same name.

    Its constructor runs outside of torch's inference mode, and its objects note the names of the
    modules that were passed to it.
    """
    if "__init__" in vars(kind):
        init = kind.__init__

        @wraps(init)
        def construct(self: Any, *args: Any, **options: Any) -> None:
            passed = {name for name in MODULES if isinstance(options.get(name), nn.Module)}
            vars(self).setdefault("_modules_passed", passed)
            init(self, *args, **options)

        kind.__init__ = lasting(construct)
    if not inspect.isabstract(kind):
        _LOADABLE[_registered(kind)] = kind


def dumps(model: Any) -> bytes:
    """Serialise a surrogate to the contents of a file.

    Args:
        model: The surrogate, which is not changed.

    Raises:
        UnsupportedError: if its class cannot be built from the options in its attributes.
    """
    file = io.BytesIO()
    try:
        torch.save(_describe(model), file)
    except AttributeError as error:
        raise UnsupportedError(
            "a surrogate whose class keeps its options in attributes of the same names",
            f"a {type(model).__name__} ({error})",
            "Save its `state_dict()`, and load that into a surrogate built by the same code.",
        ) from error
    return file.getvalue()


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
        modules: The modules that the surrogate was built with, and policies of your own, by the
            names of the constructor's arguments: ``covar_module``, ``mean_module``, ``likelihood``,
            ``input_transform``, ``outcome_transform``, ``growth``, ... They are copied, and their
            parameters and buffers are those of the file. What was left out, `Normalize` and
            `Standardize` need nothing.

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
        raise StateError(*NO_CHECKPOINT, f"Nothing was built of {name}.") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise StateError(*NO_CHECKPOINT, f"Nothing was built of {name}.")
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
        found = _numbers(model)
        unlike = [key for key, own in document["numbers"].items() if not _close(own, found[key])]
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


@exclusive
def _describe(model: Any) -> dict[str, Any]:
    """Describe a surrogate as plain containers and tensors."""
    arguments = model._arguments()
    modules = {n: arguments[n] for n in MODULES if isinstance(arguments.get(n), nn.Module)}
    plain = {n: _plain(value) for n, value in arguments.items() if n not in modules}
    own = {n: arguments[n] for n, value in plain.items() if not is_plain(value)}
    for name, module in modules.items():
        made = _is_remade(name, module) if name in TRANSFORMS else name not in model._modules_passed
        if not made:
            own[name] = module
    return {
        "format": FORMAT,
        "version": VERSION,
        "class": _registered(type(model)),
        "arguments": {name: value for name, value in plain.items() if name not in own},
        "transforms": [name for name in TRANSFORMS if name in modules],
        "handed_in": {name: _class_name(value) for name, value in own.items()},
        "numbers": _numbers(model),
        "outcomes_left_out": getattr(model, "_outcomes_left_out", False),
        "learned": {name: p.requires_grad for name, p in model.named_parameters()},
        "state": {name: value.detach().cpu().clone() for name, value in model.state_dict().items()},
    }


def _empty(document: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    """The surrogate before any data, with transforms as they were."""
    arguments = {k: from_plain(k, _read(v)) for k, v in document["arguments"].items()}
    arguments |= copy.deepcopy(dict(own))
    for name in document["transforms"]:
        state = {
            key.partition(f"{name}.")[2]: value
            for key, value in document["state"].items()
            if f"{name}." in key
        }
        transform = arguments[name] if name in own else _made(name, state)
        transform.to(torch.float64).eval().load_state_dict(state)
        arguments[name] = transform
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
    known = dict.fromkeys(MODULES) | needed
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


def _is_remade(name: str, transform: nn.Module) -> bool:
    """Whether a transform is a `Normalize` or `Standardize` with no settings but its values."""
    made = _made(name, transform.state_dict())
    try:
        made.load_state_dict(transform.state_dict())
    except RuntimeError:
        return False
    mine, theirs = ([(type(m), settings_of(m)) for m in own.modules()] for own in (made, transform))
    return mine == theirs


@torch.no_grad()
def _numbers(model: Any) -> dict[str, Tensor]:
    """What settings, constraints and priors of each module make of the state."""
    found = {}
    for name, module in model._arguments().items():
        if isinstance(module, gpytorch.Module):
            density = torch.zeros(1).double()
            with suppress(ValueError):  # outside of a prior's support
                density += log_prior(module)
            found[name] = torch.cat([numbers_of(module), density])
    return found


def _close(a: Tensor, b: Tensor) -> bool:
    """Whether numbers are equal up to the rounding of another processor."""
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, equal_nan=True)


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
