"""WISKI: a Gaussian process on a grid, with cost per step independent of the number of data.

[WISKI] Stanton, Maddox, Delbridge, Wilson 2021, Kernel Interpolation for Scalable Online Gaussian
Processes; mathematics as corrected in MATHS 2. The sufficient statistics are sums (2.2), so order
and batches of the data do not matter, and two streams can be merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Unpack, cast

import torch
from torch import Tensor

from bo_stream.base.gridded_gp import GriddedGP
from bo_stream.base.options import CommonOptions, whole_number
from bo_stream.base.snapshot import Derived, Key
from bo_stream.base.streaming_gp import Promises, check_noise_of_sums
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.mathematics.grid.compressed import CompressedStatistics
from bo_stream.mathematics.grid.evidence import GridFactorisation, dropped_share, grid_evidence
from bo_stream.mathematics.grid.kernel import is_stationary
from bo_stream.mathematics.grid.processes import grid_process
from bo_stream.mathematics.grid.state import GridState
from bo_stream.mathematics.lasting import lasting
from bo_stream.mathematics.process import PosteriorProcess

__all__ = ["WISKI"]


class WISKI(GriddedGP):
    """Gaussian process with a structured-kernel-interpolation prior and constant-size statistics.

    Inference is exact for the SKI prior, with any stationary gpytorch kernel and m independent
    outputs on one grid. With m nodes: memory O(m^2); `observe` of q points O(q 16^d); the next
    posterior O(q m^2) once, then O(4^d m) per point; evidence with gradient O(m^3). Nothing depends
    on n.

    A product kernel (RBF, periodic, products of one-dimensional kernels; scaled or not) needs less.
    Evidence and gradient use only the r eigenvectors of the kernel on the nodes that matter given
    the data: O(m^2 + r^3). Above 4,096 nodes (at most 1,000 per dimension) nothing is O(m^2):
    memory is O(4^d m + r^2), 14 MB for 30 x 30 x 30 nodes besides the buffer; `observe` O(q 10^d);
    evidence with gradient O(4^d m r^(1/d) + r^3); the posterior after one point O(r^2). There r is
    434 at a lengthscale of three tenths of the grid's width, and at most 4,000. At shorter
    lengthscales the buffered points themselves are used, O(n^3). `dropped_variance` measures the
    neglected part of the prior.

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
            are buffered, the grid can be replaced; and if they are at most four fifths of the
            nodes, evidence and gradient are O(n^3) (plus O(m^2 + n m) for kernels that are not
            products).

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

    _values_at_nodes: ClassVar[bool] = False  # whether the posterior must be that of these values

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
        self._set_up_grid(grid_size, grid)
        if not is_stationary(self.covar_module, self._first_grid, self._like):
            raise UnsupportedError(
                "a stationary kernel, whose covariances depend on differences of points only",
                type(self.covar_module).__name__,
                "Use ExactGP or NodeWISKI, which take any kernel, or transform the inputs so that "
                "a stationary kernel suits them.",
            )
        self._factorised: Derived[tuple[list[GridFactorisation], Tensor]] = Derived()
        self._compressed_cache: Derived[CompressedStatistics] = Derived()
        self._begin(train_X, train_Y, train_Yvar)

    @property
    def dropped_variance(self) -> float:
        """Largest share of the prior variance at a node that the current posterior neglects.

        It is due to eigenvectors of the kernel that are left out because of the data.
        """
        return dropped_share(self._factorisations())

    # -- state -----------------------------------------------------------------------------------

    def _absorb(self, state: GridState, X: Tensor, Y: Tensor, R: Tensor) -> GridState:
        """A += W'R^-1 W, b += W'R^-1 y, yy += y'R^-1 y, ld += sum log r (MATHS 2.2)."""
        check_noise_of_sums(self, state.grid.place(X), R)
        return state.absorb_at(X, Y, R, self.num_observed)

    # -- posterior -------------------------------------------------------------------------------

    def _build_process(self, state: GridState) -> PosteriorProcess:
        made = self._factorisations()
        mean = torch.stack([f.mean for f in made]) + state.origin
        given = state, made, self.num_observed, self._noise_scale(), mean
        return grid_process(*given, nodes=self._values_at_nodes)

    # -- objective -------------------------------------------------------------------------------

    @lasting
    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence with closed-form gradients (MATHS 2.3, 2.4), in the K-root form."""
        state, key = self.state, self._factorisation_key()
        s2, c = self._noise_scale(), self._prior_mean() - state.origin
        given = (self.covar_module, self.num_observed, s2, c, profile_mean)
        total, made = grid_evidence(state, *given, self._compressed())
        best = torch.stack([f.mean for f in made]) + state.origin if profile_mean else None
        means = self._prior_mean().detach().clone() if best is None else best
        self._factorised.put(key, (made, means))
        return total, best

    def _compressed(self) -> CompressedStatistics:
        """Statistics that later evaluations reuse while the state is unchanged."""
        return self._compressed_cache.made(Key(self.stream.version), CompressedStatistics)

    def _factorisations(self) -> list[GridFactorisation]:
        """The factorisations of the last evaluation, or new ones if anything has changed."""
        key = self._factorisation_key()
        found = self._factorised.get(key)
        if found is None or not torch.equal(found[1], self._prior_mean()):
            with torch.no_grad():
                self._objective(profile_mean=False)
            found = self._factorised.get(key)
        return cast("tuple[list[GridFactorisation], Tensor]", found)[0]

    def _factorisation_key(self) -> Key:
        """Everything that a factorisation depends on, except the prior mean."""
        return Key(self.stream.version, (self.covar_module, self.likelihood))
