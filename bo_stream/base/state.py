"""State of a stream: float64 buffers that move, copy, save, load, and change whole or not at all.

A family's state is a frozen dataclass; its tensors are buffers here (`hold`, `held`), so that
``.to``, ``state_dict`` and ``deepcopy`` follow.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar, cast

import torch
from torch import Tensor, nn

from bo_stream.base.hyperparameter_key import Meaning
from bo_stream.errors import StateError
from bo_stream.mathematics.shapes import check_shapes, tensors_of, with_tensors

__all__ = ["STATE_VERSION", "HeldState", "Memo"]

STATE_VERSION = 4
_T = TypeVar("_T")


@dataclass(frozen=True)
class Memo:
    """A value derived from state and hyperparameters, kept while both stay.

    Attributes:
        value: Never written to.
        meaning: What the hyperparameters meant.
        token: The buffer of the count then: each change of the state makes it anew.
    """

    value: Any
    meaning: Meaning
    token: Tensor

    def __deepcopy__(self, memo: dict[int, Any]) -> Memo:
        return Memo(self.value, self.meaning, copy.deepcopy(self.token, memo))


class Lock(type(threading.RLock()), ContextDecorator):  # type: ignore[misc]
    """A lock that one thread may take again, and that copies as a fresh one.

    Taken as a decorator, ``lock(change)()``, it is let go of whatever line an interruption comes
    at: after a ``with`` there is one at which it would stay taken.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Lock:
        return Lock()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


class HeldState(nn.Module):
    """Names the buffers that are a surrogate's state, keeps them in float64, checks what is loaded.

    Attributes:
        _state: Names of the buffers, in order.
        _forms: The dataclasses they belong to, without their tensors.
        _outdated: What to do about a state saved by another release.
    """

    _state: list[str]
    _forms: dict[str, Any]
    _lock: Lock
    _undo: list[Callable[[], Any]]
    _outdated = "Load it with the release that saved it, or build the surrogate from the data."

    def _layout(self) -> dict[str, Any]:
        """What a saved state must agree with to be loaded."""
        return {}

    def _sizes(self) -> dict[str, int]:
        """Sizes that a state must agree with, by letter (see `bo_stream.mathematics.shapes`)."""
        return {}

    def _adopt(self, header: Mapping[str, Any]) -> None:
        """Take on what a saved state may bring along, given its header."""

    @property
    def state_bytes(self) -> int:
        """Bytes of all state buffers: what "bytes constant in n" is about."""
        buffers = (self.get_buffer(name) for name in self._state)
        return sum(b.numel() * b.element_size() for b in buffers)

    def _changed(self, points: int = 0) -> None:
        """The last step of every change of the state; ``points`` more are counted."""
        self._register_state("_count", cast(Tensor, self._buffers["_count"]) + points)

    # -- dataclasses as buffers ------------------------------------------------------------------

    def hold(self, name: str, state: Any) -> None:
        """Make the tensors of a state dataclass buffers, in place of those held by this name."""
        tensors = dict(tensors_of(state))
        for buffer, value in tensors.items():
            if self._buffers.get(buffer) is not value:
                self._register_state(buffer, value.detach())
        nothing = torch.empty(0)
        self._forms[name] = with_tensors(state, dict.fromkeys(tensors, nothing))

    def held(self, name: str = "state") -> Any:
        """The state dataclass held by this name, with the buffers as they are."""
        return with_tensors(self._forms[name], cast("dict[str, Tensor]", self._buffers))

    def _release(self, name: str) -> None:
        """Hold nothing by this name any more."""
        for key, _ in tensors_of(self._forms.pop(name)):
            del self._buffers[key]
            self._state.remove(key)

    def _register_state(self, name: str, value: Tensor) -> None:
        if name in self._buffers:  # one assignment: a reader sees the old tensor or the new one
            self._buffers[name] = value.to(cast(Tensor, self._buffers["_interface"]).device)
        else:
            self.register_buffer(name, value.to(self.get_buffer("_interface").device))
        if name not in self._state:
            self._state.append(name)

    def _wholly(self, change: Callable[[], _T]) -> _T:
        """Make a change, without gradients, all or nothing: whatever it raises, the state is as it
        was, to the last bit.

        One writer at a time; readers that have to derive something from the state wait.
        """
        return self._lock(torch.no_grad()(self._attempt))(change)

    def _attempt(self, change: Callable[[], _T]) -> _T:
        """A change whose failure is undone."""
        kept = {
            name: self.__dict__[name].copy()
            for name in ("_buffers", "_modules", "_parameters", "_forms", "_state")
        }
        outer, self._undo = self._undo, []
        try:
            made = change()
        except BaseException:
            self.__dict__.update(kept)
            for undo in reversed(self._undo):
                undo()
            self._undo = outer
            raise
        self._undo = outer + self._undo if outer else []
        return made

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
        for module, name in kept:
            module._buffers[name] = None
        try:
            super()._apply(fn, recurse)
        finally:
            device = self.get_buffer("_interface").device
            for (module, name), value in zip(kept, values, strict=True):
                module._buffers[name] = None if value is None else value.to(device)
        return self

    # -- saving and loading ----------------------------------------------------------------------

    def get_extra_state(self) -> dict[str, Any]:
        """Class, version and layout, to be checked before a state is loaded."""
        return {"class": type(self).__name__, "version": STATE_VERSION, **self._layout()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take stock of what was loaded; `_load_from_state_dict` has checked it."""
        self._changed()

    def load_state_dict(  # type: ignore[override]
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        keep_transforms: bool = True,
        assign: bool = False,
    ) -> Any:
        """Restore everything: whole, or not at all.

        Raises:
            StateError: if class, version, layout, keys, shapes or values do not fit.
        """
        if assign:  # the checkpoint's tensors stay its own
            state_dict = {
                k: v.clone() if isinstance(v, Tensor) else v for k, v in state_dict.items()
            }
        written: list[tuple[Tensor, Tensor]] = [(p, p.detach().clone()) for p in self.parameters()]
        written += [
            (b, b.clone())
            for module in self.modules()
            for name, b in module._buffers.items()
            if b is not None and not (module is self and name in self._state)
        ]

        def change() -> Any:
            self._undo += [partial(p.data.copy_, v) for p, v in written]
            self._check_header(state_dict.get("_extra_state"))
            self._check_keys(state_dict, strict)
            return nn.Module.load_state_dict(self, state_dict, strict, assign)

        return self._wholly(change)

    def _check_header(self, header: Mapping[str, Any] | None) -> None:
        if isinstance(header, Mapping) and header.get("version") == STATE_VERSION:
            self._adopt(header)
        own = self.get_extra_state()
        if header == own:
            return
        if isinstance(header, Mapping) and header.get("version") != STATE_VERSION:
            raise StateError(
                f"a state of version {STATE_VERSION}",
                f"one of version {header.get('version')}",
                self._outdated,
            )
        differs = sorted(
            key for key in own if not isinstance(header, Mapping) or header.get(key) != own[key]
        )
        raise StateError(
            f"a state of {own}",
            f"{header} (different: {', '.join(differs)})",
            "Load it into a surrogate built as the saved one was.",
        )

    def _check_keys(self, state_dict: Mapping[str, Any], strict: bool) -> None:
        own = self.state_dict()
        missing, unexpected = set(own) - set(state_dict), set(state_dict) - set(own)
        if strict and (missing or unexpected):
            raise StateError(
                f"the state of a {type(self).__name__} built with the same arguments",
                f"missing {sorted(missing)}, unexpected {sorted(unexpected)}",
                "Build the surrogate as the saved one was, then load.",
            )
        for name in set(own) - missing:
            mine, saved = own[name], state_dict[name]
            if not isinstance(mine, Tensor):
                continue
            if not isinstance(saved, Tensor) or (
                name not in self._state and mine.shape != saved.shape
            ):
                shape = tuple(saved.shape) if isinstance(saved, Tensor) else type(saved).__name__
                raise StateError(
                    f"{name} of shape {tuple(mine.shape)}",
                    f"{shape}",
                    "Build the surrogate with the modules and transforms the saved one had.",
                )
            infinite = saved.is_floating_point() and "constraint" not in name
            if infinite and bool(saved.isnan().any()):
                raise StateError(
                    f"{name} without NaN", "NaN", "The saved state is damaged; load an earlier one."
                )

    def _check_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Refuse state tensors that do not fit together."""
        count = tensors["_count"]
        if count.ndim or count.is_floating_point() or int(count) < 0:
            raise StateError("a count of observations", f"{count}", "The saved state is damaged.")
        noise = tensors["_noise_sum"]
        if noise.shape != self.get_buffer("_noise_sum").shape or bool((~(noise >= 0.0)).any()):
            raise StateError("sums of noise variances, one an output", f"{noise}", "It is damaged.")
        sizes = {**self._sizes(), "n": int(count)}
        for form in self._forms.values():
            mine = {name: tensors[name] for name, _ in tensors_of(form)}
            check_shapes(with_tensors(form, mine), sizes)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        self._check_header(state_dict.get(prefix + "_extra_state"))
        saved = {name: state_dict.get(prefix + name) for name in self._state}
        present = {k: v if v is not None else self.get_buffer(k) for k, v in saved.items()}
        self._check_state(present)
        for name, value in saved.items():
            if value is not None:
                like = self.get_buffer(name)
                # Strides are kept: rounding, and so a bit-identical resume, depends on them.
                self._buffers[name] = torch.empty_like(value, dtype=like.dtype, device=like.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
