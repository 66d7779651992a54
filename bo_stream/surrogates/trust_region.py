"""A local Gaussian process in a trust region, for thousands of evaluations in 10 to 100 inputs.

[TuRBO] Eriksson, Pearce, Gardner, Turner, Poloczek 2019, Scalable Global Optimization via Local
Bayesian Optimization, is the starting point; the stream, its window and the rules of the region
are ours (MATHS 14). The outcomes are maximised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Unpack, cast

import numpy as np
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from bo_stream.base.fitting import FitReport
from bo_stream.base.options import CommonOptions
from bo_stream.base.stream import Derived, Key, Version, all_or_nothing
from bo_stream.base.streaming_gp import Promises
from bo_stream.errors import BoundsError, StateError, whole_number
from bo_stream.mathematics import region as regions
from bo_stream.mathematics.exact import (
    Evidence,
    Priors,
    Solved,
    Targets,
    maximised,
    solved,
)
from bo_stream.mathematics.radial import RadialCovariance
from bo_stream.mathematics.shapes import Rows
from bo_stream.surrogates.exact import MaternGP

__all__ = ["TrustRegionGP"]

FITTED = 256
"""Hyperparameters are fitted to so many points of the window, those nearest the centre."""
AGAIN = 5
"""Every fifth fit, the first among them, also starts from the centre of the priors."""
SPAN = 4.0
"""Log lengthscales are searched within this distance of their prior's centre."""
RATIO = {"learned": (-3.0, 2.0, -16.0, 2.0), "none": (-10.0, 3.0, -16.0, 2.0)}
"""Centre and deviation under the prior, and bounds, of the logarithm of noise over variance."""
FIRST = {"learned": -3.0, "none": -8.0}
"""The logarithm at which an ascent starts that does not know it."""
ASCENT = {"maxiter": 15, "factr": 1e-5 / np.finfo(float).eps}


class TrustRegionGP(MaternGP[regions.TrustRegionState]):
    """A trust region that follows the largest outcomes, and the exact GP on its window.

    All observations of the current region are kept (memory O(n d)); at most 512 of them, and the
    incomplete batch, are the window. **The posterior is local**: that of an exact GP on the window,
    whose outcomes are clipped from below at ``median - 2 (max - median)``. Far from the region it
    is that GP's extrapolation, not a model of the whole box. Every ``batch_size`` observations are
    a batch, in whatever pieces they come: it moves, resizes or closes the region, and chooses
    a new window. A region's initial design ends with its first `fit`, due after a batch and ``2 d``
    points. Propose with `acquisitions.TrustRegionSearch`. One output.

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
        common: ``bounds`` (required), ``input_transform`` (invertible), ``outcome_transform``, and
            a ``likelihood`` that scales ``train_Yvar``: see `CommonOptions`. The kernel is a
            Matern-5/2 with a lengthscale per input, and a fit is in closed form under the priors of
            MATHS 14.2, which follow the window.

    Raises:
        BoundsError: without bounds.
        UnsupportedError: for more than one output, and for other kernels, means or likelihoods,
            which `ExactGP` takes.

    Example:
        >>> import torch
        >>> X = torch.rand(60, 10, dtype=torch.double)
        >>> bounds = torch.tensor([[0.0], [1.0]]).expand(2, 10)
        >>> model = TrustRegionGP(X, -X.square().sum(-1, keepdim=True), bounds=bounds)
        >>> model.refit_due
        True
        >>> model.posterior(X[:5]).mean.shape
        torch.Size([5, 1])
    """

    promises = Promises(
        order_invariant=False,
        bytes_constant=False,
        updates_without_drift=300,
        multi_output=False,
        takes_modules=False,
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
        data = train_X, train_Y, train_Yvar
        noise_model = GaussianLikelihood(noise_constraint=Positive())
        super().__init__(*data, common, noise=noise, noise_model=noise_model)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        kernel = cast(ScaleKernel, self.covar_module).base_kernel
        kernel.lengthscale = kernel.lengthscale * self.geometry.width
        self._factors, self._unversioned = Derived[Solved](), Version()
        self._begin(*data)

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "exact": self.noise == "none", "batch": self.batch_size}

    # -- state -----------------------------------------------------------------------------------

    def _empty_state(self) -> regions.TrustRegionState:
        return regions.TrustRegionState.empty(self._dim)

    def _absorb(self, state: regions.TrustRegionState, rows: Rows) -> regions.TrustRegionState:
        return regions.absorbed(state, rows, self.batch_size, self.geometry, self._means)

    def _rows(self, state: regions.TrustRegionState) -> Rows:
        return state.rows

    @property
    def _means(self) -> regions.Means | None:
        """Posterior means of a window; None if evaluations are exact."""
        return None if self.noise == "none" else self._means_of

    def _means_of(self, window: Rows) -> Tensor:
        factor = self.factor(window)
        return window.y - torch.from_numpy(factor.noise * factor.weights).to(window.y)

    @property
    def region(self) -> regions.TrustRegion:
        """The current region: centre, size L, progress; transformed coordinates and units."""
        return self.state.region

    @property
    def geometry(self) -> regions.Geometry:
        """What lengths mean: the box and the kernel's lengthscales, transformed."""
        low, high = self._transformed(cast(Tensor, self.bounds)).sort(0).values
        return regions.Geometry(low, high - low, self._values()[0].detach())

    @property
    def recommendation(self) -> tuple[Tensor, float]:
        """The best point so far over all regions (``d``, raw) and its value, raw.

        The best observation if evaluations are exact; otherwise the point of the current window
        with the best posterior mean, or the result of an earlier region if that is better.

        Raises:
            StateError: before any data.
        """
        if not self.num_observed:
            raise StateError("observations", "none", "Observe some first.")
        state = self.state
        rows = state.archive.joined(state.pending)
        if self.noise != "none":
            rows = replace(state.rows, Y=self.process().at(state.rows.X).mean)
        X, values = torch.cat([state.closed.X, rows.X]), torch.cat([state.closed.value, rows.y])
        best = int(values.argmax())
        x, y = self.raw(X[best].unsqueeze(0)), values[best].reshape(1, 1)
        transform = self.outcome_map()
        y = y if transform is None else transform.untransform(y, X=x)[0]
        return x[0], float(y)

    def raw(self, X: Tensor) -> Tensor:
        """Raw points from transformed ones, ``n x d``, within the bounds.

        Raises:
            UnsupportedError: if the input transform cannot be inverted.
        """
        X = self._raw_inputs(X).to(self.dtype)
        return X.clamp(*cast(Tensor, self.bounds).to(X))

    # -- posterior -------------------------------------------------------------------------------

    @torch.no_grad()
    def factor(self, window: Rows | None = None) -> Solved:
        """The factor of a window's covariance, by default that of `process`, cached.

        In units of the kernel's variance, with mean and amplitude profiled out.
        """
        window = self.state.rows if window is None else window
        key = Key(self._unversioned, (self.covar_module, self.likelihood), window.X, window.Y)
        return self._factors.made(key, lambda: self._factored(window))

    def _factored(self, window: Rows) -> Solved:
        lengthscales, _, ratio = self._values()
        parts = window.X, lengthscales, ratio * window.r, window.y
        X, scales, noise, y = (t.numpy(force=True) for t in parts)
        return solved(RadialCovariance(1.0 / scales).matrix(X), noise, y, k=0.0)

    # -- hyperparameters -------------------------------------------------------------------------

    @property
    def refit_due(self) -> bool:
        """Whether to `fit` now: a new region's design is complete, n has grown by 1.15, or L has
        halved or doubled since the last fit.
        """
        return regions.fit_due(self.state, self.batch_size)

    def _fitted_rows(self) -> Rows:
        """The points of the window that hyperparameters are fitted to."""
        rows = self.state.rows
        if len(rows) <= FITTED:
            return rows
        away = (rows.X - self.region.centre) / self.geometry.lengthscales
        return rows[away.square().sum(-1).topk(FITTED, largest=False).indices]

    def _window_priors(self, rows: Rows) -> Priors:
        """Of lengthscales in units of the box, ``log l ~ N(log(2 sqrt(d) geomean(sd)), 1)``, and of
        noise over variance (MATHS 14.2).
        """
        (n, d), U = rows.X.shape, rows.X / self.geometry.width
        sd = U.std(0, correction=0).clamp(min=1e-12) if n > 1 else U.new_full((d,), 12.0**-0.5)
        centre = math.log(2.0) + 0.5 * math.log(d) + float(sd.log().mean())
        each = [(centre, 1.0, centre - SPAN, centre + SPAN)] * d + [RATIO[self.noise]]
        return Priors(np.array(each).T, k=0.0)

    def _log_priors(self) -> Tensor:
        """Also of lengthscales and noise, which follow the window, unless the noise is known."""
        if self.noise_mode != "learned":
            return super()._log_priors()
        lengthscales, _, ratio = self._values()
        theta = torch.cat([lengthscales / self.geometry.width, ratio.reshape(1)]).log()
        own = self._window_priors(self._fitted_rows()).log_density(theta)
        return super()._log_priors() + own

    def _search(self, max_evals: int | None) -> FitReport:
        """To the 256 points nearest the centre (MATHS 14.3), by at most 15 iterations of L-BFGS,
        twice every fifth time, or ``max_evals`` evaluations.

        The first fit of a region with a batch and ``2 d`` points ends its initial design. With
        known noise or frozen hyperparameters, the window's evidence is maximised as in other
        families.
        """
        if not self.region.begun and self.refit_due:
            self._replace(state=regions.design_completed(self.state, self.geometry))
        y = self.state.rows.y
        if self._fits_in_closed_form and len(y) > 1 and float(y.std()) > 0.0:
            return self._fit_window(max_evals)
        return super()._search(max_evals)

    @all_or_nothing
    def _fit_window(self, max_evals: int | None) -> FitReport:
        """Fit lengthscales and noise, warm; mean and variance are the best on the whole window."""
        rows, some, width = self.state.rows, self._fitted_rows(), self.geometry.width
        priors, (lengthscales, _, ratio) = self._window_priors(some), self._values()
        origin, spread = rows.y.mean(), rows.y.std(correction=0)

        starts = [torch.cat([lengthscales / width, ratio.reshape(1)]).log().numpy(force=True)]
        if not int(self.region.fits) % AGAIN:
            starts.append(np.append(priors.centre[:-1], FIRST[self.noise]))
        U, y = (some.X - self.region.centre) / width, (some.y - origin) / spread
        search = Evidence(U.numpy(force=True), Targets(y.numpy(force=True)), priors)
        found = maximised(search, priors.bounds, starts, max_evals, **ASCENT)
        theta, scales, noise = found.theta, np.exp(found.theta[:-1]), math.exp(found.theta[-1])
        R = RadialCovariance(1.0 / scales).matrix((rows.X / width).numpy(force=True))
        about = solved(R, noise, rows.y.numpy(force=True), k=0.0)
        lengthscales = torch.from_numpy(scales).to(width) * width
        self._set_values(lengthscales, about.variance, noise, about.mean)
        value = about.value + float(priors.log_density(torch.from_numpy(theta)))
        return FitReport(found.evaluations, value, found.converged)

    @all_or_nothing
    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        """After a fit: note when it was, and centre the region by the new hyperparameters."""
        if saved is None and self.region.begun:
            self._replace(state=regions.fitted(self.state, self._means))
