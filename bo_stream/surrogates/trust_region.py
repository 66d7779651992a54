"""A local Gaussian process in a trust region, for thousands of evaluations in 10 to 100 inputs.

[TuRBO] Eriksson, Pearce, Gardner, Turner, Poloczek 2019, Scalable Global Optimization via Local
Bayesian Optimization, is the starting point; the stream, its window and the rules of the region
are ours (MATHS 14). The outcomes are maximised.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, Unpack, cast

import torch
from torch import Tensor

from bo_stream.base.fitting.report import FitReport
from bo_stream.base.options import CommonOptions, whole_number
from bo_stream.base.snapshot import Derived, Key, Version
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.base.units import raw_inputs
from bo_stream.errors import BoundsError, InputError
from bo_stream.mathematics.kernels import frozen_kernel
from bo_stream.mathematics.precise import warn_if_missed
from bo_stream.mathematics.process import Process
from bo_stream.mathematics.trust_region import update
from bo_stream.mathematics.trust_region.factor import Factor
from bo_stream.mathematics.trust_region.kernel import has_closed_form, lengthscales_in, scale_of
from bo_stream.mathematics.trust_region.state import (
    Evaluations,
    Geometry,
    TrustRegion,
    TrustRegionState,
)
from bo_stream.surrogates import trust_region_local as local
from bo_stream.surrogates.exact import exact_process

__all__ = ["TrustRegionGP"]


class TrustRegionGP(StreamingGP):
    """A trust region that follows the largest outcomes, and the exact GP on its window.

    All observations of the current region are kept (memory O(n d)); at most 512 of them, and the
    incomplete batch, are the window. **The posterior is local**: that of an exact GP on the window,
    whose outcomes are clipped from below at ``median - 2 (max - median)``. Far from the region it
    is that GP's extrapolation, not a model of the whole box. Every ``batch_size`` observations are
    a batch, in whatever pieces they are told: it moves, resizes or closes the region, and chooses
    a new window. A region's initial design ends with its first `fit`, due after a batch and ``2 d``
    points. Propose with `acquisitions.TrustRegionSampling`. One output.

    A completed batch takes O(n d), under learned noise also one Cholesky of the window; an
    evaluation of the evidence with its gradient O(256^3); the first posterior after a change one
    Cholesky of the window.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes, larger is better.
        train_Yvar: ``n x 1`` raw noise variances, or None to learn the noise.
        noise: ``"learned"``, or ``"none"`` if evaluations are exact: then the centre is the best
            observation, the noise is fitted near zero, and a region is polished before it ends.
        batch_size: Observations in a batch.
        common: ``bounds`` (required), ``covar_module``, ``mean_module``, ``likelihood``,
            ``input_transform`` (invertible), ``outcome_transform``: see `CommonOptions`. By default
            the kernel is a Matern-5/2 with a lengthscale per input, and a fit is in closed form
            under the priors of MATHS 14.2, which follow the window.

    Raises:
        BoundsError: without bounds.
        UnsupportedError: for more than one output.

    Example:
        >>> import torch
        >>> X = torch.rand(60, 10, dtype=torch.double)
        >>> bounds = torch.tensor([[0.0], [1.0]]).expand(2, 10)
        >>> model = TrustRegionGP(X, -X.square().sum(-1, keepdim=True), bounds=bounds)
        >>> model.fit_due
        True
        >>> model.posterior(X[:5]).mean.shape
        torch.Size([5, 1])
    """

    promises = Promises(
        order_invariant=False, bytes_constant=False, updates_without_drift=300, multi_output=False
    )
    needs_bounds = True

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        noise: Literal["learned", "none"] = "learned",
        batch_size: int = 50,
        **common: Unpack[CommonOptions],
    ) -> None:
        if common.get("bounds") is None:
            raise BoundsError("bounds `2 x d`", "none", "Give the raw bounds of the problem.")
        if noise not in ("learned", "none"):
            raise InputError("noise 'learned' or 'none'", f"{noise!r}", "Choose one of these.")
        own = local.with_own_modules(common, train_X, train_Yvar)
        super().__init__(train_X, train_Y, train_Yvar, **own)
        self.noise, self.batch_size = noise, whole_number("batch_size", batch_size, 1)
        image = self._transformed(cast(Tensor, self.bounds))
        self._box = torch.stack([image.amin(0), image.amax(0)]).tolist()
        self._factors, self._unversioned = Derived[Factor](), Version()
        self._begin(train_X, train_Y, train_Yvar)

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "exact": self.noise == "none", "batch": self.batch_size}

    # -- state -----------------------------------------------------------------------------------

    def _empty_state(self) -> TrustRegionState:
        return TrustRegionState.empty(self._dim, torch.empty(0, dtype=torch.float64))

    def _absorb(self, state: TrustRegionState, X: Tensor, Y: Tensor, R: Tensor) -> TrustRegionState:
        rows = Evaluations(X.clone(), Y[0].clone(), R[0].clone())
        return update.absorbed(state, rows, self.batch_size, self._geometry, self._centre)

    def _geometry(self, region: TrustRegion) -> Geometry:
        """Lengths in a region: those of the box until its hyperparameters were fitted."""
        lengths = lengthscales_in(self.covar_module, self._dim) if region.fits > 0 else None
        return Geometry.of(self._like.new_tensor(self._box), lengths)

    @property
    def _centre(self) -> update.Centre | None:
        """Finds a window's best posterior mean; None if evaluations are exact."""
        return None if self.noise == "none" else partial(local.best_mean, self)

    @property
    def region(self) -> TrustRegion:
        """The current region: centre, size L, progress; transformed coordinates and units."""
        return cast(TrustRegion, self.state.region)

    @property
    def geometry(self) -> Geometry:
        """What lengths mean in the current region."""
        return self._geometry(self.region)

    @property
    def recommendation(self) -> tuple[Tensor, float]:
        """The best point so far over all regions (``d``, raw) and its value, raw.

        The best observation if evaluations are exact; otherwise the point of the current window
        with the best posterior mean, or the result of an earlier region if that is better.

        Raises:
            StateError: before any data.
        """
        return local.recommended(self)

    def raw(self, X: Tensor) -> Tensor:
        """Raw points from transformed ones, ``n x d``, within the bounds.

        Raises:
            UnsupportedError: if the input transform cannot be inverted.
        """
        X = raw_inputs(getattr(self, "input_transform", None), X).to(self.dtype)
        low, high = cast(Tensor, self.bounds).to(X)
        return torch.minimum(torch.maximum(X, low), high)

    # -- posterior -------------------------------------------------------------------------------

    @property
    def closed_form(self) -> bool:
        """Whether the kernel is ``ScaleKernel(MaternKernel(2.5, ard_num_dims=d))``."""
        return has_closed_form(self.covar_module, self._dim)

    def factor(self, window: Evaluations | None = None) -> Factor:
        """The factor of a window's covariance, by default the current one's, cached.

        In units of the kernel's output scale, with mean and amplitude profiled out.
        """
        window = self.state.window if window is None else window
        key = Key(self._unversioned, (self.covar_module, self.likelihood), window.X, window.Y)
        return self._factors.made(key, lambda: local.window_factor(self, window))

    def _build_process(self, state: TrustRegionState) -> Process:
        window, kernel = state.window, frozen_kernel(self.covar_module)
        factor, unit = self.factor(window), scale_of(kernel, self._dim)
        mean = self._prior_mean().detach().clone()
        L = (factor.L * unit.sqrt()).unsqueeze(0)
        noise = (factor.ratios * unit).unsqueeze(0)
        process = exact_process(kernel, window.X, L, window.Y[None], noise, mean)
        known = (self._noise_scale() * window.R).detach()
        warn_if_missed(process, window.X, window.Y[None], known[None])
        return process

    # -- hyperparameters -------------------------------------------------------------------------

    @property
    def fit_due(self) -> bool:
        """Whether to `fit` now: a new region's design is complete, n has grown by 1.15, or L has
        halved or doubled since the last fit.
        """
        return update.fit_due(self.state, self.batch_size)

    @property
    def refit_due(self) -> bool:
        """The same as `fit_due`."""
        return self.fit_due

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence of the window plus the log priors of MATHS 14.2, which follow the window."""
        value, mean = local.window_evidence(self, profile_mean)
        return (value + local.log_own_priors(self) if local.has_own_priors(self) else value), mean

    def log_evidence(self) -> Tensor:
        """The log evidence of the window, without priors: 0-dim, differentiable. O(512^3)."""
        return local.window_evidence(self, profile_mean=False)[0]

    def _search(self, max_evals: int | None) -> FitReport:
        """To the 256 points nearest the centre (MATHS 14.3), by at most 15 iterations of L-BFGS,
        twice every fifth time, or ``max_evals`` evaluations.

        The first fit of a region with a batch and ``2 d`` points ends its initial design. With
        known noise or other modules, the window's evidence is maximised as in other families.
        """
        self._end_design()
        window = self.state.window
        free = local.has_own_priors(self) and all(p.requires_grad for p in self.parameters())
        varied = len(window) > 1 and float(window.Y.std()) > 0.0
        if free and varied:
            report = local.fit_in_closed_form(self, max_evals)
        else:
            report = super()._search(max_evals)
        self._fit_done()
        return report

    @all_or_nothing
    def _end_design(self) -> None:
        """Begin the region if its initial design is complete."""
        if not self.region.begun and self.fit_due:
            self._replace(state=update.begun(self.state, self.geometry))

    @all_or_nothing
    def _fit_done(self) -> None:
        """Note when the hyperparameters were fitted, and centre the region by them."""
        if self.region.begun:
            self._replace(state=update.recentred(update.fitted(self.state), self._centre))
