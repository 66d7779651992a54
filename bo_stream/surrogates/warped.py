"""An exact Gaussian process for small budgets: warped outcomes, noise down to none (MATHS 13).

With a few dozen evaluations, the first fits and the search decide. Outcomes are compressed on the
bad side by a logarithm whose scale is fitted with the kernel, by evidence with analytic gradients.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack, cast

import numpy as np
import torch
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.posterior import Posterior
from botorch.posteriors.transformed import TransformedPosterior
from gpytorch.constraints import Positive
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from bo_stream.base.checkpoint import entries
from bo_stream.base.fitting import FitReport
from bo_stream.base.options import CommonOptions
from bo_stream.base.stream import Derived, FitMemory, all_or_nothing
from bo_stream.base.streaming_gp import Promises
from bo_stream.base.units import change_of_units
from bo_stream.errors import FallbackWarning, UnsupportedError, check_choice
from bo_stream.mathematics import warp as warps
from bo_stream.mathematics.exact import Array, Evidence
from bo_stream.mathematics.expanded import ExpandedProcess, Expansion, LatentProcess
from bo_stream.mathematics.outcomes import expected
from bo_stream.mathematics.radial import RadialCovariance
from bo_stream.mathematics.shapes import Rows, shaped
from bo_stream.surrogates.exact import MaternGP

__all__ = ["OutcomeWarp", "WarpedGP", "WarpedPosterior"]


@dataclass(frozen=True)
class WarpedState(Rows):
    """All data, in the units of ``outcome_transform``, and the scale of the warp.

    Attributes:
        warp: The scale, zero for none, and the shift and size of the outcomes, in which mean and
            variance have their priors: 0 and 1 under a warp.
    """

    warp: Tensor = shaped("3")

    @property
    def is_warped(self) -> bool:
        """Whether outcomes are warped."""
        return bool(self.warp[0]) and len(self.X) > 0

    @property
    def coefficients(self) -> Tensor:
        """Those of the warp, anchored at the outcomes: otherwise a large improvement would be many
        deviations from all others.
        """
        return warps.coefficients(self.Y[0], self.warp[0])

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> WarpedState:
        """The data and the warp with targets ``(y - shift) / factor``."""
        scale, before, size = self.warp.split(1)
        units = (before, size) if bool(scale) else ((before - shift) / factor, size / factor)
        warp = torch.cat([scale / factor, *units])
        return replace(super().rescaled(shift, factor, known_noise), warp=warp)


class OutcomeWarp(OutcomeTransform):
    """A frozen outcome transform followed by the warp.

    Args:
        before: The transform of raw outcomes that the warp follows, or None.
        about: The warp's `coefficients`.
    """

    about: Tensor
    _is_linear = False

    def __init__(self, before: OutcomeTransform | None, about: Tensor) -> None:
        super().__init__()
        self.before = before
        self.register_buffer("about", about.detach().clone())
        self.eval()

    def forward(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Warp raw outcomes ``batch_shape x n x 1``; variances are refused."""
        if Yvar is not None:
            raise UnsupportedError(
                "outcomes without variances under a warp",
                "variances, which a warp does not scale alike",
                "Use warp='none' where the noise is known.",
            )
        return warps.warped(Y if self.before is None else self.before(Y, X=X)[0], self.about), None

    def untransform(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Raw outcomes from warped ones, of any batch shape."""
        y = warps.unwarped(Y, self.about)
        return (y if self.before is None else self.before.untransform(y, X=X)[0]), None

    def untransform_posterior(self, posterior: Posterior, X: Tensor | None = None) -> Posterior:
        """The posterior of raw outcomes."""
        return WarpedPosterior(
            cast(GPyTorchPosterior, posterior), lambda w: self.untransform(w, X=X)[0]
        )


class WarpedPosterior(TransformedPosterior):
    """The posterior of an increasing function of a Gaussian one, in raw units.

    ``mean`` and ``variance`` are those of the raw outcomes, by Gauss-Hermite quadrature with 48
    nodes: O(48) per entry. ``median`` and `quantile` are exact.

    Args:
        posterior: The Gaussian posterior of one output, ``batch_shape x q x 1``; kept as
            ``latent``.
        raw: The function, elementwise.
    """

    def __init__(self, posterior: GPyTorchPosterior, raw: Callable[[Tensor], Tensor]) -> None:
        super().__init__(posterior, raw, self._mean_of, self._variance_of)
        self.latent, self._raw = posterior, raw

    @property
    def median(self) -> Tensor:
        """The median, ``batch_shape x q x 1``."""
        return self._raw(self.latent.mean)

    def quantile(self, value: Tensor) -> Tensor:
        """Marginal quantiles, ``len(value) x batch_shape x q x 1`` for levels of one dimension."""
        return self._raw(self.latent.quantile(value))

    def _mean_of(self, mean: Tensor, variance: Tensor) -> Tensor:
        return expected(self._raw, mean, variance.clamp_min(0.0))

    def _variance_of(self, mean: Tensor, variance: Tensor) -> Tensor:
        middle, variance = self._mean_of(mean, variance), variance.clamp_min(0.0)
        return expected(lambda w: (self._raw(w) - middle).square(), mean, variance)


class WarpedGP(MaternGP[WarpedState]):
    """Exact inference on warped outcomes, for up to a few hundred observations to be maximised.

    `fit` maximises the evidence over lengthscales, noise and the scale of the warp, with mean and
    variance in closed form, and keeps outcomes unwarped where that has the higher evidence. Until
    the first fit, and with ``train_Yvar``, outcomes are not warped. Under a warp `posterior` is a
    `WarpedPosterior` in raw units, and `process` is the latent process. Kernel, mean and noise are
    the family's own. Where hyperparameters were frozen, or with ``train_Yvar``, `fit` is that of
    every family, and the warp stays as it is.

    Memory O(n^2). A fit of n = 60 points takes milliseconds, O(n^3 + d n^2) an evaluation.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes; larger ones are better.
        train_Yvar: ``n x 1`` raw noise variances, or None.
        noise: Without ``train_Yvar``: ``"learned"``, down to 1e-6 of the variance, or ``"none"``
            for evaluations that are exact. If outcomes at one point differ, their noise is learned,
            with a warning.
        warp: ``"log"``, or ``"none"`` for outcomes as they are.
        cat_dims: Indices of inputs that are categories: their values are compared and have no
            order. Two categories are one lengthscale apart.
        common: Options of every family, but for other modules than a ``likelihood`` that scales
            ``train_Yvar``; see `CommonOptions`.

    Raises:
        InputError: for unknown options.
        UnsupportedError: for other kernels, means or likelihoods, which `ExactGP` takes.

    Example:
        >>> import torch
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> unit = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> model = WarpedGP(X, -(X - 0.5).norm(dim=-1, keepdim=True), noise="none", bounds=unit)
        >>> model.fit().converged, model.posterior(X[:3]).mean.shape
        (True, torch.Size([3, 1]))
    """

    promises = Promises(
        order_invariant=True,
        bytes_constant=False,
        updates_without_drift=300,
        multi_output=False,
        keeps_data=True,
        takes_modules=False,
    )

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        noise: Literal["learned", "none"] = "learned",
        warp: Literal["log", "none"] = "log",
        cat_dims: Sequence[int] = (),
        **common: Unpack[CommonOptions],
    ) -> None:
        check_choice("warp", warp, "log", "none")
        model = GaussianLikelihood(
            noise_constraint=Positive(transform=torch.exp, inv_transform=torch.log)
        )
        model.noise = 1e-3 if noise == "learned" else warps.EXACT
        model.noise_covar.raw_noise.requires_grad_(noise == "learned")
        data = train_X, train_Y, train_Yvar
        super().__init__(
            *data, common, noise=noise, noise_model=model, cat_dims=cat_dims, start=1.0
        )
        self.warp = warp
        self._latents = Derived[LatentProcess]()
        self._begin(*data)

    # -- state and warp --------------------------------------------------------------------------

    def _empty_state(self) -> WarpedState:
        rows = Rows.empty(self._dim)
        return WarpedState(**vars(rows), warp=rows.Y.new_tensor([0.0, 0.0, 1.0]))

    def _absorb(self, state: WarpedState, rows: Rows) -> WarpedState:
        if state.is_warped:
            rows = replace(rows, Y=warps.unwarped(rows.Y, state.coefficients))
        return state.joined(rows)

    def _rows(self, state: WarpedState) -> Rows:
        if not state.is_warped:
            return state
        return replace(state, Y=warps.warped(state.Y, state.coefficients))

    @property
    def is_warped(self) -> bool:
        """Whether the last fit chose to warp the outcomes."""
        return self.state.is_warped

    @property
    def outcome_transform(self) -> OutcomeTransform:  # type: ignore[override]
        """How raw outcomes become those of the process, the warp included, as in `outcome_map`.

        BoTorch's lists of models read from it what posteriors their members return.
        """
        found = self.outcome_map()
        if found is None:
            raise AttributeError("This surrogate has no outcome_transform.")
        return found

    def outcome_map(self, *, raw: bool = True) -> OutcomeTransform | None:
        """The transform that the constructor was passed (of raw outcomes), then the warp if there
        is one.
        """
        before = super().outcome_map(raw=raw)
        if not self.is_warped:
            return before
        return OutcomeWarp(before, self.state.coefficients)

    @property
    def _supports_cache_root(self) -> bool:
        """For BoTorch: whether posteriors are Gaussian."""
        return not self.is_warped

    # -- posterior -------------------------------------------------------------------------------

    def latent(self) -> LatentProcess:
        """The latent process over transformed inputs in numpy, with slopes in closed form.

        Raises:
            UnsupportedError: without observations.
        """
        return self._latents.made(self._key(), self._new_latent)

    @torch.no_grad()
    def _new_latent(self) -> LatentProcess:
        rows, (lengthscales, variance, ratio) = self._rows(self.state), self._values()
        if not len(rows):
            raise UnsupportedError("at least one observation", "none", "Observe some data first.")
        parts = rows.X, rows.y, ratio * rows.r, lengthscales
        X, w, noise, scales = (t.numpy(force=True) for t in parts)
        mean, sd = float(self._prior_mean()), math.sqrt(variance)
        prior = RadialCovariance(1.0 / scales, categories=self.cat_dims)
        own = Expansion.given(prior, X, (w - mean) / sd, noise)
        origin, one = np.zeros(self._dim), np.ones(self._dim)
        process = ExpandedProcess(own, scales, origin, one, mean, sd)
        exact = self.noise == "none" and self.noise_mode == "learned" and noise.max() < warps.FLOOR
        return LatentProcess(process, w if exact else process.marginals(X)[0])

    def _moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """After the first observation, from the latent process alone."""
        if not self.num_observed:
            return super()._moments(X)
        found = self.latent().process.moments(X.numpy(force=True)[None])
        mean, covariance = torch.from_numpy(found.mean), torch.from_numpy(found.covariance)
        return mean.to(self._like), covariance.to(self._like)

    # -- hyperparameters -------------------------------------------------------------------------

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence of the outcomes before the warp: O(n^3)."""
        value, mean = super()._objective(profile_mean)
        if self.is_warped:  # slopes are exp(-h) / (scale spread)
            _, scale, mean_h, spread, _ = self.state.coefficients
            value = value - len(self.state) * ((scale * spread).log() + mean_h)
        return value, mean

    def _log_priors(self) -> Tensor:
        """Also of lengthscales; unless the noise is known, of relative noise, warp, mean, variance.

        The last two are in the units of the targets.
        """
        state, (lengthscales, variance, ratio) = self.state, self._values()
        if self.noise_mode != "learned":
            own = warps.priors(self._dim).log_density(lengthscales.log())
            return super()._log_priors() + own
        learned = self.noise == "learned" or float(ratio.detach()) > warps.FLOOR
        scale, shift, size = state.warp
        spread = warps.unit(state.y.numpy(force=True)) if state.is_warped else 0.0
        theta = [lengthscales]
        if learned:
            theta.append((ratio - warps.FLOOR).clamp_min(1e-12).reshape(1))
        if spread:  # loaded with a warp, its outcomes may all be equal
            theta.append((scale / spread).reshape(1))
        priors = warps.priors(self._dim, learned=learned, warp=spread > 0.0)
        mean, variance = (self._prior_mean()[0] - shift) / size, variance / size**2
        conjugate = -0.5 * mean.square() / variance - variance.log() - 1.0 / variance
        own = priors.log_density(torch.cat(theta).log()) + conjugate
        return super()._log_priors() + own

    def _search(self, max_evals: int | None) -> FitReport:
        """Hyperparameters and warp, starting from the last fit's: at most 30 iterations from each
        start, or ``max_evals`` evaluations in all.
        """
        if self.num_observed < 2 or not self._fits_in_closed_form:
            return super()._search(max_evals)
        state = self.state
        X, y = (t.numpy(force=True) for t in (state.X, state.Y[0]))
        memory = self.stream.contents.fits.explored.numpy(force=True)
        learned = self.noise == "learned"
        if not learned and warps.contradicted(X, y):
            warnings.warn(
                "Outcomes differ at the same point: they are not exact. Their noise is learned.",
                FallbackWarning,
                stacklevel=6,
            )
            learned = True
        evidence, found, memory = warps.fitted(
            X,
            y,
            memory,
            learned=learned,
            warp=self.warp == "log",
            most=max_evals,
            cat_dims=self.cat_dims,
        )
        self._settle(evidence, found.theta, memory)
        return FitReport(found.evaluations, found.value, found.converged)

    @all_or_nothing
    def _settle(self, evidence: Evidence, theta: Array, memory: Array) -> None:
        """Adopt the result of a fit."""
        found, units = evidence.solved_at(theta), evidence.targets_at(theta).units
        (_, shift, size), warp = units, self._like.new_tensor(units)
        about = found.variance * size**2, evidence.noise_at(theta), shift + size * found.mean
        self._set_values(np.exp(theta[: self._dim]), *about)
        fits = FitMemory(warp.new_empty(0, 0), torch.from_numpy(memory).to(warp))
        self._replace(state=replace(self.state, warp=warp), fits=fits)

    @all_or_nothing
    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        """Take over the warp in which loaded hyperparameters were fitted."""
        warp = None if saved is None else saved.get("stream.state_warp")
        if saved is not None and warp is not None and self.warp == "log":
            old, new = (entries(s, "outcome_transform.") for s in (saved, self.state_dict()))
            change = change_of_units(old, new, self._like)
            loaded = replace(self.state, warp=warp.to(self._like))
            self._replace(state=replace(loaded, warp=loaded.rescaled(*change, False).warp))
