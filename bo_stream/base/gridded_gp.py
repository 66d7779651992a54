"""The base of surrogates on a grid.

While all points are buffered, the sums over the nodes of another grid follow exactly, so the grid
can be replaced. A saved state includes its grid.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor

from bo_stream.base.checks import checked_bounds
from bo_stream.base.feature_selection import (
    all_buffered,
    check_buffered,
    fit_and_select,
    follow_hyperparameters,
    select,
)
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import BoundsError, GridWarning, StateError
from bo_stream.mathematics.grid.bands import pair_count
from bo_stream.mathematics.grid.kernel import is_product
from bo_stream.mathematics.grid.nodes import Grid
from bo_stream.mathematics.grid.resolution import Resolution
from bo_stream.mathematics.grid.state import GridState

__all__ = ["GriddedGP"]

FEW_EVALS, AGAIN = 5, 1.1
"""`fit` checks the grid if it used more evaluations than this, or after this growth of the data."""


class GriddedGP(StreamingGP):
    """A surrogate on a regular grid over its bounds, which can be refined, or on given nodes.

    A subclass calls `_set_up_grid` in its constructor before the first data.

    Attributes:
        grid_size: Nodes per dimension, or ``"auto"``.
        opening: Number of initial points that are buffered.
    """

    conditions_up_to = 64
    opening: int

    def _set_up_grid(
        self, grid_size: int | Sequence[int] | Literal["auto"] | None, grid: Sequence[Tensor] | None
    ) -> None:
        """Create the initial grid; see `WISKI` for the options."""
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
        """Replace the grid; the result equals a surrogate built on the new grid from all data.

        Costs O(n 16^d + m^2). Hyperparameters and transforms keep their values; call `fit` next.

        Args:
            grid_size: Nodes per dimension. By default the spacing is at most two thirds of each
                lengthscale, and so fine that the evidence is within 3 nats of an exact GP's, with
                at most 4,096 nodes in total.
            bounds: Wider raw bounds, ``2 x d``, for points outside the current ones.

        Returns:
            The surrogate itself.

        Raises:
            StateError: if more points were seen than are buffered, or explicit nodes were given.
            BoundsError: if the new bounds do not contain the current ones.
            InputError: if the grid has too few nodes.
        """
        if self._nodes is not None:
            raise StateError(
                "a grid built from bounds",
                "explicitly given nodes",
                "Rebuild the surrogate with `bounds`, or with another `grid`.",
            )
        remedy = "Rebuild it with a larger `grid_size` or wider `bounds`, or a larger `opening`."
        check_buffered(self, all_buffered(self), remedy)
        self._move_grid(self._wider(bounds), grid_size)
        return self

    @all_or_nothing
    def _move_grid(self, bounds: Tensor, grid_size: int | Sequence[int] | None) -> None:
        """Replace the grid by one over these bounds."""
        self._set("bounds", bounds)
        select(self, self._suited_features() if grid_size is None else self._covering(grid_size))

    @property
    def grid_too_coarse(self) -> str | None:
        """A sentence that says what is lost on too coarse a grid, or None if it is fine enough.

        A grid is too coarse if a lengthscale is below 1.2 spacings. Where all points are buffered,
        it is also too coarse if the exact evidence of the last 300 points exceeds that on the grid
        by more than 3 nats; if the noise is below 1e-4 of the variance, also at lengthscales 2 or 4
        times as long.
        """
        return self._resolution().message(self.grid)

    @torch.no_grad()
    def _resolution(self) -> Resolution:
        """What grids resolve at the current hyperparameters, of the points if all are buffered."""
        state, n = cast(GridState, self.state), self.num_observed
        X, Y, R = state.buffer.first(n if state.holds_all(n) else 0)
        grid = state.grid if self._nodes is not None else self._covering(state.grid.sizes)
        D = (self._noise_scale().unsqueeze(-1) * R).expand(Y.shape)
        Y = Y - self._prior_mean().unsqueeze(-1)
        return Resolution.of(self.covar_module, grid.place(X), Y, D)

    def _search(self, max_evals: int | None) -> FitReport:
        """Hyperparameters, and the grid too with ``grid_size="auto"``.

        Without evaluations left, the grid is still replaced, and the report holds the value on
        the previous grid.
        """
        report = fit_and_select(self, super()._search, max_evals)
        due = report.evaluations > FEW_EVALS or self.num_observed >= AGAIN * self._looked_at
        if due and not self._warned:
            self._looked_at = self.num_observed
            self._warn_if_coarse()
        return report

    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        if saved is not None:
            follow_hyperparameters(self)

    def _warn_if_coarse(self) -> None:
        """Warn of a grid that is too coarse, unless a later `fit` can refine it enough."""
        resolution, selects = self._resolution(), self._can_select()
        why = resolution.message(self.grid)
        if why is not None and selects:
            finest = self._suited_features()
            why = resolution.message(finest) if resolution.loses(finest) else None
        if why is None:
            return
        self._warned = True
        if selects:
            remedy = "Use ExactGP or NodeWISKI, or give"
        else:
            may_refine = self._nodes is None and all_buffered(self)
            remedy = "Call `refine`, or give" if may_refine else "Rebuild it with"
        warnings.warn(
            f"The grid is too coarse, and intervals may be too narrow. {why} {remedy} a larger "
            "`grid_size`.",
            GridWarning,
            stacklevel=3,
        )

    def _can_select(self) -> bool:
        """Whether `fit` may replace the grid."""
        return self.grid_size == "auto" and self._nodes is None and all_buffered(self)

    def _suited_features(self) -> Grid:
        """The grid for the current hyperparameters."""
        low, high = self._box()
        return self._resolution().suited(high - low, self._covering)

    def _features_outdated(self) -> bool:
        """Whether another grid would suit the current hyperparameters better."""
        return self._resolution().outdated(self.grid, self._suited_features())

    def _covering(self, grid_size: int | Sequence[int] | None) -> Grid:
        """The grid of these sizes over the bounds."""
        return Grid.covering(self._box(), grid_size)

    def _box(self) -> Tensor:
        """The transformed image of the bounds, ``2 x d``."""
        image = self._transformed(cast(Tensor, self.bounds))
        return torch.stack([image.amin(0), image.amax(0)])

    def _wider(self, bounds: Tensor | None) -> Tensor:
        """Bounds checked to contain the current ones, which are the default."""
        mine = cast(Tensor, self.bounds)
        if bounds is None:
            return mine
        wider = cast(Tensor, checked_bounds(bounds, mine))
        if bool((wider[0] > mine[0]).any()) or bool((wider[1] < mine[1]).any()):
            raise BoundsError(
                f"bounds that contain {mine.tolist()}",
                f"{wider.tolist()}",
                "Widen them: earlier points may lie anywhere in the current bounds.",
            )
        return wider

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        if self._nodes is not None:
            return {**super()._layout(), "grid": self.grid.digest()}
        box = self._box().tolist()
        return {**super()._layout(), "box": box, "grid_size": self.grid_size}

    def _header(self) -> dict[str, Any]:
        """Class, version, layout, and the current number of nodes."""
        return {**super()._header(), "nodes": list(self.grid.sizes)}

    def _adopt(self, header: Mapping[str, Any]) -> None:
        """Take over the grid of a saved state."""
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

    def _sizes(self) -> dict[str, int]:
        pairs = pair_count(self.grid.sizes)
        return {**super()._sizes(), "m": self.grid.m, "t": pairs, "w": self.opening}

    def _empty_state(self) -> GridState:
        shared, product = self.noise_mode == "learned", is_product(self.covar_module)
        given = self._first_grid, self.num_outputs, shared, self.opening, product
        return GridState.before_data(*given)


def _are_sizes(sizes: Any, dim: int) -> bool:
    """Whether a saved state has valid numbers of nodes per dimension."""
    return isinstance(sizes, list) and len(sizes) == dim and all(type(g) is int for g in sizes)
