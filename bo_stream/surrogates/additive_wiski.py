"""WISKI on a sum of small grids: one or a few inputs each, for functions that nearly add up.

[WISKI] Stanton, Maddox, Delbridge, Wilson 2021, Kernel Interpolation for Scalable Online Gaussian
Processes; mathematics as corrected in MATHS 2, over the nodes of all grids together.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Unpack, cast

import torch
from gpytorch.kernels import AdditiveKernel
from torch import Size, Tensor

from bo_stream.base.additive import AdditiveGP
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.options import CommonOptions, default_kernel, whole_number
from bo_stream.base.streaming_gp import Promises
from bo_stream.base.validation import sizes_of
from bo_stream.errors import BoundsError, GridWarning, InputError, UnsupportedError
from bo_stream.mathematics.grid.groups import (
    Groups,
    GroupState,
    checked_groups,
    group_evidence,
    inputs_of,
    members,
)
from bo_stream.mathematics.grid.kernel import is_stationary
from bo_stream.mathematics.grid.nodes import LEAST
from bo_stream.mathematics.grid.state import MOST_DENSE_NODES
from bo_stream.mathematics.posterior.features import FeatureProcess

__all__ = ["AdditiveWISKI"]


class AdditiveWISKI(AdditiveGP):
    """A sum of WISKIs: ``f(x) = sum_g f_g(x_g)``, each on a grid over a group of up to 3 inputs.

    Exact inference for the sum's prior, whatever the number of inputs. With m nodes of all grids:
    memory O(m^2); `observe` of q points O(q 16^d) with groups of d inputs, for each pair of groups;
    evidence, gradient and the posterior after a change of the hyperparameters O(m^3); a point of
    the posterior O(m^2). None of it depends on n, and neither order nor batches of the points
    matter.

    Use it where the function is nearly a sum; elsewhere interactions between inputs of different
    groups are lost for good. Test RMSE, in standard deviations of the outcomes, with each input on
    its own: .76 on kin8nm (8 inputs) and .41 on elevators (18); `NodeWISKI` with 512 nodes: .34 and
    .39 (`python -m experiments.benchmarks.table_error`, means of three splits).

    Args:
        train_X: ``n x d`` raw inputs, any d; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances, or None to learn the noise.
        groups: Groups of inputs, numbered from 0, up to 3 each; an input may be in several. Left
            out, they are those that the parts of ``covar_module`` look at; without one, each input
            is a group.
        grid_size: Nodes per dimension of every grid, all of them inside the bounds. Default 30,
            15 x 15 or 10 x 10 x 10; at most 10,000 in all.
        common: ``bounds`` (needed), ``covar_module`` (a gpytorch `AdditiveKernel` of stationary
            kernels with ``active_dims``, one for each group and in their order; or one such
            kernel), ``mean_module``, ``likelihood``, ``input_transform``, ``outcome_transform``:
            see `StreamingGP`. By default each group has a scaled RBF kernel with a lengthscale for
            each input.

    Raises:
        BoundsError: without bounds.
        InputError: on groups of inputs there are not, or others than those of the kernel.
        UnsupportedError: on a group of more than 3 inputs, a kernel that is not stationary, or too
            many nodes.
        GridWarning: once, by a `fit` that finds a lengthscale shorter than 1.2 spacings of a grid.
        NoiseError: also for known noise below 1e-12 of the prior variance.

    Example:
        >>> import torch
        >>> X = torch.rand(40, 6, dtype=torch.double)
        >>> bounds = torch.tensor([[0.0] * 6, [1.0] * 6])
        >>> model = AdditiveWISKI(X, X.sin().sum(-1, keepdim=True), bounds=bounds)
        >>> model.observe(X[:5], X[:5].sin().sum(-1, keepdim=True)).num_observed
        45
        >>> pairs = AdditiveWISKI(X, X.sum(-1, keepdim=True), bounds=bounds, groups=[[0, 1], [5]])
        >>> pairs.posterior(X[:3]).mean.shape
        torch.Size([3, 1])
    """

    promises = Promises(
        order_invariant=True, bytes_constant=True, updates_without_drift=10_000, multi_output=True
    )

    needs_bounds = True

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        groups: Sequence[Sequence[int]] | None = None,
        grid_size: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        if common.get("bounds") is None:
            raise BoundsError("bounds `2 x d`", "none", "Give the raw bounds of the problem.")
        inputs, outputs = sizes_of(train_X, train_Y, train_Yvar)
        if common.get("covar_module") is None:
            batch = Size([outputs] if outputs > 1 else [])
            common["covar_module"] = _sum_of_kernels(checked_groups(groups, inputs), batch)
        super().__init__(train_X, train_Y, train_Yvar, **common)
        self.groups = [inputs_of(member, inputs) for member in members(self.covar_module)]
        if groups is not None and checked_groups(groups, inputs) != self.groups:
            raise InputError(
                f"the groups that the parts of `covar_module` look at, {self.groups}",
                repr(groups),
                "Leave `groups` out, or give each part the `active_dims` of its group.",
            )
        if not is_stationary(self.covar_module):
            raise UnsupportedError(
                "stationary kernels", type(self.covar_module).__name__, "Use ExactGP for others."
            )
        self.grid_size = None if grid_size is None else whole_number("grid_size", grid_size, LEAST)
        self._grids = Groups.covering(self._box(), self.groups, grid_size)
        if self._grids.m > MOST_DENSE_NODES:
            raise UnsupportedError(
                f"at most {MOST_DENSE_NODES} nodes in all",
                f"{self._grids.m}, whose sums would take {8 * self._grids.m**2 / 2**30:.1f} GiB",
                "Take a smaller `grid_size`, or fewer groups.",
            )
        self._news_kept, self._warned = self._grids.m // 4, False
        self._begin(train_X, train_Y, train_Yvar)

    # -- state -----------------------------------------------------------------------------------

    def _box(self) -> Tensor:
        """The transformed image of the bounds, ``2 x d``."""
        image = self._transformed(self.get_buffer("bounds"))
        return torch.stack([image.amin(0), image.amax(0)])

    def _layout(self) -> dict[str, Any]:
        sizes = [list(grid.sizes) for grid in self._grids.grids]
        own = {"box": self._box().tolist(), "groups": self.groups, "nodes": sizes}
        return {**super()._layout(), **own}

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "m": self._grids.m}

    def _empty_state(self) -> GroupState:
        return GroupState.on(self._grids, self.num_outputs, self.noise_mode == "learned")

    def _absorb(
        self, state: GroupState, X: Tensor, Y: Tensor, R: Tensor, *, exact: bool
    ) -> GroupState:
        """A += W'R^-1 W, b += W'R^-1 y, yy += y'R^-1 y, ld += sum log r (MATHS 2.2)."""
        self._check_noise(X, R)
        rows = state.groups.interpolate(X)
        return state.absorb(rows, Y, R, self._undo, first=self.num_observed == 0)

    # -- posterior and objective -----------------------------------------------------------------

    def _build_process(self, state: GroupState) -> FeatureProcess:
        mean = self._prior_mean().detach().clone()
        with torch.no_grad():
            c = mean - state.origin
            made = group_evidence(state, self.covar_module, self._noise_scale(), c, False)[1]
        u = torch.stack([f.root.left(f.q.unsqueeze(-1)).squeeze(-1) for f in made])
        S = torch.stack([f.root.lift(f.Q_inv) for f in made])
        return FeatureProcess(state.groups, mean, u, S)

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence with closed-form gradients (MATHS 2.3, 2.4)."""
        state = cast(GroupState, self.held())
        given = (self._noise_scale(), self._prior_mean() - state.origin, profile_mean)
        total, made = group_evidence(state, self.covar_module, *given)
        return total, torch.stack([f.mean for f in made]) + state.origin if profile_mean else None

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit the hyperparameters, warm-started; say once if a grid is too coarse for them.

        Args:
            max_evals: Most objective-and-gradient evaluations; None: until the gain falls below
                0.01 nat.
        """
        report = super().fit(max_evals)
        low, high = self._box()
        given = (self.covar_module, high - low, self.num_outputs)
        reasons = [] if self._warned else self._grids.too_coarse(*given)
        if reasons:
            self._warned = True
            why = "; ".join(reasons).capitalize()
            warnings.warn(
                f"A grid is too coarse, and intervals may be too narrow. {why}. Build it anew with "
                "a larger `grid_size`.",
                GridWarning,
                stacklevel=2,
            )
        return report


def _sum_of_kernels(groups: Sequence[Sequence[int]], batch: Size) -> AdditiveKernel:
    """The default kernel of each group, which have a prior variance of one together."""
    kernels = [default_kernel(len(group), batch, tuple(group)) for group in groups]
    for kernel in kernels:
        kernel.outputscale = torch.full(batch, 1.0 / len(groups))
    return AdditiveKernel(*kernels)
