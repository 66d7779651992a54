"""Loading a surrogate's `state_dict`, and the checks before.

A surrogate without data takes over everything. One that has data keeps them, with its transforms,
and takes over the hyperparameters, as BoTorch's models do (`CommonOptions.loads_data`).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import partial
from typing import Any

import torch
from botorch.models.transforms.outcome import Standardize
from torch import Tensor, nn

from bo_stream.base.hyperparameter_key import fingerprint
from bo_stream.errors import StateError

__all__ = [
    "EXTRA",
    "STATE_VERSION",
    "adopt",
    "header",
    "layout",
    "load",
    "load_part",
    "packed",
    "unpacked",
    "without_casts",
]

STATE_VERSION = 6
EXTRA, STREAM = "_extra_state", "stream."
MODULES = ("covar_module", "mean_module", "likelihood")
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


def layout(model: Any) -> dict[str, Any]:
    """The properties that two streams must share to be loaded or merged."""
    transforms = getattr(model, "input_transform", None), model._frozen_outcomes
    return {
        "dim": model._dim,
        "outputs": model.num_outputs,
        "noise": model.noise_mode,
        "kernel": fingerprint(model.covar_module),
        "transforms": [type(transform).__name__ for transform in transforms],
    }


def header(model: Any) -> dict[str, Any]:
    """The metadata saved with the tensors of a state."""
    head = {"class": type(model).__name__, "version": model.state_version}
    return {**head, **model._layout()}


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


def load(model: Any, state: Mapping[str, Any], strict: bool, assign: bool) -> Any:
    """Load a `state_dict` within a change; see `StreamingGP.load_state_dict`."""
    state = dict(state)
    if assign:  # the caller keeps the tensors that are loaded
        state = {k: v.clone() if isinstance(v, Tensor) else v for k, v in state.items()}
    buffers = (b for name, b in model.named_buffers() if not name.startswith(STREAM))
    written: Iterator[Tensor] = (t.detach() for t in (*model.parameters(), *buffers))
    model._undo.extend(partial(t.copy_, t.clone()) for t in written)
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
    modules = MODULES[:-1] if model.noise_mode == "known" else MODULES  # its noise comes with data
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


def without_casts(model: Any, fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """``fn`` of ``.to``, without casts for state, bounds and transforms, which only move."""
    device = fn(model._interface).device
    kept = [*model.stream.buffers(), model.bounds]
    for name in ("input_transform", "outcome_transform"):
        if hasattr(model, name):
            kept += getattr(model, name).buffers()
    ids = {id(tensor) for tensor in kept}
    return lambda tensor: tensor.to(device) if id(tensor) in ids else fn(tensor)


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
    if header.get("version") != model.state_version:
        raise StateError(
            f"a state of version {model.state_version}",
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
