"""HSGP: a Gaussian process of constant size on sine features, for smooth functions of many inputs.

[Solin] Solin, Särkkä 2020, Hilbert Space Methods for Reduced-Rank Gaussian Process Regression. The
state is a set of sums over the features (MATHS 2.2, 2.9): additive, so any order and batching give
the same surrogate and two streams can be merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, Unpack, cast

import torch
from torch import Tensor

from bo_stream.base import additive
from bo_stream.base.feature_selection import all_buffered, check_buffered, fit_and_select, select
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.options import CommonOptions, whole_number
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.errors import BoundsError
from bo_stream.mathematics.hilbert_features.basis import Basis
from bo_stream.mathematics.hilbert_features.density import (
    checked_lengthscales,
    lengthscales_of,
    log_density,
)
from bo_stream.mathematics.hilbert_features.evidence import hilbert_evidence
from bo_stream.mathematics.hilbert_features.state import HilbertState
from bo_stream.mathematics.posterior.features import FeatureProcess
from bo_stream.mathematics.posterior.process import PosteriorProcess
from bo_stream.mathematics.sufficient_statistics.evidence import Factorisation

__all__ = ["HSGP"]

MOVED = 0.2
"""Change of a lengthscale's logarithm from which a fit chooses the features anew."""


class HSGP(StreamingGP):
    """Gaussian process on products of sines over a box around the bounds, with constant-size state.

    Exact inference for its own prior, whose covariance is ``sum_j lambda_j phi_j(x) phi_j(z)`` over
    the features. That is close to the kernel's where the features reach its frequencies: functions
    smooth in up to about 8 inputs. It differs from the kernel's prior (and so from the exact GP) in
    three ways. Frequencies beyond the features' are missing, so that short lengthscales in many
    inputs are smoothed over. The walls of the box, where every function is zero, pull the prior
    variance down near the bounds. And a lengthscale of more than about one width of the bounds
    lowers the prior variance throughout, for which a fitted output scale makes up.

    The features are chosen for given lengthscales: for the kernel's, when the first points come;
    then for those that `fit` finds, if the data have doubled since the last choice; and whenever
    `choose_features` is called. Choosing anew needs all points seen, and the first ``opening``
    points are held for it. Once there are more, the features stay what they are, as they do from
    the start where ``lengthscales`` are given; so `fit` early, on at most ``opening`` points. After
    the first points `observe` does not change the features: the order and the batches in which
    points come do not matter. Features and held points are saved with the state. Two streams merge
    if their features are the same, or if one of them still holds all its points.

    With m features: memory O(m^2), `observe` of q points O(q m^2), a point of the posterior O(m^2),
    evidence and gradient O(m^3); nothing depends on n. Outputs share the features, chosen for the
    geometric mean of their lengthscales.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances, or None to learn the noise.
        num_features: Number of features, for all outputs.
        opening: Number of first points that are held.
        lengthscales: Lengthscales of the transformed inputs (one each) to choose the features for,
            once and for all; nothing is held then. For streams on several machines.
        common: ``bounds`` (needed), ``covar_module`` (an RBF or Matern kernel, scaled or not),
            ``mean_module``, ``likelihood``, ``input_transform``, ``outcome_transform``: see
            `CommonOptions`.

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
    _remedy = "Build it anew with `lengthscales`, or with a larger `opening`."

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        num_features: int = 512,
        opening: int = 4096,
        lengthscales: Sequence[float] | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        if common.get("bounds") is None:
            raise BoundsError("bounds `2 x d`", "none", "Give the raw bounds of the problem.")
        super().__init__(train_X, train_Y, train_Yvar, **common)
        self.num_features = whole_number("num_features", num_features, 1)
        self.opening = whole_number("opening", opening, 0)
        self.lengthscales = checked_lengthscales(lengthscales, self._dim)
        self._update_limit = num_features // 4
        image = self._transformed(cast(Tensor, self.bounds))
        self._box = torch.stack([image.amin(0), image.amax(0)]).tolist()
        self._begin(train_X, train_Y, train_Yvar)

    # -- features --------------------------------------------------------------------------------

    def choose_features(self) -> Self:
        """Select features for the kernel's present lengthscales. O(n m^2).

        Raises:
            StateError: if more points were seen than are held, or features were given once and for
                all.
        """
        remedy = "Build it anew with a larger `opening`, or without `lengthscales`."
        check_buffered(self, self._can_select(), remedy)
        select(self, self._suited_features())
        return self

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit the hyperparameters, warm-started, and the features to them while that is possible.

        A selection of features takes no evaluation; where none are left after it, the report has
        the value under the features of before. Interrupted, it leaves the best hyperparameters seen
        under the features in use at that point.

        Args:
            max_evals: Most objective-and-gradient evaluations; None: until the gain falls below
                0.01 nat.
        """
        return fit_and_select(self, super().fit, max_evals)

    @property
    def feature_lengthscales(self) -> Tensor:
        """The lengthscales (of transformed inputs) that the features were chosen for, ``d``."""
        return cast(HilbertState, self.state).basis.lengthscales.clone()

    def _can_select(self) -> bool:
        """Whether other features can be selected."""
        return self.lengthscales is None and all_buffered(self)

    def _features_outdated(self) -> bool:
        """Whether lengthscales have moved far from those that the features were chosen for."""
        moved = (self._lengthscales() / self.feature_lengthscales).log().abs()
        return float(moved.max()) > MOVED

    def _suited_features(self) -> Basis:
        """The features for the lengthscales given, or else for those of the kernel."""
        given, like = self.lengthscales, self._like
        lengthscales = self._lengthscales() if given is None else like.new_tensor(given)
        low, high = like.new_tensor(self._box)
        return Basis.choose(lengthscales, low, high - low, self.num_features)

    def _lengthscales(self) -> Tensor:
        """The kernel's lengthscales, geometric means over outputs, ``d``."""
        each = lengthscales_of(self.covar_module, self._dim, self.num_outputs).detach()
        return each.log().mean(0).exp()

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "box": self._box, "features": self.num_features}

    def _sizes(self) -> dict[str, int]:
        held = 0 if self.lengthscales is not None else self.opening
        return {**super()._sizes(), "m": self.num_features + 1, "f": self.num_features, "w": held}

    def _empty_state(self) -> HilbertState:
        shared = self.noise_mode == "learned"
        return HilbertState.on(
            self._suited_features(), self.num_outputs, shared, self._sizes()["w"]
        )

    def _absorb(
        self, state: HilbertState, X: Tensor, Y: Tensor, R: Tensor, *, exact: bool
    ) -> HilbertState:
        """A += W'R^-1 W, b += W'R^-1 y, yy += y'R^-1 y, ld += sum log r (MATHS 2.2)."""
        additive.check_noise(self, X, R)
        if not (exact or self.num_observed):
            state = state.resummed(self._suited_features(), 0)
        return state.absorb_at(X, Y, R, self._undo, self.num_observed)

    def _update_process(
        self, process: PosteriorProcess, X: Tensor, Y: Tensor, R: Tensor
    ) -> PosteriorProcess | None:
        """Fold the data into the posterior of the coefficients: O(q m^2)."""
        return additive.updated(process, X, Y, self._noise_scale().unsqueeze(-1) * R)

    # -- posterior and objective -----------------------------------------------------------------

    def _build_process(self, state: HilbertState) -> FeatureProcess:
        with torch.no_grad():
            made = self._evidence(state, profile_mean=False)[1]
        u = torch.stack([f.root.left(f.q.unsqueeze(-1))[:-1, 0] for f in made])
        S = torch.stack([f.root.lift(f.Q_inv)[:-1, :-1] for f in made])
        return FeatureProcess(state.basis, self._prior_mean().detach().clone(), u, S)

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence with closed-form gradients (MATHS 2.3, 2.4, 2.9)."""
        state = cast(HilbertState, self.state)
        total, made = self._evidence(state, profile_mean)
        return total, torch.stack([f.mean for f in made]) + state.origin if profile_mean else None

    def _evidence(
        self, state: HilbertState, profile_mean: bool
    ) -> tuple[Tensor, list[Factorisation]]:
        basis = state.basis
        logs = log_density(self.covar_module, basis.frequencies(), self.num_outputs)
        logs = logs - basis.width.log().sum()
        c = self._prior_mean() - state.origin
        return hilbert_evidence(state, logs, self._noise_scale(), c, profile_mean)
