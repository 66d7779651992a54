"""WISKI, on a grid or on nodes that are data points: constant-size statistics, constant costs.

[WISKI] Stanton, Maddox, Delbridge, Wilson 2021, Kernel Interpolation for Scalable Online Gaussian
Processes; mathematics as corrected in MATHS 2. The sufficient statistics are sums (2.2), so order
and batches of the data do not matter, and two streams can be merged. While all points are buffered,
the sums over the nodes of another grid follow exactly, so the grid can be replaced.

NodeWISKI has the same sums and evidence in any dimension. Its nodes are chosen from the data, and
its weights fixed on arrival (MATHS 2.8).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, Unpack, cast

import torch
from torch import Tensor

from bo_stream.base.fitting import Correlated, FitReport
from bo_stream.base.options import CommonOptions
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import FeatureGP, Promises, StreamingGP
from bo_stream.base.units import checked_bounds
from bo_stream.errors import (
    BoundsError,
    GridWarning,
    InputError,
    StateError,
    UnsupportedError,
    whole_number,
)
from bo_stream.mathematics.data_evidence import correlations_on
from bo_stream.mathematics.grid import Grid, GridState, pair_count
from bo_stream.mathematics.grid_evidence import (
    LAST,
    NATS,
    Resolution,
    check_size,
    grid_evidence,
    grid_process,
    takes_data,
)
from bo_stream.mathematics.kernels import is_product, is_stationary
from bo_stream.mathematics.nodes import NodeState, absorb, node_evidence, node_process
from bo_stream.mathematics.process import PosteriorProcess, Process, unconditioned
from bo_stream.mathematics.shapes import Rows

__all__ = ["WISKI", "NodeWISKI"]

FEW_EVALS, AGAIN = 5, 1.1
"""`fit` checks the grid if it used more evaluations than this, or after this growth of the data."""


class WISKI(FeatureGP[GridState]):
    """Gaussian process with a structured-kernel-interpolation prior and constant-size statistics.

    Inference is exact for the SKI prior, with any stationary gpytorch kernel and m independent
    outputs on one grid. With m nodes the state is O(4^d m) numbers, besides the buffer, and
    `observe` of q points costs O(q 10^d). Nothing depends on n, except that the posterior after a
    few more points is the last one conditioned on them.

    A product kernel (RBF, periodic, products of one-dimensional kernels; scaled or not) is put on
    the r eigenvectors of its matrix at the nodes that matter given the data: products over the
    dimensions. Evidence with gradient, and the posterior under new hyperparameters, cost O(4^d m
    r^(2/d) + r^3), and a point of the posterior O(r^2). On 30 x 30 x 30 nodes r is 434 at a
    lengthscale of three tenths of the grid's width; it is at most 4,000. At shorter lengthscales
    the buffered points themselves are used, O(n^3). Any other kernel costs O(m^3), and then
    O(4^d m) per point.

    The prior is close to the kernel's if lengthscales exceed about 1.2 grid spacings;
    `grid_too_coarse` reports where they do not. While all points are buffered (the first
    ``opening``), `refine` replaces the grid exactly, also by one over wider bounds. On a grid that
    is too coarse, intervals are calibrated only if the noise is learned, and learned again once n
    exceeds the number of nodes, because it absorbs what the grid cannot resolve. On 370 cells of a
    rough map with 16 x 16 nodes, 95 % intervals covered 95 % of other cells with a final `fit`, and
    79, 77 and 93 % (three seeds) with the hyperparameters of the first 70 cells. With known noise
    they remain too narrow.

    Args:
        train_X: ``n x d`` raw inputs, d <= 3; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances, or None to learn the noise.
        bounds: ``2 x d`` raw bounds; the grid covers their transformed image. Give this or
            ``grid``. ``"unit"`` means the bounds that ``input_transform`` maps to the unit cube.
        common: ``covar_module``, ``mean_module``, ``likelihood``, ``input_transform``,
            ``outcome_transform``: see `CommonOptions`.
        grid_size: Nodes per dimension, all inside the bounds: one integer or one per dimension.
            Default 100, 30 x 30 or 10 x 10 x 10. ``"auto"`` starts with the default, and `fit`
            refines the grid each time the data have doubled, while all points are buffered, as
            lengthscales and precise data need it, up to 4,096 nodes.
        grid: One regular 1-D tensor per dimension, in transformed space; points must lie between
            the second and the last but one node.
        opening: Number of initial points that are buffered, at constant size. While all points
            are buffered, the grid can be replaced; and if they are few (at most 300, or fewer than
            the eigenvectors that matter), evidence and gradient are O(n^3) (plus O(n m) for kernels
            that are not products, up to four fifths of the nodes).

    Raises:
        UnsupportedError: for d > 3, a kernel that is not stationary (as tested by moving points
            inside the grid), or a kernel that is not a product on more than 10,000 nodes. (`fit`
            and posteriors raise a StateError if lengthscales are too short for a large grid and
            not all points are buffered.)
        InputError: unless exactly one of ``bounds`` and ``grid`` is given.
        GridWarning: once, if `fit` finds the grid too coarse and cannot refine it enough.

    Example:
        >>> import torch
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> model = WISKI(X, X.sum(-1, keepdim=True), bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        >>> model.observe(X + 0.0, X.sum(-1, keepdim=True)).num_observed
        40
        >>> model.posterior(X[:5]).mean.shape
        torch.Size([5, 1])
    """

    promises = Promises(
        order_invariant=True,
        bytes_constant=True,
        updates_without_drift=10_000,
        multi_output=True,
        additive=True,
    )

    needs_bounds = True

    _grid_moves: ClassVar[bool] = False  # whether points to come may have other places on it

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        grid_size: int | Sequence[int] | Literal["auto"] | None = None,
        grid: Sequence[Tensor] | None = None,
        opening: int = 4096,
        **common: Unpack[CommonOptions],
    ) -> None:
        bounded = common.get("bounds") is not None
        if bounded == (grid is not None) or (grid is not None and grid_size is not None):
            raise InputError(
                "exactly one of `bounds` (with or without `grid_size`) and `grid`",
                f"bounds={bounded}, grid={grid is not None}",
                "Give the raw 2 x d bounds of the problem.",
            )
        super().__init__(train_X, train_Y, train_Yvar, **common)
        self.opening = whole_number("opening", opening, 0)
        self._nodes = (
            None
            if grid is None
            else [torch.as_tensor(axis, dtype=torch.float64).tolist() for axis in grid]
        )
        self.grid_size = grid_size
        first = self._first_grid()
        self.grid_size = "auto" if grid_size == "auto" else list(first.sizes)
        low = self._like.new_tensor(first.origin)
        if not is_stationary(self.covar_module, low, first.widths(self._like)):
            raise UnsupportedError(
                "a stationary kernel, whose covariances depend on differences of points only",
                type(self.covar_module).__name__,
                "Use ExactGP or NodeWISKI, which take any kernel, or transform the inputs so that "
                "a stationary kernel suits them.",
            )
        self._begin(train_X, train_Y, train_Yvar)

    # -- state -----------------------------------------------------------------------------------

    def _empty_state(self) -> GridState:
        sizes = self._dim, self.num_outputs, self.noise_mode == "learned", self.opening
        return GridState.before_data(self._first_grid(), *sizes)

    # -- posterior and objective -----------------------------------------------------------------

    def _build_process(self, state: GridState) -> Process:
        return grid_process(state, self._prior(), self.num_observed, moves=self._grid_moves)

    def _rows_of_fit(self) -> tuple[Rows | None, Correlated | None]:
        state, n = self.state, self.num_observed
        if not self._all_buffered or self._grid_moves:
            return None, None
        product = is_product(self.covar_module, self._dim)
        exact = product and takes_data(state, n, product) and float(state.weight) == n
        return state.buffer[:n], partial(correlations_on, state.grid) if exact else None

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence with closed-form gradients (MATHS 2.3, 2.4)."""
        return grid_evidence(self.state, self._prior(), self.num_observed, profile_mean)

    # -- the grid --------------------------------------------------------------------------------

    @property
    def grid(self) -> Grid:
        """The nodes, in transformed space."""
        return self.state.grid

    @all_or_nothing
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
        self._check_selectable(
            "Rebuild it with a larger `grid_size` or wider `bounds`, or a larger `opening`."
        )
        if bounds is not None:
            mine = cast(Tensor, self.bounds)
            wider = cast(Tensor, checked_bounds(bounds, mine))
            if bool((wider[0] > mine[0]).any()) or bool((wider[1] < mine[1]).any()):
                raise BoundsError(
                    f"bounds that contain {mine.tolist()}",
                    f"{wider.tolist()}",
                    "Widen them: earlier points may lie anywhere in the current bounds.",
                )
            self._set("bounds", wider)
        grid = self._suited_grid() if grid_size is None else self._covering(grid_size)
        self._replace(state=self.state.chosen(grid, self.num_observed))
        return self

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
        state, n = self.state, self.num_observed
        rows = state.buffer[: n if self._all_buffered else 0][-LAST:]
        grid = state.grid if self._nodes is not None else self._covering(state.grid.sizes)
        D = (self._noise_scale().unsqueeze(-1) * rows.R).expand(rows.Y.shape)
        Y = rows.Y - self._prior_mean().unsqueeze(-1)
        return Resolution(self.covar_module, grid.place(rows.X), Y, D)

    def _search(self, max_evals: int | None) -> FitReport:
        """Hyperparameters, and the grid too with ``grid_size="auto"``."""
        report = super()._search(max_evals)
        checked = float(self.state.checked_at)
        grown = self.num_observed >= AGAIN * checked
        if math.isfinite(checked) and (grown or report.evaluations > FEW_EVALS):
            self._check_grid()
        return report

    def _check_grid(self) -> None:
        """Warn of a grid that is too coarse, unless a later `fit` can refine it enough."""
        resolution, selects = self._resolution(), self._can_select()
        why = resolution.message(self.grid)
        if why is not None and selects:
            finest = self._suited_grid()
            why = resolution.message(finest) if resolution.lost(finest) > NATS else None
        checked = float(self.num_observed) if why is None else math.inf
        self._note(state=replace(self.state, checked_at=self._like.new_tensor(checked)))
        if why is None:
            return
        may_refine = self._nodes is None and self._all_buffered
        remedy = "Call `refine`, or give" if may_refine else "Rebuild it with"
        warnings.warn(
            f"The grid is too coarse, and intervals may be too narrow. {why} "
            f"{'Use ExactGP or NodeWISKI, or give' if selects else remedy} a larger `grid_size`.",
            GridWarning,
            stacklevel=7,
        )

    def _can_select(self) -> bool:
        return self.grid_size == "auto" and self._nodes is None and self._all_buffered

    def _better(self) -> GridState | None:
        grid = self._suited_grid()
        outdated = self._resolution().outdated(self.grid, grid)
        return self.state.chosen(grid, self.num_observed) if outdated else None

    def _suited_grid(self) -> Grid:
        """The grid for the current hyperparameters."""
        low, high = self._box()
        return self._resolution().suited(high - low, self._covering)

    def _first_grid(self) -> Grid:
        """The grid of the options."""
        if self._nodes is None:
            return self._covering(None if self.grid_size == "auto" else self.grid_size)
        grid = Grid.from_nodes([self._like.new_tensor(g) for g in self._nodes], self._dim)
        check_size(grid, is_product(self.covar_module, self._dim))
        return grid

    def _covering(self, grid_size: int | Sequence[int] | None) -> Grid:
        """The grid of these sizes over the bounds."""
        grid = Grid.covering(self._box(), grid_size)
        product = not self._grid_moves and is_product(self.covar_module, grid.dim)
        check_size(grid, product)
        return grid

    def _box(self) -> Tensor:
        """The transformed image of the bounds, ``2 x d``."""
        image = self._transformed(cast(Tensor, self.bounds))
        return torch.stack([image.amin(0), image.amax(0)])

    # -- saving ----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        if self._nodes is not None:
            parts = self.grid.origin, self.grid.step, self.grid.sizes
            return {**super()._layout(), "grid": [*map(list, parts)]}
        box = self._box().tolist()
        return {**super()._layout(), "box": box, "grid_size": self.grid_size}

    def _header(self) -> dict[str, Any]:
        """Class, version, layout, and the current number of nodes."""
        return {**super()._header(), "nodes": list(self.grid.sizes)}

    def _adopt(self, header: Mapping[str, Any]) -> None:
        """Take over the grid of a saved state."""
        super()._adopt(header)
        mine, sizes = list(self.grid.sizes), header.get("nodes")
        valid = isinstance(sizes, list) and list(map(type, sizes)) == [int] * len(mine)
        if self._nodes is None and valid and sizes != mine:
            self._replace(state=self.state.resummed(self._covering(sizes), 0))

    def _options(self) -> dict[str, Any]:
        nodes = {"grid": self._nodes} if self._nodes else {"grid_size": self.grid_size}
        return {**nodes, "opening": self.opening}

    def _sizes(self) -> dict[str, int]:
        pairs = pair_count(self.grid.sizes)
        return {**super()._sizes(), "m": self.grid.m, "t": pairs, "w": self.opening}


class NodeWISKI(StreamingGP[NodeState]):
    """Gaussian process on up to ``cap`` nodes chosen from the data, for any number of inputs.

    It is exact while n is at most ``cap`` (points redundant to within ``tolerance`` need no node).
    Beyond the cap, a point is replaced by its projection on the nodes, and its residual variance is
    added to its noise. A point that the nodes explain poorly replaces the node that the other nodes
    explain best. Projections are fixed on arrival, under the hyperparameters of that time, and
    depend on the points before, so `fit` before the cap is reached. Hyperparameters, noise and mean
    can be learned again from all data at any time.

    With m nodes: memory O(m^2); evidence with gradient O(m^3); `observe` of q points O(m^3 + q
    m^2), plus O(q m + m^2) for each node that changes; the posterior O(m^3) once, then O(m^2) per
    point. Nothing depends on n. Outputs are independent and share the nodes.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances, or None to learn the noise.
        bounds: Optional ``2 x d`` raw bounds; points outside are refused.
        common: ``covar_module`` (any gpytorch kernel), ``mean_module``, ``likelihood``,
            ``input_transform``, ``outcome_transform``: see `CommonOptions`.
        cap: Maximum number of nodes, at least 2. Only exact conditioning exceeds it.
        tolerance: A point becomes no node if its variance given the nodes is below this fraction
            of its noise variance, or a tenth of this fraction of the prior variance. Larger
            tolerances cost accuracy, and save nothing once the cap is reached. At 0 only
            duplicates are left out.

    Example:
        >>> import torch
        >>> X = torch.rand(40, 5, dtype=torch.double)
        >>> model = NodeWISKI(X, X.sum(-1, keepdim=True), cap=30)
        >>> model.nodes.shape
        torch.Size([30, 5])
        >>> model.posterior(X[:3]).mean.shape
        torch.Size([3, 1])
    """

    promises = Promises(
        order_invariant=False,
        bytes_constant=True,
        updates_without_drift=10_000,
        multi_output=True,
        rebuilds=True,
    )

    conditions_up_to = 64

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        cap: int = 512,
        tolerance: float = 1e-6,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(train_X, train_Y, train_Yvar, **common)
        if not 0.0 <= tolerance < 1.0:
            raise InputError("a tolerance from 0 to below 1", f"{tolerance}", "1e-6 is exact.")
        self.cap, self.tolerance = whole_number("cap", cap, 2), float(tolerance)
        self._begin(train_X, train_Y, train_Yvar)

    @property
    def nodes(self) -> Tensor:
        """The nodes, ``m x d``, raw, float64."""
        return self._raw_inputs(self.state.Z)

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "cap": self.cap, "tolerance": self.tolerance}

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "s": self.num_outputs}

    def _empty_state(self) -> NodeState:
        return NodeState.before_data(self._dim, self.num_outputs)

    def _absorb(self, state: NodeState, rows: Rows) -> NodeState:
        rows = replace(rows, R=rows.R.expand(rows.Y.shape))
        return absorb(state, rows, self._prior().frozen(), cap=self.cap, tolerance=self.tolerance)

    # -- posterior and objective -----------------------------------------------------------------

    def _build_process(self, state: NodeState) -> Process:
        return node_process(state, self._prior().frozen())

    def _to_condition(self, process: PosteriorProcess, points: int) -> PosteriorProcess | None:
        """The last process, if all points since became nodes and none was replaced."""
        base, before = unconditioned(process)
        nodes = cast(Process, base).size + before
        return process if len(self.state.Z) == nodes + points else None

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence with closed-form gradients (MATHS 2.8): O(m^3)."""
        return node_evidence(self.state, self._prior(), profile_mean)
