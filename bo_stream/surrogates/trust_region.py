"""A local Gaussian process in a trust region, for thousands of evaluations in 10 to 100 inputs.

[TuRBO] Eriksson, Pearce, Gardner, Turner, Poloczek 2019, Scalable Global Optimization via Local
Bayesian Optimization, is the starting point; the stream, its window and the rules of the region
are ours (MATHS 14). The outcomes are maximised.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal, Unpack, cast

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from torch import Tensor

from bo_stream.base.changes import all_or_nothing, exclusive
from bo_stream.base.derived import Derived, Key, Version
from bo_stream.base.fitting.evidence import log_evidence
from bo_stream.base.fitting.fit import fit_model
from bo_stream.base.fitting.objective import check_evaluations
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.options import CommonOptions, whole_number
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.base.transforms import raw_inputs
from bo_stream.errors import BoundsError, InputError, NoTrainingDataError
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.posterior.factor import cross_kernel, frozen_kernel
from bo_stream.mathematics.trust_region import update
from bo_stream.mathematics.trust_region.factor import Factor, correlations, factored
from bo_stream.mathematics.trust_region.fit import Priors, ProfiledEvidence, fit
from bo_stream.mathematics.trust_region.state import Geometry, Region, Rows, TrustRegionState
from bo_stream.surrogates.exact import ExactProcess

__all__ = ["TrustRegionGP"]

FITTED = 256
"""Hyperparameters are fitted to so many points of the window, those nearest the centre."""
AGAIN = 5
"""Every fifth fit, the first among them, also starts from the prior's mean."""


class TrustRegionGP(StreamingGP):
    """A trust region that follows the largest outcomes, and the exact GP on its window.

    All observations of the current region are kept (memory O(n d)); at most 512 of them, and the
    incomplete batch, are the window. **The posterior is local**: that of an exact GP on the window,
    whose outcomes are clipped from below at ``median - 2 (max - median)``. Far from the region it
    is that GP's extrapolation, not a model of the whole box. Every ``batch_size`` observations
    make one batch, in whatever pieces they are told: it moves the region, resizes it, or closes it
    and opens another, and its points choose a new window. Until the first `fit` of a region all
    points are its initial design. Propose with `acquisitions.TrustRegionSampling`. One output.

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
        >>> X = torch.rand(40, 10, dtype=torch.double)
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
        if noise not in ("learned", "none") or (noise == "none" and train_Yvar is not None):
            raise InputError(
                "noise 'learned' or 'none', the latter without train_Yvar",
                f"{noise!r}" + ("" if train_Yvar is None else " and train_Yvar"),
                "Leave `noise` out, unless evaluations are exact.",
            )
        if common.get("covar_module") is None and isinstance(train_X, Tensor):
            common["covar_module"] = ScaleKernel(MaternKernel(2.5, ard_num_dims=train_X.shape[-1]))
        if common.get("likelihood") is None and train_Yvar is None:
            common["likelihood"] = GaussianLikelihood(noise_constraint=Positive())
        super().__init__(train_X, train_Y, train_Yvar, **common)
        self.noise, self.batch_size = noise, whole_number("batch_size", batch_size, 1)
        image = self._transformed(cast(Tensor, self.bounds))
        self._box = torch.stack([image.amin(0), image.amax(0)]).tolist()
        self._factors: Derived[Factor] = Derived()
        self._unversioned = Version()
        self._begin(train_X, train_Y, train_Yvar)

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "exact": self.noise == "none", "batch": self.batch_size}

    # -- state -----------------------------------------------------------------------------------

    def _empty_state(self) -> TrustRegionState:
        return TrustRegionState.empty(self._dim, torch.empty(0, dtype=torch.float64))

    def _absorb(
        self, state: TrustRegionState, X: Tensor, Y: Tensor, R: Tensor, *, exact: bool
    ) -> TrustRegionState:
        rows = Rows(X.clone(), Y[0].clone(), R[0].clone())
        if exact:
            pending, window = state.pending.joined(rows), state.window.joined(rows)
            return replace(state, pending=pending, window=window)
        return update.absorbed(state, rows, self.batch_size, self._geometry, self._centre)

    def _geometry(self, region: Region) -> Geometry:
        """Lengths in a region: those of the box until its hyperparameters were fitted."""
        box = self._like.new_tensor(self._box)
        return Geometry.of(box, self._lengthscales() if region.fits > 0 else None)

    def _lengthscales(self) -> Tensor | None:
        """The kernel's lengthscales in transformed coordinates, ``d``; None if it has none."""
        base = getattr(self.covar_module, "base_kernel", self.covar_module)
        if not base.has_lengthscale or base.batch_shape:
            return None
        return cast(Tensor, base.lengthscale).detach().double().reshape(-1).expand(self._dim)

    @property
    def _centre(self) -> update.Centre | None:
        """Finds a window's best posterior mean; None if evaluations are exact."""
        return None if self.noise == "none" else self._best_mean

    def _best_mean(self, window: Rows) -> tuple[int, float]:
        means = self._window_factor(window).means(window.Y)
        row = int(means.argmax())
        return row, float(means[row])

    @property
    def region(self) -> Region:
        """The current region: centre, size L, progress; transformed coordinates and units."""
        return cast(TrustRegionState, self.state).region

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
            NoTrainingDataError: before any data.
        """
        state = cast(TrustRegionState, self.state)
        if self.noise == "none":
            rows = state.archive.joined(state.pending)
            X, values = rows.X, rows.Y
        else:
            X = state.window.X
            values = self.process().at(X).mean[0] if len(X) else X.new_zeros(0)
        X, values = torch.cat([state.closed.X, X]), torch.cat([state.closed.value, values])
        if not len(X):
            raise NoTrainingDataError("observations", "none", "Observe some first.")
        best = int(values.argmax())
        x, y = self.raw(X[best].unsqueeze(0)), values[best].reshape(1, 1)
        transform = getattr(self, "outcome_transform", None)
        y = y if transform is None else transform.untransform(y, X=x)[0]
        return x[0], float(y)

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
        outer, base = self.covar_module, getattr(self.covar_module, "base_kernel", None)
        known = type(outer) is ScaleKernel and type(base) is MaternKernel and base.nu == 2.5
        if not known or outer.active_dims is not None or outer.batch_shape:
            return False
        return base.active_dims is None and base.ard_num_dims == self._dim

    def factor(self) -> Factor:
        """The factor of the current window's covariance, mean and amplitude profiled out."""
        return self._window_factor(cast(TrustRegionState, self.state).window)

    def _window_factor(self, window: Rows) -> Factor:
        """The factor of a window's covariance, in units of the kernel's output scale."""
        key = Key(self._unversioned, (self.covar_module, self.likelihood), window.X, window.Y)
        found = self._factors.get(key)
        if found is not None:
            return found
        noise, unit = self._noise_scale().detach() * window.R, self._unit()
        if self.closed_form:
            R = correlations(window.X, cast(Tensor, self._lengthscales()))
        else:
            R = cross_kernel(self.covar_module, window.X, window.X)[0].detach()
        return self._factors.put(key, factored(R, noise / unit, window.Y))

    def _unit(self) -> Tensor:
        """The kernel's output scale in closed form, 0-dim; else one."""
        if not self.closed_form:
            return self._like.new_ones(())
        return cast(Tensor, self.covar_module.outputscale).detach().double()

    def _build_process(self, state: TrustRegionState) -> ExactProcess:
        window, kernel = state.window, frozen_kernel(self.covar_module)
        factor, unit = self._window_factor(window), self._unit()
        mean = self._prior_mean().detach().clone()
        L = (factor.L * unit.sqrt()).unsqueeze(0)
        e = (window.Y - mean).unsqueeze(-1)
        w = torch.linalg.solve_triangular(L, e, upper=False).squeeze(-1)
        return ExactProcess(kernel, window.X, L, w, (factor.ratios * unit).unsqueeze(0), mean)

    # -- hyperparameters -------------------------------------------------------------------------

    @property
    def fit_due(self) -> bool:
        """Whether to `fit` now: a new region's design is complete, n has grown by 1.15, or L has
        halved or doubled since the last fit.
        """
        return update.fit_due(cast(TrustRegionState, self.state))

    @property
    def refit_due(self) -> bool:
        """The same as `fit_due`."""
        return self.fit_due

    def log_evidence(self) -> Tensor:
        """The log evidence of the window, without priors: 0-dim, differentiable. O(512^3)."""
        return self._evidence(profile_mean=False)[0]

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence of the window plus the log priors that follow it."""
        value, mean = self._evidence(profile_mean)
        if self._own_priors:
            lengths = cast(Tensor, self.covar_module.base_kernel.lengthscale).double().reshape(-1)
            ratio = self._noise_scale()[0] / cast(Tensor, self.covar_module.outputscale).double()
            geometry = self._geometry(self.region)
            priors = Priors.of(self._units(self._fitted(), geometry), self.noise != "none")
            value = value + priors.log_density((lengths / geometry.width).log(), ratio.log())
        return value, mean

    def _evidence(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        window = cast(TrustRegionState, self.state).window
        noise = self._noise_scale().unsqueeze(-1) * window.R
        L = chol_psd(cross_kernel(self.covar_module, window.X, window.X) + noise.diag_embed())
        known = None if profile_mean and len(window) else self._prior_mean()
        return log_evidence(L, window.Y.unsqueeze(0), known)

    @property
    def _own_priors(self) -> bool:
        """Whether hyperparameters are free but for the priors of MATHS 14.2."""
        own = self.closed_form and type(self.mean_module) is ConstantMean
        if not own or self.noise_mode != "learned" or any(True for _ in self.named_priors()):
            return False
        named = [m.named_constraints() for m in (self.covar_module, self.likelihood)]
        own = all(type(c) is Positive for constraints in named for _, c in constraints)
        return own and not any(True for _ in self.mean_module.named_constraints())

    def _units(self, rows: Rows, geometry: Geometry) -> Tensor:
        """Points in units of the box, about the centre."""
        return (rows.X - self.region.centre) / geometry.width

    def _fitted(self) -> Rows:
        """The points of the window that hyperparameters are fitted to."""
        window, region = cast(TrustRegionState, self.state).window, self.region
        if len(window) <= FITTED:
            return window
        steps = (window.X - region.centre) / self._geometry(region).lengthscales
        return window.at(steps.square().sum(-1).topk(FITTED, largest=False).indices)

    @exclusive
    @torch.enable_grad()
    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit the hyperparameters, warm-started, to the 256 points nearest the centre (MATHS 14.3).

        The first fit of a region with at least ``2 d`` points ends its initial design. With modules
        of one's own the window's evidence and their priors are maximised as in other families.

        Args:
            max_evals: Maximum number of evaluations of objective and gradient; by default at most
                15 iterations of L-BFGS, twice every fifth time.
        """
        check_evaluations(max_evals)
        self._end_design()
        window = cast(TrustRegionState, self.state).window
        free = all(p.requires_grad for p in self.parameters())
        if free and self._own_priors and len(window) > 1 and float(window.Y.std()) > 0.0:
            report = self._fit_in_closed_form(max_evals)
        else:
            report = fit_model(self, max_evals)
        self._fit_done()
        return report

    @all_or_nothing
    def _end_design(self) -> None:
        """Begin the region if its initial design is complete."""
        state = cast(TrustRegionState, self.state)
        if not state.region.begun and update.fit_due(state):
            self._replace(state=update.begun(state, self._geometry(state.region)))

    @all_or_nothing
    def _fit_done(self) -> None:
        """Note when the hyperparameters were fitted, and centre the region by them."""
        state = cast(TrustRegionState, self.state)
        if state.region.begun:
            region, n = state.region, float(len(state.archive))
            size, fits = float(region.size), float(region.fits) + 1.0
            region = region.changed(fitted=n, fitted_size=size, fits=fits)
            state = replace(state, region=region)
            self._replace(state=update.recentred(state, self._centre))

    @torch.no_grad()
    def _fit_in_closed_form(self, max_evals: int | None) -> FitReport:
        window, region, rows = self.state.window, self.region, self._fitted()
        geometry = self._geometry(region)
        U = self._units(rows, geometry)
        y = (rows.Y - window.Y.mean()) / window.Y.std(correction=0)
        priors = Priors.of(U, self.noise != "none")
        objective = ProfiledEvidence(U, y, priors)
        lengths = cast(Tensor, self._lengthscales()) / geometry.width
        ratio = self._noise_scale() / self._unit()
        starts = [torch.cat([lengths, ratio]).log().numpy()]
        if not int(region.fits) % AGAIN:
            starts.append(objective.first())
        found = fit(objective, starts, max_evals)
        theta = torch.from_numpy(found.theta)
        lengths, ratio = theta[:-1].exp() * geometry.width, theta[-1].exp()
        R = correlations(window.X, lengths)
        factor = factored(R, ratio * window.R, window.Y)
        self._use(lengths, factor.mean, factor.amplitude, ratio * factor.amplitude)
        n = len(window)
        value = -0.5 * n * math.log(2.0 * math.pi * math.e * float(factor.amplitude))
        value -= float(factor.L.diagonal().log().sum())
        value += float(priors.log_density(theta[:-1], theta[-1]))
        return FitReport(found.evaluations, value, found.converged)

    def _use(self, lengths: Tensor, mean: Tensor, amplitude: Tensor, noise: Tensor) -> None:
        """Set the hyperparameters."""
        base = self.covar_module.base_kernel
        base.lengthscale = lengths.reshape(base.lengthscale.shape).to(self.dtype)
        self.covar_module.outputscale = amplitude.to(self.dtype)
        self.likelihood.noise = noise.reshape(-1).to(self.dtype)
        self._set_prior_mean(mean.reshape(-1))
