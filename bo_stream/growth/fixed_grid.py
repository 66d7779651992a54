"""Inducing points fixed in advance."""

from __future__ import annotations

from dataclasses import dataclass

from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.errors import ShapeError
from bo_stream.growth.policy import Selection, check_cap
from bo_stream.growth.prescribed import prescription
from bo_stream.mathematics.inducing.state import Batch, SGPRState

__all__ = ["FixedGrid"]


@dataclass(frozen=True)
class FixedGrid:
    """The same inducing points throughout.

    With fixed hyperparameters a stream of any chunking then equals batch SGPR (MATHS 3.5).

    Args:
        Z: Points ``M x d``, in transformed space.
        max_points: For symmetry with the other policies; must not be below M.
    """

    Z: Tensor
    max_points: int | None = None

    def __post_init__(self) -> None:
        check_cap(self.max_points)
        check_fits(self.Z, self.max_points)

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """Always ``Z``."""
        return prescription(state, batch, self.Z)


def check_fits(Z: Tensor, max_points: int | None) -> None:
    """Refuse points that are not a matrix, or more than the cap."""
    if Z.ndim != 2 or (max_points is not None and Z.shape[0] > max_points):
        cap = "" if max_points is None else f" with at most {max_points} rows"
        remedy = "Thin the points, or raise max_points."
        raise ShapeError(f"points `M x d`{cap}", f"{tuple(Z.shape)}", remedy)
