"""Growth policies: objects with a method `select` that chooses inducing points.

A policy of your own is a class with this method:

>>> import torch
>>> from bo_stream.growth import Selection
>>> class EveryOther:
...     \"\"\"Keeps all old points and adds every other point of the batch.\"\"\"
...
...     def select(self, state, batch, kernel):
...         return Selection(torch.arange(state.size), torch.arange(0, batch.size, 2))

Points are in transformed space, float64. The state is already expressed under the
current kernel and prior mean, so ``batch.y - state.mean`` are residuals and
``bo_stream.growth.predict(state, kernel, X)`` is the posterior before the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.base.options import from_plain
from bo_stream.errors import InputError
from bo_stream.mathematics.inducing import Batch, SGPRState, Update, update

__all__ = [
    "GrowthPolicy",
    "Selection",
    "check_cap",
    "check_count",
    "check_positive",
    "checked_policy",
    "inducing_points",
    "selected_update",
]


@dataclass(frozen=True)
class Selection:
    """The choice of inducing points after a batch.

    Attributes:
        kept: Indices of the old inducing points that stay, integers.
        entered: Indices of the batch points that enter, integers, in order of choice.
        free: Further points ``F x d``, in transformed space, that are neither.
        optimal_bound: ``L*`` of the batch, if the policy computed it.
    """

    kept: Tensor
    entered: Tensor
    free: Tensor | None = None
    optimal_bound: float | None = None


@runtime_checkable
class GrowthPolicy(Protocol):
    """Chooses inducing points. A policy holds settings only."""

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """The inducing points after ``batch``, given the state before it."""
        ...


def checked_policy(policy: object) -> GrowthPolicy:
    """The option ``growth``: a policy, or its name and options.

    Raises:
        InputError: if it is a class, or has no method ``select``.
    """
    policy = from_plain("growth", policy)
    if isinstance(policy, type) or not isinstance(policy, GrowthPolicy):
        raise InputError(
            "a growth policy: an object with a method `select(state, batch, kernel)`",
            f"{policy!r}",
            "Take one from bo_stream.growth, for example growth=VIPS(0.035), or leave it out.",
        )
    return policy


def inducing_points(state: SGPRState, batch: Batch, selection: Selection) -> tuple[Tensor, Tensor]:
    """New inducing points ``[kept; entered; free]``, and the rows of the old ones in them.

    Returns:
        ``Z``, ``M_b x d``; ``old_index``, ``M_a``: row of Z, or -1 for a dropped point.

    Raises:
        InputError: if an index is out of range or stands twice.
    """
    _check_indices("kept", selection.kept, state.size)
    _check_indices("entered", selection.entered, batch.size)
    free = state.Z[:0] if selection.free is None else selection.free.to(state.Z)
    Z = torch.cat([state.Z[selection.kept], batch.X[selection.entered], free])
    old_index = selection.kept.new_full((state.size,), -1)
    old_index[selection.kept] = torch.arange(len(selection.kept), device=Z.device)
    return Z, old_index


def _check_indices(name: str, values: Tensor, size: int) -> None:
    distinct = values.unique()
    inside = not distinct.numel() or (int(distinct[0]) >= 0 and int(distinct[-1]) < size)
    if values.dtype != torch.int64 or distinct.numel() != values.numel() or not inside:
        raise InputError(
            f"`{name}` of a selection to be distinct int64 indices below {size}",
            f"{values.dtype} {values.tolist()}",
            "The growth policy at fault is the one given as `growth`.",
        )


def selected_update(state: SGPRState, batch: Batch, kernel: Kernel, selection: Selection) -> Update:
    """The update with a selection, kernel and mean unchanged."""
    Z, old_index = inducing_points(state, batch, selection)
    return update(state, batch, kernel, state.mean, Z, old_index, same_kernel=True)


def all_old(state: SGPRState) -> Tensor:
    """Indices of all old inducing points."""
    return torch.arange(state.size, device=state.Z.device)


def indices(values: list[int], like: Tensor) -> Tensor:
    """A list of indices as a tensor, also when it is empty."""
    return torch.tensor(values, dtype=torch.long, device=like.device)


def check_cap(max_points: int | None) -> None:
    """Refuse caps that leave no inducing point."""
    if max_points is not None:
        check_count("max_points", max_points)


def check_count(name: str, value: int) -> None:
    """Refuse anything but a positive whole number."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        remedy = "Give a whole number, or leave it out for the default."
        raise InputError(f"{name} of at least 1, an int", f"{value!r}", remedy)


def check_positive(name: str, value: float, below: float = float("inf")) -> None:
    """Refuse settings outside ``(0, below)``."""
    if not 0.0 < value < below:
        span = "positive" if below == float("inf") else f"between 0 and {below:g}"
        remedy = "The docstring of the policy has usual values."
        raise InputError(f"{name} {span}", f"{value}", remedy)
