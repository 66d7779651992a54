"""Online SGPR: a sparse Gaussian process with a growing set of inducing points.

[Bui] Bui, Nguyen, Turner 2017, Streaming Sparse Gaussian Process Approximations; [VIPS]
Pescador-Barrios, Filippi, van der Wilk 2025, Adjusting Model Size in Continual Gaussian Processes;
mathematics as corrected in MATHS 3 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Self, Unpack, cast

import torch
from torch import Tensor

from bo_stream.base.fitting.evidence import log_evidence
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.options import CommonOptions, from_plain
from bo_stream.base.snapshot import numbers_of
from bo_stream.base.stream import all_or_nothing, exclusive
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.growth import VIPS, GrowthPolicy
from bo_stream.growth.fits import fit_growing, fit_on_schedule
from bo_stream.growth.misfit_monitor import MisfitMonitor
from bo_stream.growth.policy import checked_policy
from bo_stream.growth.step import Choice, StepResult, step
from bo_stream.growth.stream_state import LastUpdate, StreamState
from bo_stream.mathematics.inducing.posterior import sparse_process
from bo_stream.mathematics.inducing.state import Batch, SGPRState
from bo_stream.mathematics.inducing.update import best_mean, rebase, update
from bo_stream.mathematics.kernels import cross_kernel, frozen_kernel
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.process import Process

__all__ = ["LastUpdate", "OnlineSGPR"]

EVIDENCE_ROWS = 256
"""Observations up to which hyperparameters are learned from the evidence."""


class OnlineSGPR(StreamingGP):
    """Sparse GP with inducing points chosen by a growth policy, updated in closed form.

    M inducing points cost O(M^2) memory plus the window, O(N M^2 + M^3) to `observe` N points,
    O(M^3) once and O(M^2) per point for the posterior. Nothing depends on n. One output.

    The window is the last batch of 20 rows or more, with the smaller batches that followed it while
    there are at most 512 rows. If residuals show structure that the model attributes to noise,
    `observe` and `fit` gather up to 512 of the following rows, then try shorter lengthscales on
    them and discard them; the next search waits until the data have doubled. Apart from these rows
    (8 (d + 2) bytes each), `state_bytes` is constant at fixed M and batch size.

    Hyperparameters are learned from the window: from its evidence while it is all of the data, up
    to 256 rows chosen from by `VIPS`; else from its online bound, in which earlier data enter by
    the posterior of the inducing values only. Then they drift on unrepresentative rows: keep priors
    on them.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes.
        train_Yvar: ``n x 1`` raw noise variances, or None to learn the noise.
        bounds: Optional ``2 x d`` raw bounds; points outside are refused.
        common: ``covar_module`` (any gpytorch kernel), ``mean_module``, ``likelihood``,
            ``input_transform``, ``outcome_transform``: see `CommonOptions`.
        growth: Policy of `bo_stream.growth` for inducing points, or its name and options as plain
            data: ``{"name": "oips", "rho": 0.9}``; default ``VIPS(max_points=1024)``.
        jitter: Added to ``K(Z, Z)``, relative to the prior variance.
        trust: Largest change of the logarithm of a hyperparameter in one fit after the first
            batch, which limits drift; None for no limit. With a limit, only the first fit searches
            for shorter lengthscales; `watch` still reports missed structure.

    Example:
        >>> import torch
        >>> X = torch.rand(40, 2, dtype=torch.double)
        >>> model = OnlineSGPR(X[:20], X[:20].sum(-1, keepdim=True))
        >>> model.observe(X[20:], X[20:].sum(-1, keepdim=True), refit=False).num_observed
        40
        >>> bool(model.last_update.lower_bound <= model.last_update.optimal_bound)
        True
    """

    promises = Promises(
        order_invariant=False,
        bytes_constant=False,
        updates_without_drift=10_000,
        multi_output=False,
    )
    state_version = 7
    search_rows = 512  # rows used in a search for shorter lengthscales

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        growth: GrowthPolicy | str | Mapping[str, Any] | None = None,
        jitter: float = 1e-8,
        trust: float | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(train_X, train_Y, train_Yvar, **common)
        given = VIPS(max_points=1024) if growth is None else from_plain("growth", growth)
        self.growth = checked_policy(given)
        if not 0.0 < jitter < 1e-2:
            raise InputError("a jitter between 0 and 0.01", f"{jitter}", "1e-8 suits float64.")
        if trust is not None and not trust > 0.0:
            raise InputError("a positive trust, or None", f"{trust}", "0.5 allows a factor of 1.6.")
        self.jitter, self.trust = jitter, trust
        self._begin(train_X, train_Y, train_Yvar)

    @exclusive
    @torch.inference_mode(False)
    def _fit_if_due(self, size: int) -> None:
        """Fit to the window after a batch of 20 points or more, and after smaller ones that add up
        to 20 points and an eighth of the data (or of 512). With over 256 inducing points the data
        must have grown by a quarter, too, or predictions must be worse than they promise.
        """
        fit_on_schedule(self, size)

    @property
    def inducing_points(self) -> Tensor:
        """The inducing points, ``M x d``, raw, float64."""
        return self._raw_inputs(self.state.now.Z)

    @property
    def last_update(self) -> LastUpdate:
        """The effect of the last batch on the inducing points, and its bounds."""
        return cast(StreamState, self.state).last_update()

    @property
    def watch(self) -> MisfitMonitor:
        """A monitor of how well each batch was predicted before it was fitted."""
        return cast(MisfitMonitor, self.state.watch)

    @property
    def bound_sum(self) -> Tensor:
        """Sum of the online bounds of all batches, 0-dim, in nats, transformed units.

        With inducing points and hyperparameters fixed it is the collapsed bound on the evidence of
        all data; with all inputs as inducing points, the evidence; else an estimate (MATHS 3.5).
        """
        return cast(StreamState, self.state).bound_sum()

    def log_evidence(self) -> NoReturn:
        """Not supported: earlier data are summarised under earlier hyperparameters."""
        raise UnsupportedError(
            "a family that can compute the evidence of all its data",
            "an OnlineSGPR, which keeps only a window of its last rows",
            "Use `bound_sum`, the sum of the online bounds, or `make_mll`, the objective of `fit`.",
        )

    @property
    def explores(self) -> bool:
        """Whether fits are to the evidence: up to 256 observations, all of them in the window.

        The inducing points are then chosen by `VIPS`, whose bound is close to it. In general the
        window does not determine hyperparameters far from the current ones.
        """
        state, growth = cast(StreamState, self.state), self.growth
        few = state.before.size == 0 and 0 < state.batch.size <= EVIDENCE_ROWS
        if not (few and isinstance(growth, VIPS)):
            return False
        return growth.max_points is None or state.now.size < growth.max_points

    @property
    def reselects(self) -> bool:
        """Whether a fit may choose inducing points from the whole window at once.

        Other policies than `VIPS` may be meant for the batches as they came.
        """
        return int(self.state.batches) <= 1 or isinstance(self.growth, VIPS)

    def _evidence(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        rows = self.state.window(self._noise_scale()[0])
        K = cross_kernel(self.covar_module, rows.X, rows.X)
        mean = None if profile_mean else self._prior_mean()
        return log_evidence(chol_psd(K + rows.noise.diag_embed()), rows.y[None], mean)

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "jitter": self.jitter}

    def _empty_state(self) -> StreamState:
        return StreamState.empty(self._dim, self.jitter, self._kernel_numbers())

    def _absorb(self, state: StreamState, X: Tensor, Y: Tensor, R: Tensor) -> StreamState:
        """Choose inducing points and update; what a replay needs is kept."""
        batch = state.batch_of(X, Y[0], R[0], self._noise_scale().detach()[0])
        result = self._step(state.now, state.kernel_now, batch, self.growth)
        return state.after(batch, R[0], result, self._kernel_numbers())

    def _rescale(self, state: StreamState, shift: Tensor, factor: Tensor) -> StreamState:
        return state.rescaled(shift[0], factor[0], self.noise_mode != "learned")

    def _step(
        self, before: SGPRState, kernel: Tensor, batch: Batch, choose: Choice | GrowthPolicy
    ) -> StepResult:
        """`bo_stream.growth.step.step` under the current hyperparameters."""
        own, mean = frozen_kernel(self.covar_module), self._prior_mean().detach()[0].clone()
        return step(before, batch, own, mean, choose, same_kernel=self._kernel_is(kernel))

    def _kernel_numbers(self) -> Tensor:
        return numbers_of(self.covar_module)

    def _kernel_is(self, kernel: Tensor) -> bool:
        """Whether the kernel is still the one identified by these numbers."""
        return torch.equal(kernel, self._kernel_numbers().to(kernel))

    def _search(self, max_evals: int | None) -> FitReport:
        """To the window (`bo_stream.growth.fits`), O(N M^2 + M^3) per evaluation; with a limit of
        evaluations there is a single ascent and no search.
        """
        return fit_growing(self, max_evals)

    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        """Replay the update by the window; after loading, choose its inducing points again."""
        self._replay(reselect=saved is not None and self.reselects)

    def reselect(self) -> Self:
        """Choose the inducing points of the window again under current hyperparameters."""
        self._replay(reselect=True)
        return self

    @all_or_nothing
    def _replay(self, *, reselect: bool) -> None:
        """Absorb the window again from the state before it, under current hyperparameters."""
        state = self.state
        batch = state.window(self._noise_scale().detach()[0])
        if batch.size:
            choose = self.growth if reselect else state.choice()
            result = self._step(state.before, state.kernel_before, batch, choose)
            self._replace(state=state.settled(result, self._kernel_numbers()))

    # -- posterior and objective -----------------------------------------------------------------

    def _build_process(self, state: StreamState) -> Process:
        kernel, same = frozen_kernel(self.covar_module), self._kernel_is(state.kernel_now)
        mean = self._prior_mean().detach()[0].clone()
        return sparse_process(kernel, rebase(state.now, kernel, mean, same_kernel=same)[0])

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """The window's evidence, O(N^3), or bound (MATHS 3.3, step 5), O(N M^2 + M^3)."""
        state, mean = cast(StreamState, self.state), self._prior_mean()[0]
        if self.explores:
            return self._evidence(profile_mean)
        batch, before = state.window(self._noise_scale()[0]), state.before
        if not batch.size:
            return before.kappa.new_zeros(()), None
        Z, old_index = state.now.Z, state.old_index
        if not profile_mean:
            return update(before, batch, self.covar_module, mean, Z, old_index).bound, None
        out = update(before, batch, self.covar_module, mean.detach(), Z, old_index)
        best, bound = best_mean(out, batch)
        return bound, best.detach().reshape(1)
