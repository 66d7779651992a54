"""Shapes of a state's tensors, declared with the state and checked when one is loaded; and `Rows`,
the observations that batches bring and states keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import torch
from torch import Tensor

from bo_stream.errors import StateError

__all__ = [
    "DataclassInstance",
    "Rows",
    "check_shapes",
    "loaded",
    "moved",
    "nested",
    "shaped",
    "side_by_side",
    "tensors_of",
    "with_tensors",
]


class DataclassInstance(Protocol):
    """An object whose class is a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


State = TypeVar("State", bound=DataclassInstance)
Sign = Literal["any", "not negative", "positive", "extended"]


def shaped(shape: str, sign: Sign = "any") -> Any:
    """A field of a state dataclass that is a tensor.

    Args:
        shape: Numbers, or letters for sizes: ``"n d"``; equal letters are equal sizes. ``d``, ``o``
            and ``n`` are the numbers of inputs, outputs and observations.
        sign: ``"positive"``, ``"not negative"``, or ``"extended"`` if entries may be infinite.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Sums:
        ...     A: Tensor = shaped("m m")
        ...     b: Tensor = shaped("m")
    """
    return field(compare=False, metadata={"shape": shape, "sign": sign})


def nested(**letters: str) -> Any:
    """A field of a state dataclass that is itself a dataclass.

    Args:
        letters: What its sizes are here: with ``n="w"``, its ``n`` is the ``w`` of this dataclass.

    Example:
        >>> from dataclasses import dataclass
        >>> from bo_stream.mathematics.shapes import Rows
        >>> @dataclass(frozen=True)
        ... class Window:
        ...     rows: Rows = nested(n="w")
        ...     K: Tensor = shaped("w w")
    """
    return field(metadata={"letters": letters})


def tensors_of(state: DataclassInstance) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors of a state; those of a state inside it as ``outer_inner``."""
    for part in _names(state.__class__):
        value = getattr(state, part)
        if isinstance(value, Tensor):
            yield part, value
        else:
            yield from ((f"{part}_{name}", tensor) for name, tensor in tensors_of(value))


def with_tensors(state: State, tensors: Mapping[str, Tensor], outer: str = "") -> State:
    """The same state with other tensors, by the names of `tensors_of` after ``outer``."""
    values, same = dict[str, Any](), True
    for name in _names(state.__class__):
        before = value = getattr(state, name)
        if isinstance(value, Tensor):
            value = tensors[outer + name]
        else:
            value = with_tensors(value, tensors, f"{outer}{name}_")
        same = same and value is before
        values[name] = value
    return state if same else type(state)(**values)


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass; none of any other class."""
    return tuple(part.name for part in fields(kind)) if is_dataclass(kind) else ()


def moved(state: State, device: torch.device) -> State:
    """The same state on another device."""
    return with_tensors(state, {name: tensor.to(device) for name, tensor in tensors_of(state)})


def loaded(state: State, saved: Mapping[str, Tensor], sizes: Mapping[str, int]) -> State:
    """The same state with saved tensors, on its device, checked.

    Args:
        state: A dataclass whose tensors are `shaped`.
        saved: Tensors by name; missing ones keep their values.
        sizes: Required sizes, by letter.

    Raises:
        StateError: if the tensors do not fit together.
    """
    tensors = dict(tensors_of(state))
    for name, mine in tensors.items():
        value = saved.get(name, mine)
        if value.is_floating_point() != mine.is_floating_point():
            raise StateError(f"{name} as {mine.dtype}", f"{value.dtype}", "It is damaged.")
        # A copy has the strides of what was saved, which rounding depends on.
        tensors[name] = value.to(dtype=mine.dtype, device=mine.device, copy=True)
    new = with_tensors(state, tensors)
    check_shapes(new, sizes)
    return new


def side_by_side(states: Sequence[Any], outputs: Sequence[int]) -> Any:
    """States of the same points as one state of some of their outputs.

    Args:
        states: The states; tensors without a size ``o`` or ``s`` are the first one's.
        outputs: Which outputs, numbered through the states, and in which order.
    """
    values: dict[str, Any] = {}
    for part in fields(states[0]):
        letters = part.metadata.get("shape", "").split()
        axis = next((i for i, letter in enumerate(letters) if letter in ("o", "s")), None)
        each = [getattr(state, part.name) for state in states]
        if axis is not None:
            index = torch.tensor(outputs, device=each[0].device)
            values[part.name] = torch.cat(each, axis).index_select(axis, index)
        elif is_dataclass(each[0]):
            values[part.name] = side_by_side(each, outputs)
    return replace(states[0], **values)


def check_shapes(state: DataclassInstance, sizes: Mapping[str, int]) -> dict[str, int]:
    """Refuse a state whose tensors do not fit together, or are not finite or of the wrong sign.

    Args:
        state: A dataclass whose tensors are `shaped`.
        sizes: Sizes known beforehand, by letter.

    Returns:
        All sizes, by letter.

    Raises:
        StateError: naming the tensor.
    """
    known = dict(sizes)
    for part in fields(state):
        value = getattr(state, part.name)
        if is_dataclass(value) and not isinstance(value, type):
            letters = part.metadata.get("letters", {})
            inner = {letter: size for letter, size in sizes.items() if letter not in letters}
            inner |= {a: known[b] for a, b in letters.items() if b in known}
            found = check_shapes(value, inner)
            known |= {b: found[a] for a, b in letters.items() if a in found}
        elif isinstance(value, Tensor):
            _check(part, value, known, part.metadata.get("shape"))
    return known


def _check(part: Field[Any], value: Tensor, known: dict[str, int], shape: str | None) -> None:
    if shape is not None:
        letters = shape.split()
        fits = len(letters) == value.ndim and all(
            size == (int(letter) if letter.isdigit() else known.setdefault(letter, size))
            for letter, size in zip(letters, value.shape, strict=True)
        )
        if not fits:
            wanted = " x ".join(f"{a} = {known[a]}" if a in known else a for a in letters)
            raise StateError(
                f"{part.name} of shape [{wanted}]",
                f"{tuple(value.shape)}",
                "The saved state is truncated or of another surrogate; load an earlier one.",
            )
    sign = part.metadata.get("sign", "any")
    low = (value <= 0) if sign == "positive" else (value < 0)
    broken = value.isnan() if sign == "extended" else ~value.isfinite()
    if bool(broken.any()) or (sign in ("not negative", "positive") and bool(low.any())):
        raise StateError(
            f"{part.name} finite" + ("" if sign == "any" else f" and {sign}"),
            "NaN, infinite or wrongly signed entries",
            "The saved state is damaged; load an earlier one.",
        )


# -- observations --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Points, targets and noise of n observations.

    Attributes:
        X: Points, ``n x d``.
        Y: Targets, ``o x n``.
        R: Noise variances before any learned scale, ``s x n``: ``s`` is 1 if outputs share them,
            as where the noise is learned, and they are ones.
    """

    X: Tensor = shaped("n d")
    Y: Tensor = shaped("o n")
    R: Tensor = shaped("s n", "positive")

    @classmethod
    def empty(cls, dim: int, outputs: int = 1, noises: int = 1) -> Rows:
        """No observations of ``dim`` inputs, on the CPU."""
        X = torch.zeros(0, dim, dtype=torch.float64)
        return Rows(X, X.new_zeros(outputs, 0), X.new_zeros(noises, 0))

    @property
    def y(self) -> Tensor:
        """Targets of the first output, ``n``."""
        return self.Y[0]

    @property
    def r(self) -> Tensor:
        """Noise variances of the first output, ``n``."""
        return self.R[0]

    def __len__(self) -> int:
        return self.X.shape[-2]

    def __getitem__(self, index: Any) -> Self:
        """Some of the rows, by a slice, a mask or indices."""
        return replace(self, X=self.X[index], Y=self.Y[:, index], R=self.R[:, index])

    def joined(self, other: Rows) -> Self:
        """These rows, then others."""
        X = torch.cat([self.X, other.X])
        Y, R = torch.cat([self.Y, other.Y], -1), torch.cat([self.R, other.R], -1)
        return replace(self, X=X, Y=Y, R=R)

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The rows with targets ``(y - shift) / factor`` (each ``o``), and known noise to match."""
        shift, factor = shift.unsqueeze(-1), factor.unsqueeze(-1)
        R = self.R / factor.square() if known_noise else self.R
        return replace(self, Y=(self.Y - shift) / factor, R=R)
