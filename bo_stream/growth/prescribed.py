"""Inducing points prescribed for each batch: for studies, tests and exact streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.growth.policy import Selection, check_cap, indices
from bo_stream.mathematics.inducing.state import Batch, SGPRState

__all__ = ["Prescribed"]


@dataclass(frozen=True)
class Prescribed:
    """The full set of inducing points after every batch.

    Args:
        Zs: One ``M x d`` tensor for each batch, in transformed space, including the
            constructor's if it has data. Rows that are bit-equal to old inducing points or to
            points of the batch stand for these.
        max_points: For symmetry with the other policies; no set may be larger.
    """

    Zs: Sequence[Tensor]
    max_points: int | None = None

    def __post_init__(self) -> None:
        check_cap(self.max_points)

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """The set for this batch."""
        if batch.index >= len(self.Zs):
            raise InputError(
                f"a prescribed set for batch {batch.index}",
                f"{len(self.Zs)} sets",
                "Give one set a batch, the constructor's included if it has data.",
            )
        Z = self.Zs[batch.index]
        if self.max_points is not None and Z.shape[0] > self.max_points:
            expected = f"at most {self.max_points} points"
            raise InputError(expected, f"{Z.shape[0]}", "Raise max_points.")
        return prescription(state, batch, Z)


def prescription(state: SGPRState, batch: Batch, Z: Tensor) -> Selection:
    """The selection that makes ``Z`` the inducing points, in its own order."""
    old = {tuple(z): i for i, z in reversed(list(enumerate(state.Z.tolist())))}
    new = {tuple(x): i for i, x in reversed(list(enumerate(batch.X.tolist())))}
    kept: list[tuple[int, int]] = []
    entered: list[tuple[int, int]] = []
    free: list[int] = []
    rows = Z.to(state.Z)
    for place, row in enumerate(map(tuple, rows.tolist())):
        if row in old:
            kept.append((old.pop(row), place))
        elif row in new:
            entered.append((new.pop(row), place))
        else:
            free.append(place)
    places = [p for _, p in kept] + [p for _, p in entered] + free
    return Selection(
        indices([i for i, _ in kept], Z),
        indices([i for i, _ in entered], Z),
        rows[indices(free, Z)],
        torch.argsort(indices(places, Z)),
    )
