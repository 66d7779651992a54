"""SVDGP: a Gaussian process with separate bases for mean and covariance (MATHS 6.8).

[SVDGP] Cheng, Boots 2017, Variational Inference for Gaussian Process Models with Linear Complexity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack, cast

import torch
from torch import Tensor

from bo_stream.base.options import CommonOptions, whole_number
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import Promises
from bo_stream.growth import Covering, GrowthPolicy
from bo_stream.growth.policies import checked_policy, inducing_points
from bo_stream.mathematics.decoupled import DecoupledState
from bo_stream.mathematics.inducing import empty_state, rebase
from bo_stream.mathematics.process import Process
from bo_stream.mathematics.rows import Rows
from bo_stream.surrogates.online_sgpr import EVIDENCE_ROWS, InducingGP

__all__ = ["SVDGP"]

JITTER = 1e-8


class SVDGP(InducingGP):
    """GP with an exact mean on a window of data and a sparse covariance from all data.

    The mean is the exact GP's while n is at most ``window``. Beyond it, the rows best represented
    by the inducing points are folded into these, as in online SGPR, and the mean is that of the
    remaining rows given the folded ones. The covariance is that of a sparse GP (SGPR) on all data.
    It suits five or more inputs, and n up to a few windows.

    Approximations:

    - Variances are those of the sparse GP: too large far from the inducing points, and somewhat
      too small near these, because each row tells about them as if they represented it
      completely. The exact variance is at most ``1 + rho + rho ** 0.5`` times this one, with
      rho the largest eigenvalue of the rows' covariance given the inducing points, over the
      noise variance: close to 1 once the inducing points represent the rows (MATHS 6.8). A
      fantasy far from them changes the mean by more than the real observation will; with 512
      points in six inputs by about twice as much. Fantasies and `condition_on_observations` are
      nevertheless exact conditioning of this posterior.
    - Folded rows are represented by their information about the inducing points.
    - Hyperparameters are learned from the exact evidence of at most 600 rows (no more than the
      window), an even sample of all rows seen. `log_evidence` is that of this sample, hence of all
      data up to n = 600.

    With M inducing points and a window of r: memory O(r^2 + M^2); `observe` of q points O(q r^2 +
    q M^2 + M^3), and O(r^3 + r^2 M) whenever rows are folded; the posterior O(r^2 + M^3) once, then
    O(M^2 + r) per point. Nothing depends on n.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes.
        train_Yvar: ``n x 1`` raw noise variances, or None to learn the noise.
        bounds: Optional ``2 x d`` raw bounds; points outside are refused.
        common: ``covar_module`` (any gpytorch kernel), ``mean_module``, ``likelihood``,
            ``input_transform``, ``outcome_transform``: see `CommonOptions`.
        window: Number of rows on which the mean is exact.
        covar_basis: Maximum number of inducing points if ``growth`` is left out.
        slack: Number of rows beyond the window after which rows are folded, all at once.
        growth: Policy of `bo_stream.growth` for inducing points, or its name and options as plain
            data; by default up to ``covar_basis`` that cover the data. A policy has a limit of its
            own.
        tolerance: Not used: the mean is exact to rounding. It is accepted because it once was the
            accuracy of an iterative solution.

    Example:
        >>> import torch
        >>> X = torch.rand(60, 6, dtype=torch.double)
        >>> Y = X.sum(-1, keepdim=True)
        >>> model = SVDGP(X[:40], Y[:40], window=50, covar_basis=20, slack=5)
        >>> model.observe(X[40:], Y[40:]).inducing_points.shape
        torch.Size([20, 6])
        >>> model.num_in_window, model.num_observed
        (50, 60)
    """

    promises = Promises(
        order_invariant=False, bytes_constant=True, updates_without_drift=5_000, multi_output=False
    )

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        window: int = 2048,
        covar_basis: int = 512,
        slack: int = 64,
        growth: GrowthPolicy | str | Mapping[str, Any] | None = None,
        tolerance: float = 0.01,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(train_X, train_Y, train_Yvar, **common)
        self.window = whole_number("window", window, 2)
        self.covar_basis = whole_number("covar_basis", covar_basis, 1)
        self.slack = whole_number("slack", slack, 0)
        self.growth = checked_policy(Covering(covar_basis) if growth is None else growth)
        self.tolerance = tolerance
        self._begin(train_X, train_Y, train_Yvar)

    @property
    def num_in_window(self) -> int:
        """Number of rows on which the mean is exact."""
        return len(cast(DecoupledState, self.state).window)

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "window": self.window, "slack": self.slack}

    def _empty_state(self) -> DecoupledState:
        rows, folded = Rows.empty(self._dim), torch.zeros((), dtype=torch.int64)
        none = {name: rows.X.new_zeros(0, 0) for name in ("G", "L_D", "A", "C")}
        more = {**none, "window": rows, "folded": folded}
        return DecoupledState.empty(self._dim, JITTER, self._frozen_prior(), **more)

    def _absorb(self, state: DecoupledState, rows: Rows) -> DecoupledState:
        """Choose inducing points, add rows, fold (MATHS 6.8)."""
        prior = self._frozen_prior()
        state = state.renewed(prior).with_counted(rows, min(EVIDENCE_ROWS, self.window))
        before, batch = state.sparse_posterior(prior), state.last_batch(rows, prior)
        chosen = inducing_points(before, batch, self.growth.select(before, batch, prior.kernel))
        return state.on_points(*chosen, prior).absorbed(rows, prior, self.window, self.slack)

    @all_or_nothing
    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        """Rebuild the state, and choose inducing points again: from the window while nothing has
        been folded, else from the window and the current ones. Folded information is kept.
        """
        prior, state = self._frozen_prior(), cast(DecoupledState, self.state)
        if not len(state.window) or torch.equal(state.made_with, prior.numbers):
            return
        points = empty_state(state.window.X, prior.mean[0], JITTER)
        if int(state.folded):
            points = rebase(state.points, prior.kernel, prior.mean[0]).state
        batch = state.last_batch(state.window, prior)
        chosen = inducing_points(points, batch, self.growth.select(points, batch, prior.kernel))
        moved = rebase(points, prior.kernel, prior.mean[0], *chosen, same_kernel=True)
        self._replace(state=state.with_points(moved.state, prior))

    # -- posterior -------------------------------------------------------------------------------

    def _build_process(self, state: DecoupledState) -> Process:
        prior = self._frozen_prior()
        return state.renewed(prior).process(prior)
