"""State of a stream: float64 buffers that move, copy, save and load, and a memo of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from bo_stream.errors import StateError

__all__ = ["Memo", "StateBuffers"]

STATE_VERSION = 1


class Memo:
    """One immutable value, kept while the state's revision and the hyperparameters' values hold."""

    def __init__(
        self, value: Any = None, hyperparameters: Tensor | None = None, revision: int = -1
    ) -> None:
        self.value = value
        self.hyperparameters = hyperparameters
        self.revision = revision

    def fits(self, hyperparameters: Tensor) -> bool:
        """Whether the value was made under these hyperparameters, on this device."""
        mine = self.hyperparameters
        return (
            mine is not None
            and mine.device == hyperparameters.device
            and torch.equal(mine, hyperparameters)
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Memo:
        return self  # the value is never written to


class StateBuffers(nn.Module):
    """Names the buffers that are a surrogate's state, keeps them in float64, checks what is loaded.

    Attributes:
        _state: Names of the buffers, in order.
    """

    _state: list[str]
    _revision: int
    _memo: Memo

    def _layout(self) -> dict[str, Any]:
        """What a saved state must agree with to be loaded."""
        return {}

    def _changed(self) -> None:
        """Called after a state was loaded."""

    @property
    def state_bytes(self) -> int:
        """Bytes of all state buffers: what "bytes constant in n" is about."""
        buffers = (self.get_buffer(name) for name in self._state)
        return sum(b.numel() * b.element_size() for b in buffers)

    def _register_state(self, name: str, value: Tensor) -> None:
        device = self.get_buffer("_interface").device
        self.register_buffer(name, value.to(device))
        if name not in self._state:
            self._state.append(name)

    def _keep(self, name: str, value: Tensor) -> None:
        """Set the buffer ``_name`` of the state to a copy of its own."""
        self._register_state(f"_{name}", value.detach().clone())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move everything; cast the interface and the hyperparameters, never state or transforms.

        BoTorch's analytic acquisitions call ``.to(X)`` at every evaluation: when nothing moves,
        nothing derived is forgotten.
        """
        kept = [(cast(nn.Module, self), name) for name in ["bounds", *self._state]]
        for child in ("input_transform", "outcome_transform"):
            if hasattr(self, child):
                kept += [(m, k) for m in getattr(self, child).modules() for k in m._buffers]
        values = [module._buffers[name] for module, name in kept]
        before = self.get_buffer("_interface").device
        for module, name in kept:
            module._buffers[name] = None
        super()._apply(fn, recurse)
        device = self.get_buffer("_interface").device
        for (module, name), value in zip(kept, values, strict=True):
            module._buffers[name] = None if value is None else value.to(device)
        if device != before:
            self._revision += 1
            self._memo = Memo()
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """Class, version and layout, to be checked before a state is loaded."""
        return {"class": type(self).__name__, "version": STATE_VERSION, **self._layout()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Nothing to restore: `_load_from_state_dict` has checked it."""

    def load_state_dict(  # type: ignore[override]
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        keep_transforms: bool = True,
        assign: bool = False,
    ) -> Any:
        """Restore state, hyperparameters and transforms; all is checked before anything changes.

        Raises:
            StateError: if class, version, layout or keys do not fit this surrogate.
        """
        own = self.state_dict()
        missing, unexpected = set(own) - set(state_dict), set(state_dict) - set(own)
        if strict and (missing or unexpected):
            raise StateError(
                f"the state of a {type(self).__name__} built with the same arguments",
                f"missing {sorted(missing)}, unexpected {sorted(unexpected)}",
                "Build the surrogate as the saved one was, then load.",
            )
        for name in set(own) - missing - set(self._state):
            mine, saved = own[name], state_dict[name]
            if isinstance(mine, Tensor) and mine.shape != saved.shape:
                raise StateError(
                    f"{name} of shape {tuple(mine.shape)}",
                    f"{tuple(saved.shape)}",
                    "Build the surrogate with the modules and transforms the saved one had.",
                )
        if assign:  # the checkpoint's tensors stay its own
            state_dict = {
                k: v.clone() if isinstance(v, Tensor) else v for k, v in state_dict.items()
            }
        return nn.Module.load_state_dict(self, state_dict, strict, assign)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        saved, own = state_dict.get(prefix + "_extra_state"), self.get_extra_state()
        if saved != own:
            raise StateError(
                f"a state of {own}",
                f"{saved}",
                "Load it into a surrogate built as the saved one was.",
            )
        for name in self._state:
            if prefix + name in state_dict:
                value = state_dict[prefix + name]
                like = self.get_buffer(name)
                # Strides are kept: rounding, and so a bit-identical resume, depends on them.
                self._buffers[name] = torch.empty_like(value, dtype=like.dtype, device=like.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self._changed()
        self._memo = Memo()
