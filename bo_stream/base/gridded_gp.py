"""The base of surrogates on a grid: whether it fits the lengthscales, and moves to another one.

While all points are buffered the sums can be taken over the nodes of another grid, exactly; a saved
state brings its grid along.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor

from bo_stream.base import additive
from bo_stream.base.changes import all_or_nothing
from bo_stream.base.feature_selection import all_buffered, check_buffered, fit_and_select, select
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.base.validation import checked_bounds
from bo_stream.errors import BoundsError, GridWarning, StateError
from bo_stream.mathematics.grid.bands import pair_count
from bo_stream.mathematics.grid.kernel import is_product
from bo_stream.mathematics.grid.nodes import Grid
from bo_stream.mathematics.grid.resolution import (
    coarseness_message,
    fitting_sizes,
    kernel_lengths,
    misfit,
)
from bo_stream.mathematics.grid.state import GridState, grid_state
from bo_stream.mathematics.posterior.process import PosteriorProcess

__all__ = ["GriddedGP"]

UPDATED_AT_ONCE = 500
"""Points by which a posterior is updated at most; with more it is made anew."""
FEW_EVALS, AGAIN = 5, 1.1
"""After a fit of more evaluations, or with this many times the data, `fit` checks the grid."""


class GriddedGP(StreamingGP):
    """A surrogate on a grid between its bounds, which may be refined; or on nodes given to it.

    Its constructor calls `_set_up_grid` before the first data.

    Attributes:
        grid_size: Nodes per dimension, or ``"auto"``.
        opening: Number of first points that are held.
    """

    opening: int

    def _set_up_grid(
        self, grid_size: int | Sequence[int] | Literal["auto"] | None, grid: Sequence[Tensor] | None
    ) -> None:
        """The grid to begin with; `WISKI` explains the options."""
        self._nodes = None if grid is None else [g.tolist() for g in grid]
        if grid is not None:
            first = Grid.from_nodes(grid, self._dim)
        else:
            first = self._covering(None if grid_size == "auto" else grid_size)
        self.grid_size = "auto" if grid_size == "auto" else list(first.sizes)
        self._first_grid, self._warned, self._looked_at = first, False, 0

    @property
    def grid(self) -> Grid:
        """The nodes, in transformed space."""
        return cast(GridState, self.stream.contents.state).grid

    def refine(
        self, grid_size: int | Sequence[int] | None = None, bounds: Tensor | None = None
    ) -> Self:
        """Move to another grid, exactly: the same as one built on it from all the data.

        O(n 16^d + m^2). Hyperparameters and transforms stay as they are; `fit` next.

        Args:
            grid_size: Nodes per dimension; by default those that fit the lengthscales, a spacing at
                most two thirds of each while there are no more than 4,096 in all.
            bounds: Wider raw bounds, ``2 x d``, for points outside the present ones.

        Returns:
            The surrogate itself.

        Raises:
            StateError: if more points were seen than are held, or nodes were given one by one.
            BoundsError: on bounds that do not contain the present ones.
            InputError: on a grid of too few nodes.
        """
        if self._nodes is not None:
            raise StateError(
                "a grid made of bounds",
                "nodes given one by one",
                "Build it anew with `bounds`, or with another `grid`.",
            )
        remedy = "Build it anew with a larger `grid_size` or wider `bounds`, or a larger `opening`."
        check_buffered(self, all_buffered(self), remedy)
        self._move_grid(self._wider(bounds), grid_size)
        return self

    @all_or_nothing
    def _move_grid(self, bounds: Tensor, grid_size: int | Sequence[int] | None) -> None:
        """Move to a grid between these bounds."""
        self._set("bounds", bounds)
        select(self, self._covering(self._suited_sizes() if grid_size is None else grid_size))

    @property
    def grid_too_coarse(self) -> str | None:
        """What is lost on a grid too coarse for the hyperparameters, as a sentence, or None.

        A grid is too coarse if a lengthscale is below 1.2 spacings; or if the evidence that the
        kernel itself gives the last 300 points, where all points are held, is more than 3 nats
        above that on the grid.
        """
        state, n = cast(GridState, self.state), self.num_observed
        points = state.opening.first(n if state.holds_all(n) else 0)
        with torch.no_grad():
            scale, mean = self._noise_scale(), self._prior_mean()
            return coarseness_message(self.covar_module, state.grid, points, scale, mean)

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit the hyperparameters, warm-started, and with ``grid_size="auto"`` the grid to them.

        The grid moves even where no evaluations are left for a fit on the new one; the report then
        has the value on the old one. Interrupted, it leaves the best hyperparameters seen on the
        grid in use at that point.

        Args:
            max_evals: Most objective-and-gradient evaluations; None: until the gain falls below
                0.01 nat.
        """
        report = fit_and_select(self, super().fit, max_evals)
        due = report.evaluations > FEW_EVALS or self.num_observed >= AGAIN * self._looked_at
        if due and not (self._warned or self._can_select()):
            self._looked_at = self.num_observed
            why = self.grid_too_coarse
            if why is not None:
                self._warned = True
                may_refine = self._nodes is None and all_buffered(self)
                remedy = "Call `refine`, or give" if may_refine else "Build it anew with"
                warnings.warn(
                    f"The grid is too coarse, and intervals may be too narrow. {why} {remedy} a "
                    "larger `grid_size`.",
                    GridWarning,
                    stacklevel=2,
                )
        return report

    def _can_select(self) -> bool:
        """Whether `fit` may move to another grid."""
        return self.grid_size == "auto" and self._nodes is None and all_buffered(self)

    def _suited_features(self) -> Grid:
        """The grid for the present lengthscales."""
        return self._covering(self._suited_sizes())

    def _features_outdated(self) -> bool:
        """Whether another grid would suit the present lengthscales better."""
        return misfit(self.covar_module, self.grid, self._like, self.num_outputs)

    def _covering(self, grid_size: int | Sequence[int] | None) -> Grid:
        """The grid of these sizes between the bounds."""
        return Grid.covering(self._box(), grid_size)

    def _suited_sizes(self) -> list[int]:
        low, high = self._box()
        return fitting_sizes(
            kernel_lengths(self.covar_module, high - low, self.num_outputs), high - low
        )

    def _box(self) -> Tensor:
        """The transformed image of the bounds, ``2 x d``."""
        image = self._transformed(cast(Tensor, self.bounds))
        return torch.stack([image.amin(0), image.amax(0)])

    def _wider(self, bounds: Tensor | None) -> Tensor:
        """Bounds checked to contain the present ones; by default the same."""
        mine = cast(Tensor, self.bounds)
        if bounds is None:
            return mine
        wider = cast(Tensor, checked_bounds(bounds, mine))
        if bool((wider[0] > mine[0]).any()) or bool((wider[1] < mine[1]).any()):
            raise BoundsError(
                f"bounds that contain {mine.tolist()}",
                f"{wider.tolist()}",
                "Widen them; points seen lie anywhere in the present ones.",
            )
        return wider

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        if self._nodes is not None:
            return {**super()._layout(), "grid": self.grid.digest()}
        box = self._box().tolist()
        return {**super()._layout(), "box": box, "grid_size": self.grid_size}

    def get_extra_state(self) -> dict[str, Any]:
        """Class, version, layout, and how many nodes there are now."""
        return {**super().get_extra_state(), "nodes": list(self.grid.sizes)}

    def _adopt(self, header: Mapping[str, Any]) -> None:
        """The grid that a saved state has been moved to."""
        super()._adopt(header)
        sizes = header.get("nodes")
        mine = self.grid
        if self._nodes is None and sizes != list(mine.sizes) and _are_sizes(sizes, mine.dim):
            self._replace(state=self.state.over(self._covering(sizes)))

    def _options(self) -> dict[str, Any]:
        if self._nodes is None:
            return {"grid_size": self.grid_size, "opening": self.opening}
        nodes = [torch.tensor(g, dtype=torch.float64) for g in self._nodes]
        return {"grid": nodes, "opening": self.opening}

    @property
    def _update_limit(self) -> int:  # type: ignore[override]
        return min(self.grid.m // 4, UPDATED_AT_ONCE)

    def _update_process(
        self, process: PosteriorProcess, X: Tensor, Y: Tensor, R: Tensor
    ) -> PosteriorProcess | None:
        """Fold the data into the posterior of the values at the nodes: O(q m^2)."""
        return additive.updated(process, X, Y, self._noise_scale().unsqueeze(-1) * R)

    def _sizes(self) -> dict[str, int]:
        pairs = pair_count(self.grid.sizes)
        return {**super()._sizes(), "m": self.grid.m, "t": pairs, "w": self.opening}

    def _empty_state(self) -> GridState:
        shared = self.noise_mode == "learned"
        by_pairs = is_product(self.covar_module)
        return grid_state(self._first_grid, self.num_outputs, shared, self.opening, by_pairs)


def _are_sizes(sizes: Any, dim: int) -> bool:
    """Whether a saved state says of how many nodes a dimension it is."""
    return isinstance(sizes, list) and len(sizes) == dim and all(type(g) is int for g in sizes)
