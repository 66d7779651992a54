"""The local process of a trust-region surrogate: its modules, factor, evidence and fit.

MATHS 14.2 and 14.3.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from torch import Tensor

from bo_stream.base.fitting.report import FitReport
from bo_stream.base.options import CommonOptions
from bo_stream.errors import StateError
from bo_stream.mathematics.evidence import log_evidence
from bo_stream.mathematics.kernels import cross_kernel
from bo_stream.mathematics.linalg import REPAIR, chol_psd
from bo_stream.mathematics.trust_region.factor import Factor, correlations, factored
from bo_stream.mathematics.trust_region.fit import Priors, ProfiledEvidence, fit
from bo_stream.mathematics.trust_region.kernel import lengthscales_in, scale_of
from bo_stream.mathematics.trust_region.state import Evaluations

__all__ = [
    "best_mean",
    "fit_in_closed_form",
    "has_own_priors",
    "log_own_priors",
    "recommended",
    "window_evidence",
    "window_factor",
    "with_own_modules",
]

FITTED = 256
"""Hyperparameters are fitted to so many points of the window, those nearest the centre."""
AGAIN = 5
"""Every fifth fit, the first among them, also starts from the prior's mean."""


def with_own_modules(common: CommonOptions, X: Tensor, Yvar: Tensor | None) -> CommonOptions:
    """The common options, with the family's kernel and likelihood where they were left out."""
    own = common.copy()
    if own.get("covar_module") is None and isinstance(X, Tensor):
        own["covar_module"] = ScaleKernel(MaternKernel(2.5, ard_num_dims=X.shape[-1]))
    if own.get("likelihood") is None and Yvar is None:
        own["likelihood"] = GaussianLikelihood(noise_constraint=Positive())
    return own


@torch.no_grad()
def window_factor(model: Any, window: Evaluations) -> Factor:
    """The factor of a window's covariance, in units of the kernel's output scale.

    One Cholesky: of C in closed form, else of the kernel's matrix plus the noise.
    """
    ratios = model._noise_scale() * window.R / scale_of(model.covar_module, model._dim)
    if model.closed_form:
        lengths = cast(Tensor, lengthscales_in(model.covar_module, model._dim))
        return factored(correlations(window.X, lengths), ratios, window.Y)
    K = cross_kernel(model.covar_module, window.X, window.X)[0]
    return factored(K, ratios, window.Y)


def window_evidence(model: Any, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
    """The log evidence of the window and, with ``profile_mean``, its optimal mean: differentiable.

    See `bo_stream.mathematics.evidence.log_evidence`.
    """
    window = model.state.window
    noise = model._noise_scale().unsqueeze(-1) * window.R
    K = cross_kernel(model.covar_module, window.X, window.X)
    L = chol_psd(K + noise.diag_embed(), least=REPAIR)
    known = None if profile_mean and len(window) else model._prior_mean()
    return log_evidence(L, window.Y.unsqueeze(0), known)


def best_mean(model: Any, window: Evaluations) -> tuple[int, float]:
    """The row of a window with the best posterior mean, and that mean."""
    means = model.factor(window).means(window.Y)
    row = int(means.argmax())
    return row, float(means[row])


@torch.no_grad()
def recommended(model: Any) -> tuple[Tensor, float]:
    """See `TrustRegionGP.recommendation`."""
    state, means = model.state, None
    if model.noise != "none":
        X = state.window.X
        means = model.process().at(X).mean[0] if len(X) else X.new_zeros(0)
    X, values = state.results(means)
    if not len(X):
        raise StateError("observations", "none", "Observe some first.")
    best = int(values.argmax())
    x, y = model.raw(X[best].unsqueeze(0)), values[best].reshape(1, 1)
    transform = getattr(model, "outcome_transform", None)
    y = y if transform is None else transform.untransform(y, X=x)[0]
    return x[0], float(y)


def has_own_priors(model: Any) -> bool:
    """Whether the surrogate's hyperparameters are free but for the priors of MATHS 14.2: modules
    left out, or like them, without priors and with no constraint but to be positive.
    """
    own = model.closed_form and type(model.mean_module) is ConstantMean
    if not own or model.noise_mode != "learned" or any(True for _ in model.named_priors()):
        return False
    modules = (model.covar_module, model.likelihood)
    kinds = [type(c) for module in modules for _, c in module.named_constraints()]
    kinds += [type(c) for _, c in model.mean_module.named_constraints()]
    return all(kind is Positive for kind in kinds)


def log_own_priors(model: Any) -> Tensor:
    """Log density of the priors at the current hyperparameters, 0-dim, differentiable."""
    geometry = model.geometry
    lengths = cast(Tensor, model.covar_module.base_kernel.lengthscale).double().reshape(-1)
    ratio = model._noise_scale()[0] / scale_of(model.covar_module, model._dim)
    priors = _priors(model, _fitted(model))
    return priors.log_density((lengths / geometry.width).log(), ratio.log())


@torch.no_grad()
def fit_in_closed_form(model: Any, max_evals: int | None) -> FitReport:
    """Fit lengthscales and noise to the points nearest the centre, warm; set all hyperparameters.

    Mean and amplitude are the optimal ones on the whole window.
    """
    window, region, rows = model.state.window, model.region, _fitted(model)
    width = model.geometry.width
    y = (rows.Y - window.Y.mean()) / window.Y.std(correction=0)
    priors = _priors(model, rows)
    objective = ProfiledEvidence((rows.X - region.centre) / width, y, priors)
    lengths = cast(Tensor, lengthscales_in(model.covar_module, model._dim)) / width
    ratio = model._noise_scale() / scale_of(model.covar_module, model._dim)
    starts = [torch.cat([lengths, ratio]).log().numpy()]
    if not int(region.fits) % AGAIN:
        starts.append(objective.first())
    found = fit(objective, starts, max_evals)
    theta = torch.from_numpy(found.theta)
    lengths, ratio = theta[:-1].exp() * width, theta[-1].exp()
    factor = factored(correlations(window.X, lengths), ratio * window.R, window.Y)
    base, noise = model.covar_module.base_kernel, ratio * factor.amplitude
    base.lengthscale = lengths.reshape(base.lengthscale.shape).to(model.dtype)
    model.covar_module.outputscale = factor.amplitude.to(model.dtype)
    model.likelihood.noise = noise.reshape(-1).to(model.dtype)
    model._set_prior_mean(factor.mean.reshape(-1))
    value = factor.log_evidence() + float(priors.log_density(theta[:-1], theta[-1]))
    return FitReport(found.evaluations, value, found.converged)


def _fitted(model: Any) -> Evaluations:
    """The points of the window that hyperparameters are fitted to."""
    window, steps = model.state.window, model.state.window.X - model.region.centre
    if len(window) <= FITTED:
        return cast(Evaluations, window)
    distances = (steps / model.geometry.lengthscales).square().sum(-1)
    return cast(Evaluations, window.at(distances.topk(FITTED, largest=False).indices))


def _priors(model: Any, rows: Evaluations) -> Priors:
    return Priors.of(rows.X / model.geometry.width, model.noise != "none")
