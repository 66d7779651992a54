"""The data-dependent part of a surrogate, held as float64 buffers.

A change creates a new `StreamBuffers` that replaces the old one by a single assignment, so that
``.to``, ``state_dict`` and ``deepcopy`` never see half a change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from bo_stream.base.derived import Version
from bo_stream.base.fitting.memory import FitMemory
from bo_stream.errors import StateError
from bo_stream.mathematics.lasting import lasting
from bo_stream.mathematics.shapes import check_shapes, nested, shaped, tensors_of, with_tensors

__all__ = ["Stream", "StreamBuffers"]


@dataclass(frozen=True)
class Stream:
    """The family's state, and the quantities that every surrogate keeps with it.

    Attributes:
        state: The family's dataclass of tensors; None before it is built.
        count: Number of observations, int64.
        noise_sum: Sum of their known noise variances, before any learned scale.
        fits: Starting information of the next fit.
    """

    state: Any = nested()
    count: Tensor = shaped("", "not negative")
    noise_sum: Tensor = shaped("o", "not negative")
    fits: FitMemory = nested()

    @classmethod
    def empty(cls, outputs: int) -> Stream:
        """Before the family's state is built."""
        count = torch.zeros((), dtype=torch.int64)
        noise = torch.zeros(outputs, dtype=torch.float64)
        return cls(None, count, noise, FitMemory.empty())

    def loaded(self, saved: Mapping[str, Tensor], sizes: Mapping[str, int]) -> Stream:
        """A stream of the same layout with saved tensors, on this one's device, checked.

        Args:
            saved: Tensors by name; missing ones keep their values.
            sizes: Required sizes, by letter.

        Raises:
            StateError: if the tensors do not fit together.
        """
        tensors = dict(tensors_of(self))
        for name, mine in tensors.items():
            value = saved.get(name, mine)
            if value.is_floating_point() != mine.is_floating_point():
                raise StateError(f"{name} as {mine.dtype}", f"{value.dtype}", "It is damaged.")
            # A copy has the strides of what was saved, which rounding depends on.
            tensors[name] = value.to(dtype=mine.dtype, device=mine.device, copy=True)
        made = with_tensors(self, tensors)
        if made.count.ndim:
            raise StateError("a count of observations", f"{made.count}", "It is damaged.")
        check_shapes(made, {**sizes, "n": int(made.count)})
        return made


class StreamBuffers(nn.Module):
    """The tensors of a stream as buffers.

    Args:
        contents: The stream.
        version: Version of the state; a new one by default.
        device: Device of the buffers; by default the tensors are not moved.

    Attributes:
        contents: The stream, whose tensors are the buffers.
        version: The version of everything that posteriors depend on.
    """

    count: Tensor
    noise_sum: Tensor

    def __init__(
        self, contents: Stream, version: Version | None = None, device: torch.device | None = None
    ) -> None:
        super().__init__()
        self.version = Version() if version is None else version
        given = dict(tensors_of(contents))
        held = {name: _moved(tensor, device) for name, tensor in given.items()}
        for name, tensor in held.items():
            self.register_buffer(name, tensor)
        same = all(held[name] is tensor for name, tensor in given.items())
        self.contents = contents if same else with_tensors(contents, held)

    def replaced(self, version: Version | None = None, **changes: Any) -> StreamBuffers:
        """Buffers of the stream with some parts replaced, of the given or a new version."""
        return StreamBuffers(replace(self.contents, **changes), version, self.count.device)

    def _follow_buffers(self) -> None:
        """Refer to the buffers again after torch has replaced them."""
        held = dict(self.named_buffers(recurse=False, remove_duplicate=False))
        if any(held[name] is not tensor for name, tensor in tensors_of(self.contents)):
            self.contents = with_tensors(self.contents, held)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._follow_buffers()
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._follow_buffers()


def _moved(tensor: Tensor, device: torch.device | None) -> Tensor:
    """The detached tensor, on ``device`` if given, usable outside of inference mode."""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    tensor = _copied(tensor) if tensor.is_inference() else tensor
    return tensor if device is None or tensor.device == device else tensor.to(device)


@lasting
def _copied(tensor: Tensor) -> Tensor:
    return tensor.clone()
