"""Loading a surrogate's `state_dict`, and the checks before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from botorch.models.transforms.outcome import Standardize
from torch import Tensor, nn

from bo_stream.base.hyperparameter_key import fingerprint
from bo_stream.base.incumbents import Incumbents
from bo_stream.errors import StateError

__all__ = ["STATE_VERSION", "adopt", "header", "layout", "load", "load_stream", "without_casts"]

STATE_VERSION = 5
STREAM = "stream."
OF_DATA = (STREAM, "bounds", "input_transform.", "outcome_transform.")
"""Prefix of the entries of a `state_dict` that come from data, not from fits."""
WITHOUT_DATA = ("class", "version", "dim", "outputs", "noise", "kernel")
"""Layout entries that must match if only hyperparameters are loaded."""


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
    best = model.stream.contents.incumbents
    kept = 0 if best is None else best.limit
    head = {"class": type(model).__name__, "version": STATE_VERSION, "incumbents": kept}
    return {**head, **model._layout()}


def adopt(model: Any, header: Mapping[str, Any]) -> None:
    """Take over the saved incumbents and standardisation, unless the constructor specified them.

    Args:
        model: The surrogate.
        header: The metadata of the saved state.
    """
    kept, best = header.get("incumbents", 0), model.stream.contents.incumbents
    if kept != (0 if best is None else best.limit):
        none = Incumbents.none(kept, model._dim, model.num_outputs, model._like) if kept else None
        model._note(incumbents=none)
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
    if not model._loads_data:
        own = {k: v for k, v in model.state_dict().items() if k.startswith(OF_DATA)}
        state = {**{k: v for k, v in state.items() if not k.startswith(OF_DATA)}, **own}
    if assign:  # the caller keeps the tensors that are loaded
        state = {k: v.clone() if isinstance(v, Tensor) else v for k, v in state.items()}
    buffers = (b for name, b in model.named_buffers() if not name.startswith(STREAM))
    written: Iterator[Tensor] = (t.detach() for t in (*model.parameters(), *buffers))
    model._undo.extend(partial(t.copy_, t.clone()) for t in written)
    check_header(model, state.get("_extra_state"))
    check_keys(model, state, strict)
    return nn.Module.load_state_dict(model, state, strict, assign)


def load_stream(model: Any, state: Mapping[str, Any], prefix: str) -> None:
    """Replace a surrogate's stream by a saved one after checking it.

    Args:
        model: The surrogate.
        state: A `state_dict`, possibly of a module that contains the surrogate.
        prefix: Prefix of the surrogate's entries.
    """
    check_header(model, state.get(f"{prefix}_extra_state"))
    start = len(prefix + STREAM)
    saved = {k[start:]: v for k, v in state.items() if k.startswith(prefix + STREAM)}
    stream = model.stream.contents.loaded(saved, model._sizes())
    model._replace(**{part: getattr(stream, part) for part in vars(stream)})


def without_casts(model: Any, fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """``fn`` of ``.to``, without casts for state, bounds and transforms, which only move."""
    device = fn(model._interface).device
    kept = [*model.stream.buffers(), model.bounds]
    for name in ("input_transform", "outcome_transform"):
        if hasattr(model, name):
            kept += getattr(model, name).buffers()
    ids = {id(tensor) for tensor in kept}
    return lambda tensor: tensor.to(device) if id(tensor) in ids else fn(tensor)


def check_header(model: Any, header: Any) -> None:
    """Adapt a surrogate to a saved state's metadata, or refuse it.

    Args:
        model: The surrogate.
        header: The saved surrogate's `get_extra_state`.

    Raises:
        StateError: if the state is of another version or layout.
    """
    header = header if isinstance(header, Mapping) else {}
    if header.get("version") != STATE_VERSION:
        raise StateError(
            f"a state of version {STATE_VERSION}",
            f"one of version {header.get('version')}",
            "Load it with the release that saved it, or build the surrogate from the data.",
        )
    if model._loads_data:
        model._adopt(header)
    own = model.get_extra_state()
    compared = [k for k in own.keys() | header.keys() if model._loads_data or k in WITHOUT_DATA]
    differs = sorted(key for key in compared if own.get(key) != header.get(key))
    if differs:
        raise StateError(
            f"a state of {own}",
            f"{dict(header)} (different: {', '.join(differs)})",
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
        if not isinstance(mine, Tensor):
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
