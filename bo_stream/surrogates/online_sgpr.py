"""Sparse Gaussian processes with a growing set of inducing points: online SGPR and SVDGP.

[Bui] Bui, Nguyen, Turner 2017, Streaming Sparse Gaussian Process Approximations; [VIPS]
Pescador-Barrios, Filippi, van der Wilk 2025, Adjusting Model Size in Continual Gaussian Processes;
[SVDGP] Cheng, Boots 2017, Variational Inference for Gaussian Process Models with Linear Complexity,
which has separate bases for mean and covariance; mathematics as corrected in MATHS 3, 4 and 6.8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self, Unpack

import torch
from torch import Tensor
from typing_extensions import TypeVar

from bo_stream.base.fitting import Correlated
from bo_stream.base.options import CommonOptions
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.errors import InputError, UnsupportedError, whole_number
from bo_stream.growth import VIPS, Covering, GrowthPolicy
from bo_stream.growth.policies import checked_policy, inducing_points, selected_update
from bo_stream.mathematics.data_evidence import correlations_at
from bo_stream.mathematics.evidence import rows_evidence
from bo_stream.mathematics.inducing import (
    Batch,
    DecoupledState,
    InducingState,
    SGPRState,
    SparsePrior,
    empty_state,
    lowest,
    optimal_bound,
    rebase,
    sparse_process,
)
from bo_stream.mathematics.process import Process
from bo_stream.mathematics.shapes import Rows, nested, shaped

__all__ = ["LastUpdate", "OnlineSGPR", "SVDGP"]

EVIDENCE_ROWS = 600
"""Rows that hyperparameters are learned from."""
LARGEST_OPTIMAL = 2048
"""Batches up to this size have ``L*`` computed even if the growth policy did not."""
SAMPLE_ROWS = 2048
"""Rows kept besides a first batch; while they are all, a fit absorbs them again."""
JITTER = 1e-8
"""The jitter of `SVDGP`."""
FEWEST, SHARE = 20, 0.2
"""New observations from which `observe` fits: in number, and as a share of all of them."""
P = TypeVar("P", bound=InducingState, covariant=True, default=InducingState)


class InducingGP(StreamingGP[P]):
    """A Gaussian process of one output with inducing points that a growth policy chooses.

    The hyperparameters maximise the exact evidence of at most 600 rows, evenly spread over the
    stream.
    """

    growth: GrowthPolicy

    @property
    def inducing_points(self) -> Tensor:
        """The inducing points, ``M x d``, raw, float64."""
        return self._raw_inputs(self.state.points.Z)

    def _frozen_prior(self) -> SparsePrior:
        """The current hyperparameters."""
        return SparsePrior(**vars(self._prior().frozen()), numbers=self._numbers())

    def _rows_of_fit(self) -> tuple[Rows, Correlated]:
        return self.state.sample[lowest(self.state.rank, EVIDENCE_ROWS)], correlations_at

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Exact log evidence of the sample of rows, with gradients in closed form: O(600^3)."""
        return rows_evidence(self._rows_of_fit()[0], self._prior(), profile_mean)


@dataclass(frozen=True)
class LastUpdate:
    """Inducing points and bounds of the last batch.

    Attributes:
        kept: Indices of the inducing points before it that stayed.
        entered: Indices of its points that became inducing points, in order of choice.
        lower_bound: The online bound ``L-hat`` reached, in nats, transformed units.
        optimal_bound: ``L*``, which no choice of inducing points can exceed; infinite (not
            computed) for large batches.
        upper_bound: ``U-hat``, an upper bound that needs no ``L*``; infinite if an inducing point
            was dropped.
    """

    kept: Tensor = shaped("j")
    entered: Tensor = shaped("k")
    lower_bound: Tensor = shaped("")
    optimal_bound: Tensor = shaped("", "extended")
    upper_bound: Tensor = shaped("", "extended")


@dataclass(frozen=True)
class GrowingState(InducingState):
    """The posterior of an online sparse GP, and what its last batch did.

    Attributes:
        bound_sum: Sum of the online bounds of all batches.
        last: What the last batch did.
        last_size: Number of rows of the last batch.
        fitted: Number of observations at the last fit.
    """

    bound_sum: Tensor = shaped("")
    last: LastUpdate = nested()
    last_size: Tensor = shaped("", "not negative")
    fitted: Tensor = shaped("", "not negative")

    def under(self, prior: SparsePrior) -> tuple[SGPRState, Tensor]:
        """The posterior at the inducing points under hyperparameters, and the bound of the change
        to these.
        """
        if torch.equal(prior.numbers, self.made_with):
            return self.points, torch.zeros_like(self.bound_sum)
        changed = rebase(self.points, prior.kernel, prior.mean[0])
        return changed.state, changed.bound

    def stepped(
        self,
        points: SGPRState,
        change: Tensor,
        batch: Batch,
        prior: SparsePrior,
        growth: GrowthPolicy,
    ) -> Self:
        """Choose inducing points and absorb a batch: the policy's cost, and O(N M^2 + M^3); O(N^3)
        for ``L*``.

        Args:
            points: The posterior before the batch, under the current hyperparameters.
            change: The bound of the change to these, 0-dim.
            batch: The data.
            prior: The current hyperparameters.
            growth: Chooses the inducing points.
        """
        chosen = growth.select(points, batch, prior.kernel)
        out, optimal = selected_update(points, batch, prior.kernel, chosen), chosen.optimal_bound
        if optimal is None:
            few = batch.size <= LARGEST_OPTIMAL
            optimal = float(optimal_bound(points, batch, prior.kernel)) if few else math.inf
        bounds = change + out.bound, change + optimal, change + out.upper
        return replace(
            self,
            points=out.state,
            made_with=prior.numbers,
            bound_sum=self.bound_sum + bounds[0],
            last=LastUpdate(chosen.kept, chosen.entered, *bounds),
            last_size=torch.full_like(self.last_size, batch.size),
        )

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """Bounds are those computed in the old units, as densities in the new ones."""
        last, each = self.last, factor[0].log()
        bounds = torch.stack([last.lower_bound, last.optimal_bound, last.upper_bound])
        return replace(
            super().rescaled(shift, factor, known_noise),
            bound_sum=self.bound_sum + self.moments[0] * each,
            last=LastUpdate(last.kept, last.entered, *(bounds + self.last_size * each)),
        )


class OnlineSGPR(InducingGP[GrowingState]):
    """Sparse GP with inducing points chosen by a growth policy, updated in closed form.

    M inducing points cost O(M^2) memory, O(N M^2 + M^3) to `observe` N points, O(M^3) once and
    O(M^2) per point for the posterior. Nothing depends on n. One output.

    Hyperparameters are learned from the exact evidence of at most 600 rows, evenly spread over all
    rows seen, O(600^3) for each evaluation. A fit to at most 2,048 observations, or to a first
    batch of any size, absorbs them all again, with inducing points chosen from all of them. After
    that, what was learned at the inducing points is kept under the new hyperparameters, and later
    batches add the points that these ask for. `observe` fits once there are 20 new observations and
    they are a fifth of all, unless ``refit`` is False.

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

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        growth: GrowthPolicy | str | Mapping[str, Any] | None = None,
        jitter: float = 1e-8,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(train_X, train_Y, train_Yvar, **common)
        self.growth = checked_policy(VIPS(max_points=1024) if growth is None else growth)
        if not 0.0 < jitter < 1e-2:
            raise InputError("a jitter between 0 and 0.01", f"{jitter}", "1e-8 suits float64.")
        self.jitter = jitter
        self._begin(train_X, train_Y, train_Yvar)

    @property
    def last_update(self) -> LastUpdate:
        """The effect of the last batch on the inducing points, and its bounds.

        After a fit that chose the points again, the last batch is all rows seen.
        """
        return self.state.last

    @property
    def bound_sum(self) -> Tensor:
        """Sum of the online bounds of all batches, 0-dim, in nats, transformed units.

        With inducing points and hyperparameters fixed it is the collapsed bound on the evidence of
        all data; with all inputs as inducing points, the evidence; else an estimate (MATHS 3.5).
        """
        return self.state.bound_sum

    def log_evidence(self) -> NoReturn:
        """Not supported: earlier data are summarised under earlier hyperparameters."""
        raise UnsupportedError(
            "a family that can compute the evidence of all its data",
            "an OnlineSGPR, which keeps only a sample of its rows",
            "Use `bound_sum`, the sum of the online bounds, or `make_mll`, the objective of `fit`.",
        )

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "jitter": self.jitter}

    def _empty_state(self) -> GrowingState:
        prior, count = self._frozen_prior(), torch.zeros((), dtype=torch.int64)
        zero, none = prior.mean.new_zeros(()), count.new_zeros(0)
        last = LastUpdate(none, none, zero, zero, zero)
        more = {"bound_sum": zero, "last": last, "last_size": count, "fitted": count.clone()}
        return GrowingState.empty(self._dim, self.jitter, prior, **more)

    def _absorb(self, state: GrowingState, rows: Rows) -> GrowingState:
        """Choose inducing points and update (MATHS 3.3)."""
        prior, first = self._frozen_prior(), not int(state.batches)
        points, change = state.under(prior)
        # the first batch is kept whole until the next one comes
        state = state.with_counted(rows, max(SAMPLE_ROWS, len(rows)) if first else SAMPLE_ROWS)
        return state.stepped(points, change, state.last_batch(rows, prior), prior, self.growth)

    def _fit_if_due(self) -> None:
        """Fit once there are 20 new observations and they are a fifth of all."""
        n = self.num_observed
        if n - int(self.state.fitted) >= max(FEWEST, SHARE * n):
            self.fit()

    @all_or_nothing
    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        """Absorb all rows again, as one batch, while the sample has all of them."""
        prior, state = self._frozen_prior(), self.state
        rows, n = state.sample, self.num_observed
        if 0 < n == len(rows) and not torch.equal(state.made_with, prior.numbers):
            batch, nothing = state.last_batch(rows, prior), state.bound_sum.new_zeros(())
            points = empty_state(rows.X, prior.mean[0], self.jitter)
            fresh = replace(state, bound_sum=nothing)
            state = fresh.stepped(points, nothing, batch, prior, self.growth)
        self._replace(state=replace(state, fitted=torch.full_like(state.fitted, n)))

    # -- posterior -------------------------------------------------------------------------------

    def _build_process(self, state: GrowingState) -> Process:
        prior = self._frozen_prior()
        return sparse_process(prior.kernel, state.under(prior)[0])


class SVDGP(InducingGP[DecoupledState]):
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
        return len(self.state.window)

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
        prior, state = self._frozen_prior(), self.state
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
