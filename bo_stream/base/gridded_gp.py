"""The grid of a surrogate: whether it fits the lengthscales, moves to another one, saving it.

While all points are at hand the sums can be taken over the nodes of another grid, exactly; a saved
state brings its grid along.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor

from bo_stream.base.feature_selection import ChoosingGP
from bo_stream.base.fitting.report import FitReport
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

__all__ = ["GriddedGP"]

NEWS = 500
"""Points that are folded into a posterior at once, at most."""
FEW_EVALS, AGAIN = 5, 1.1
"""After a fit of more evaluations, or with this many times the data, `fit` looks at the grid."""


class GriddedGP(ChoosingGP):
    """A surrogate on a grid between its bounds, which may be refined; or on nodes given to it.

    Its constructor calls `_lay` before the first data.
    """

    _outdated = (
        "Build the surrogate from the data. Nodes lie inside the bounds now; to have those of the "
        "saved grid, two of them beyond each bound, give them as `grid`."
    )
    _remedy = (
        "Build it anew with a larger `grid_size` or wider `bounds`, or with a larger `opening`."
    )

    def _lay(
        self, grid_size: int | Sequence[int] | Literal["auto"] | None, grid: Sequence[Tensor] | None
    ) -> None:
        """Lay the grid to begin with; `WISKI` explains the options."""
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
        return cast(GridState, self._forms["state"]).grid

    def refine(
        self, grid_size: int | Sequence[int] | None = None, bounds: Tensor | None = None
    ) -> Self:
        """Move to another grid, exactly: the same as one built on it from all the data.

        O(n 16^d + m^2). Hyperparameters and transforms stay as they are; `fit` next.

        Args:
            grid_size: Nodes per dimension; by default those that fit the lengthscales of now, a
                spacing at most two thirds of each while there are no more than 4,096 in all.
            bounds: Wider raw bounds, ``2 x d``, for points outside those of now.

        Returns:
            The surrogate itself.

        Raises:
            StateError: if more points were seen than are held, or nodes were given one by one.
            BoundsError: on bounds that do not contain those of now.
            InputError: on a grid of too few nodes.
        """
        if self._nodes is not None:
            raise StateError(
                "a grid made of bounds",
                "nodes given one by one",
                "Build it anew with `bounds`, or with another `grid`.",
            )
        self._check_choosable()
        wider = self._wider(bounds)

        def change() -> None:
            self.bounds = wider
            sizes = self._fitting_sizes() if grid_size is None else grid_size
            self._choose(self._covering(sizes))

        self._wholly(change)
        return self

    @property
    def grid_too_coarse(self) -> str | None:
        """What is lost on a grid too coarse for the hyperparameters of now, as a sentence, or None.

        A grid is too coarse if a lengthscale is below 1.2 spacings; or if the evidence that the
        kernel itself gives the last 300 points, where all points are held, is more than 3 nats
        above that on the grid.
        """
        state, n = cast(GridState, self.held()), self.num_observed
        points = state.opening.first(n if state.holds_all(n) else 0)
        with torch.no_grad():
            law = (self._noise_scale(), self._prior_mean())
            return coarseness_message(self.covar_module, state.grid, points, *law)

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit the hyperparameters, warm-started, and with ``grid_size="auto"`` the grid to them.

        The grid moves even where no evaluations are left to climb on the new one; the report then
        has the value on the old one. Interrupted, it leaves the best hyperparameters seen on the
        grid of then.

        Args:
            max_evals: Most objective-and-gradient evaluations; None: until the gain falls below
                0.01 nat.
        """
        report = super().fit(max_evals)
        due = report.evaluations > FEW_EVALS or self.num_observed >= AGAIN * self._looked_at
        if due and not (self._warned or (self._chooses and self._choosable())):
            self._looked_at = self.num_observed
            why = self.grid_too_coarse
            if why is not None:
                self._warned = True
                remedy = "Call `refine`, or give" if self._choosable() else "Build it anew with"
                warnings.warn(
                    f"The grid is too coarse, and intervals may be too narrow. {why} {remedy} a "
                    "larger `grid_size`.",
                    GridWarning,
                    stacklevel=2,
                )
        return report

    @property
    def _chooses(self) -> bool:
        return self.grid_size == "auto"

    def _choosable(self) -> bool:
        return self._nodes is None and super()._choosable()

    def _fitting(self) -> Grid:
        return self._covering(self._fitting_sizes())

    def _covering(self, grid_size: int | Sequence[int] | None) -> Grid:
        """The grid of these sizes between the bounds."""
        return Grid.covering(self._box(), grid_size)

    def _fitting_sizes(self) -> list[int]:
        low, high = self._box()
        return fitting_sizes(
            kernel_lengths(self.covar_module, high - low, self.num_outputs), high - low
        )

    def _misfit(self) -> bool:
        like = self.get_buffer("_noise_sum")
        return misfit(self.covar_module, self.grid, like, self.num_outputs)

    def _box(self) -> Tensor:
        """The transformed image of the bounds, ``2 x d``."""
        image = self._transformed(self.get_buffer("bounds"))
        return torch.stack([image.amin(0), image.amax(0)])

    def _wider(self, bounds: Tensor | None) -> Tensor:
        """Bounds checked to contain those of now; by default the same."""
        mine = self.get_buffer("bounds")
        if bounds is None:
            return mine
        wider = cast(Tensor, checked_bounds(bounds, mine))
        if bool((wider[0] > mine[0]).any()) or bool((wider[1] < mine[1]).any()):
            raise BoundsError(
                f"bounds that contain {mine.tolist()}",
                f"{wider.tolist()}",
                "Widen them; points seen lie anywhere in those of now.",
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

    def _check_header(self, header: Mapping[str, Any] | None) -> None:
        if isinstance(header, Mapping) and not self._loads_data:  # the grid stays, as the data do
            header = {**header, "nodes": list(self.grid.sizes)}
        super()._check_header(header)

    def _adopt(self, header: Mapping[str, Any]) -> None:
        """The grid that a saved state has been moved to."""
        super()._adopt(header)
        sizes = header.get("nodes")
        mine = self.grid
        if self._nodes is None and sizes != list(mine.sizes) and _are_sizes(sizes, mine.dim):
            self.hold("state", self.held().over(self._covering(sizes)))

    def _options(self) -> dict[str, Any]:
        if self._nodes is None:
            return {"grid_size": self.grid_size, "opening": self.opening}
        nodes = [torch.tensor(g, dtype=torch.float64) for g in self._nodes]
        return {"grid": nodes, "opening": self.opening}

    @property
    def _news_kept(self) -> int:  # type: ignore[override]
        return min(self.grid.m // 4, NEWS)

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
