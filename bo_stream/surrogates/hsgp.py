"""HSGP: a Gaussian process of constant size on sine features.

[Solin] Solin, Särkkä 2020, Hilbert Space Methods for Reduced-Rank Gaussian Process Regression. The
state is a set of sums (MATHS 2.2, 2.9, 12.2): additive, so any order and batching give the same
surrogate and two streams can be merged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, Self, Unpack, cast

import torch
from torch import Size, Tensor

from bo_stream.base import options
from bo_stream.base.fitting import ClosedForm, Coordinates, FitReport, Selections
from bo_stream.base.options import CommonOptions
from bo_stream.base.stream import Derived, Key, all_or_nothing
from bo_stream.base.streaming_gp import FeatureGP, Promises
from bo_stream.base.units import sizes_of
from bo_stream.errors import BoundsError, InputError, StateError, whole_number
from bo_stream.mathematics import sines
from bo_stream.mathematics.autograd import attach
from bo_stream.mathematics.evidence import (
    OutputStatistics,
    diagonal_evidence,
    factorise_diagonal,
)
from bo_stream.mathematics.kernels import Scaled
from bo_stream.mathematics.process import (
    FeatureBasis,
    PosteriorProcess,
    Process,
    unconditioned,
    warn_if_saturated,
)
from bo_stream.mathematics.shapes import Rows
from bo_stream.mathematics.sine_states import FEW_INPUTS, FrequencyState, HilbertState
from bo_stream.mathematics.sines import Basis

__all__ = ["HSGP"]

MOVED = 0.2
"""Change of a lengthscale's logarithm from which a fit chooses the features anew."""


class HSGP(FeatureGP[FrequencyState | HilbertState]):
    """Gaussian process on products of sines over a box around the bounds, with constant-size state.

    Exact inference for its own prior, whose covariance is ``sum_j lambda_j phi_j(x) phi_j(z)`` over
    the features. It is close to the kernel's if the features reach its frequencies, as for smooth
    functions of up to about 8 inputs. Higher frequencies are missing. Every function is zero at the
    walls of the box, which lowers the prior variance: near the bounds, for up to three inputs by a
    quarter at lengthscales of .3 widths, and everywhere at lengthscales of about the width of the
    bounds. A fitted output scale makes up for it, so `fit` a kernel of your choice.

    Up to three inputs, the state is sums over frequencies, from which the sums over any features
    follow: these are chosen for the kernel's lengthscales when the first points come, by every
    `fit` that moves them, and by `choose_features`; ``num_features="auto"`` takes more from 300 and
    from 3,000 observations on. Any two streams merge. With the default kernel there are also *main
    effects*: functions of one input each, Matern-9/2, with a lengthscale and a variance of their
    own. A fit keeps lengthscales to what the features resolve, because shorter ones make confident
    maxima where there are none. `observe` takes about 3 microseconds a point in batches.

    For more inputs, the sums are over the features. These are chosen for the kernel's lengthscales
    when the first points come, for those that `fit` finds if the data have doubled since the last
    choice, and by `choose_features`. Choosing anew needs all points seen, and the first ``opening``
    points are held for it; so `fit` early. Two streams merge if their features are the same, or if
    one of them still holds all its points. `observe` costs O(m^2) a point for m features.

    `observe` does not depend on order or batches. A point of the posterior costs O(m^2), evidence
    and gradient O(m^3); nothing depends on n. Outputs share the features, chosen for the geometric
    mean of their lengthscales.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances, or None to learn the noise.
        num_features: Number of functions of all inputs, for all outputs. ``"auto"``: 128, then 256
            and 400 for two or three inputs; 128 for one, 512 for more.
        main_effects: Whether the kernel gets main effects if it has none. By default it does if
            it was left out, for two or three inputs.
        opening: Number of first points that are held, for more than three inputs.
        lengthscales: Lengthscales of the transformed inputs (one each) to choose the features for,
            once and for all; nothing is held then. For streams on several machines.
        common: ``bounds`` (needed), ``covar_module`` (an RBF or Matern kernel, scaled or not, with
            a scaled `MainEffects` added or not; by default a scaled RBF for more than three inputs,
            else Matern-5/2), ``mean_module``, ``likelihood``, ``input_transform``,
            ``outcome_transform``: see `CommonOptions`.

    Raises:
        UnsupportedError: on another kernel.
        BoundsError: without bounds.
        NoiseError: also for known noise below 1e-12 of the prior variance.

    Example:
        >>> import torch
        >>> X = torch.rand(40, 4, dtype=torch.double)
        >>> bounds = torch.tensor([[0.0] * 4, [1.0] * 4])
        >>> model = HSGP(X, X.sum(-1, keepdim=True).sin(), bounds=bounds, num_features=64)
        >>> model.observe(X[:5], X[:5].sum(-1, keepdim=True).sin()).num_observed
        45
        >>> model.forget(0.5).effective_observations
        22.5
    """

    promises = Promises(
        order_invariant=True,
        bytes_constant=True,
        updates_without_drift=10_000,
        multi_output=True,
        additive=True,
    )

    needs_bounds = True

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        num_features: int | Literal["auto"] = "auto",
        main_effects: bool | None = None,
        opening: int = 4096,
        lengthscales: Sequence[float] | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        if common.get("bounds") is None:
            raise BoundsError("bounds `2 x d`", "none", "Give the raw bounds of the problem.")
        dim, outputs = sizes_of(train_X, train_Y)
        batch, few = Size([outputs] if outputs > 1 else []), dim <= FEW_INPUTS
        if few and train_Yvar is None and common.get("likelihood") is None:
            common["likelihood"] = sines.default_likelihood(batch)
        kernel = common.get("covar_module")
        if kernel is None:
            kernel = (sines if few else options).default_kernel(dim, batch)
            main_effects = few and dim > 1 if main_effects is None else main_effects
        if main_effects and len(sines.parts_of(kernel)) == 1:
            kernel = kernel + sines.main_effects(batch)
        common["covar_module"] = kernel
        super().__init__(train_X, train_Y, train_Yvar, **common)
        if num_features != "auto":
            whole_number("num_features", num_features, 1)
        self.num_features = num_features
        self.opening = whole_number("opening", opening, 0)
        self.lengthscales = (
            None if lengthscales is None else [float(value) for value in lengthscales]
        )
        given = [1.0] * dim if self.lengthscales is None else self.lengthscales
        if len(given) != dim or not all(0.0 < value < math.inf for value in given):
            raise InputError(
                f"{dim} positive lengthscales", f"{given}", "Give one for each transformed input."
            )
        self.main_effects = len(self._parts()) > 1
        self._box = self._transformed(cast(Tensor, self.bounds)).sort(0).values.tolist()
        self._statistics_cache: Derived[list[OutputStatistics]] = Derived()
        self._begin(train_X, train_Y, train_Yvar)

    # -- features --------------------------------------------------------------------------------

    @property
    def basis(self) -> Basis:
        """The features in use, chosen for ``basis.lengthscales`` (of transformed inputs)."""
        return self.state.basis_at(self.num_observed)

    @all_or_nothing
    def choose_features(self) -> Self:
        """Select features for the kernel's present lengthscales.

        Raises:
            StateError: with the option ``lengthscales``, or if not all points seen are held.
        """
        if self.lengthscales is not None:
            raise StateError(
                "features that are chosen for the kernel's lengthscales",
                f"lengthscales={self.lengthscales}, for which they were chosen once and for all",
                "Build it anew without `lengthscales`.",
            )
        self._check_selectable("Build it anew with a larger `opening`.")
        self._replace(state=self._suited())
        return self

    def _search(self, max_evals: int | None) -> FitReport:
        """As before, with a warning where known noise is so small that the data determine most
        features: what the features leave out would be noise too.
        """
        report = super()._search(max_evals)
        if self.noise_mode == "known":
            warn_if_saturated(cast(Process, unconditioned(self.process())[0]).L)
        return report

    def _can_select(self) -> bool:
        return self.lengthscales is None and self._all_buffered

    def _better(self) -> FrequencyState | HilbertState | None:
        moved = (self._lengthscales() / self.basis.lengthscales).log().abs()
        return self._suited() if float(moved.max()) > MOVED else None

    def _suited(self) -> FrequencyState | HilbertState:
        """The state over the best features."""
        return self.state.suited_to(self._lengthscales(), self.num_observed)

    def _lengthscales(self) -> Tensor:
        """Lengthscales to choose features for, ``d``: those given, or else the kernel's, geometric
        means over outputs.
        """
        if self.lengthscales is not None:
            return self._like.new_tensor(self.lengthscales)
        joint = self._parts()[-1].lengthscales(self._dim, self.num_outputs)
        return joint.detach().log().mean(0).exp()

    def _parts(self) -> tuple[Scaled, ...]:
        """The kernel's parts in the order of the features: main effects, if any, and the others."""
        return sines.parts_of(self.covar_module)

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "box": self._box, "features": self.num_features}

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), **self.state.sizes()}

    def _empty_state(self) -> FrequencyState | HilbertState:
        low, high = torch.tensor(self._box, dtype=torch.float64)
        features = torch.stack([low, high - low]), self.num_features, self.main_effects
        noises = self.num_outputs, self.noise_mode == "learned"
        if self._dim <= FEW_INPUTS:
            return FrequencyState.on(self._lengthscales(), *features, *noises)
        opening = 0 if self.lengthscales else self.opening
        return HilbertState.on(self._lengthscales(), *features, *noises, opening)

    def _choose_features(
        self, state: FrequencyState | HilbertState, rows: Rows
    ) -> FrequencyState | HilbertState:
        """Before the first batch: those for the kernel's lengthscales."""
        return state if self.num_observed else self._suited()

    # -- posterior and objective -----------------------------------------------------------------

    def _statistics(self) -> list[OutputStatistics]:
        """The statistics over the features in use."""
        make = partial(self.state.over_features, self.num_observed)
        return self._statistics_cache.made(Key(self.stream.version), make)

    @torch.no_grad()
    def _build_process(self, state: FrequencyState | HilbertState) -> Process:
        mean, basis = self._prior_mean().clone(), self.basis
        logs = sines.log_variances(self._parts(), basis, self.num_outputs)
        s2, c = self._noise_scale(), mean - state.origin
        r, factors = factorise_diagonal(self._statistics(), logs, s2, c, profile_mean=False)
        u, L = torch.stack([f.q for f in factors]), torch.stack([f.L for f in factors])
        return Process(None, FeatureBasis(basis, r), None, L, u, mean)

    def _to_condition(self, process: PosteriorProcess, points: int) -> PosteriorProcess | None:
        """The last process, if it is on the features in use."""
        base = cast(Process, unconditioned(process)[0])
        before = cast(FeatureBasis, base.basis).features
        return process if self.basis.same_as(cast(Basis, before)) else None

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence with closed-form gradients (MATHS 2.3, 2.4, 2.9)."""
        logs = sines.log_variances(self._parts(), self.basis, self.num_outputs)
        s2, mean = self._noise_scale(), self._prior_mean()
        value, gradients, means = self._evidence(s2, mean, logs, profile_mean)
        return attach(value, [s2, mean, logs], gradients), means if profile_mean else None

    @torch.no_grad()
    def _evidence(
        self, s2: Tensor, mean: Tensor, logs: Tensor, profile_mean: bool
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """Log evidence, its gradients in the first three arguments, and the constant means.

        Args:
            s2: Noise scales, ``o``.
            mean: Constant means, ``o``.
            logs: Logarithms of the features' prior variances, ``o x f``.
            profile_mean: Take the optimal constant means instead.
        """
        origin = self.state.origin
        _, factors = factorise_diagonal(self._statistics(), logs, s2, mean - origin, profile_mean)
        value, gradients, means = diagonal_evidence(factors)
        return value, gradients, means + origin

    def _prepare_fit(self, coordinates: Coordinates, profile_mean: bool) -> ClosedForm | None:
        """Keep lengthscales of few inputs to what the features resolve (MATHS 12.1); those of many
        resolve little.

        Returns:
            None as `Selections.of`.
        """
        parts, basis, state = self._parts(), self.basis, self.state
        limits = state.least_lengthscales(basis) if isinstance(state, FrequencyState) else ()
        for part, least in zip(parts, limits, strict=False):
            raw = part.base.raw_lengthscale
            coordinates.keep_above(raw, least if raw.shape[-1] == least.numel() else least.amax())
        made = Selections.of(self, parts, coordinates, profile_mean)
        if made is None:
            return None
        spectra = [sines.spectrum(part, basis) for part in parts]
        terms, noise, priors = [*zip(spectra, made.parts, strict=True)], made.noise, made.priors
        mean = self._prior_mean().detach()

        def objective(u: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
            with torch.enable_grad():
                at = u.detach().requires_grad_()
                s2 = (noise @ at).exp().squeeze(-1)
                logs = torch.cat(
                    [each.logs(lengths @ at, scales @ at) for each, (lengths, scales) in terms], -1
                )
            value, (d_s2, _, d_logs), means = self._evidence(s2, mean, logs, profile_mean)
            (gradient,) = torch.autograd.grad([s2, logs], at, [d_s2, d_logs])
            return priors.add(u, value, gradient), gradient, means if profile_mean else None

        return objective
