"""SVDGP: a Gaussian process with separate bases for mean and covariance (MATHS 6.8).

[SVDGP] Cheng, Boots 2017, Variational Inference for Gaussian Process Models with Linear Complexity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack, cast

import torch
from torch import Tensor

from bo_stream.base.fitting.evidence import log_evidence
from bo_stream.base.options import CommonOptions, whole_number
from bo_stream.base.snapshot import numbers_of
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.errors import InputError
from bo_stream.growth import Covering, GrowthPolicy
from bo_stream.growth.policy import checked_policy, inducing_points
from bo_stream.mathematics.decoupled.posterior import decoupled_process
from bo_stream.mathematics.decoupled.state import DecoupledState, Hyperparameters
from bo_stream.mathematics.decoupled.update import (
    Limits,
    absorbed,
    on_points,
    rebuilt,
    renewed,
    restarted,
    sparse_posterior,
)
from bo_stream.mathematics.inducing.bounds import merged_moments, moments_of
from bo_stream.mathematics.inducing.state import Batch
from bo_stream.mathematics.kernels import cross_kernel, frozen_kernel
from bo_stream.mathematics.linalg import REPAIR, chol_psd
from bo_stream.mathematics.process import Process

__all__ = ["SVDGP"]

JITTER = 1e-8
EVIDENCE_ROWS = 600


class SVDGP(StreamingGP):
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
    - The mean is computed by conjugate gradients to ``tolerance``. If the noise deviation is about
      a thousandth of the signal's, the window is factorised instead, O(window^3) per batch: such
      streams are slow.

    With M inducing points and a window of r: memory O(r^2 + M^2); `observe` of q points O(r^2 +
    r M) per iteration (a few to some dozens), plus O(q M^2 + M^3); the posterior O(M^3) once, then
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
        growth: Policy that chooses inducing points; by default up to ``covar_basis`` that cover the
            data. See `bo_stream.growth`. A policy has a limit of its own.
        tolerance: Accuracy of the mean: it is exact for targets shifted by up to this many noise
            deviations.

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
        growth: GrowthPolicy | None = None,
        tolerance: float = 0.01,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(train_X, train_Y, train_Yvar, **common)
        self.window = whole_number("window", window, 2)
        self.covar_basis = whole_number("covar_basis", covar_basis, 1)
        self.slack = whole_number("slack", slack, 0)
        self.growth = checked_policy(Covering(covar_basis) if growth is None else growth)
        if not 0.0 < tolerance < 1.0:
            raise InputError("a tolerance between 0 and 1", f"{tolerance}", "0.01 suits most.")
        self.tolerance = float(tolerance)
        self._begin(train_X, train_Y, train_Yvar)

    @property
    def inducing_points(self) -> Tensor:
        """The inducing points, ``M x d``, raw, float64."""
        return self._raw_inputs(self._state_now().past.Z)

    @property
    def num_in_window(self) -> int:
        """Number of rows on which the mean is exact."""
        return self._state_now().window.size

    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        """Rebuild the state, and choose inducing points again: from the window while nothing has
        been folded, else from the window and the current ones. Folded information is kept.
        """
        self._rebuild()

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "window": self.window, "slack": self.slack}

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "p": len(self._prior().numbers)}

    def _state_now(self) -> DecoupledState:
        return cast(DecoupledState, self.state)

    def _empty_state(self) -> DecoupledState:
        return DecoupledState.empty(self._dim, JITTER, self._prior())

    def _limits(self) -> Limits:
        sample = min(EVIDENCE_ROWS, self.window)
        return Limits(self.window, self.slack, sample, self.tolerance)

    def _prior(self) -> Hyperparameters:
        """The current hyperparameters."""
        scale, mean = self._noise_scale().detach()[0], self._prior_mean().detach()[0]
        numbers = numbers_of(self.covar_module, self.likelihood, self.mean_module).to(scale)
        kernel = frozen_kernel(self.covar_module)
        return Hyperparameters(kernel, mean.clone(), scale.clone(), numbers)

    def _absorb(self, state: DecoupledState, X: Tensor, Y: Tensor, R: Tensor) -> DecoupledState:
        """Choose inducing points, add rows, solve, fold (MATHS 6.8)."""
        prior, y, r = self._prior(), Y[0], R[0]
        state = renewed(state, prior, self._limits())
        moments = merged_moments(state.moments(), moments_of(y))
        batch = Batch(X, y, prior.scale * r, moments, int(state.batches))
        before = sparse_posterior(state, prior)
        chosen = inducing_points(before, batch, self.growth.select(before, batch, prior.kernel))
        state = on_points(state, *chosen[:2], prior)
        return absorbed(state, Batch(X, y, r), prior, self._limits())

    @all_or_nothing
    def _rebuild(self) -> None:
        """Rebuild the state under the current hyperparameters if they have changed."""
        prior, state = self._prior(), self._state_now()
        if torch.equal(state.made_with, prior.numbers):
            return
        if state.window.size:
            before = restarted(state, prior)
            rows = state.window.batch(prior.scale)
            batch = replace(rows, moments=state.moments(), index=int(state.batches) - 1)
            selection = self.growth.select(before, batch, prior.kernel)
            chosen = inducing_points(before, batch, selection)
            self._replace(state=rebuilt(state, before, *chosen[:2], prior, self._limits()))

    def _rescale(self, state: DecoupledState, shift: Tensor, factor: Tensor) -> DecoupledState:
        scaled = state.rescaled(shift[0], factor[0], self.noise_mode != "learned")
        return renewed(scaled, self._prior(), self._limits())

    # -- posterior and objective -----------------------------------------------------------------

    def _build_process(self, state: DecoupledState) -> Process:
        prior = self._prior()
        return decoupled_process(renewed(state, prior, self._limits()), prior)

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence of the sample of rows: O(600^3)."""
        rows = self._state_now().sample
        noise = self._noise_scale() * rows.noise
        K = cross_kernel(self.covar_module, rows.X, rows.X)
        L = chol_psd(K + noise.diag_embed(), least=REPAIR)
        mean = None if profile_mean and len(rows.y) else self._prior_mean()
        return log_evidence(L, rows.y[None], mean)
