"""A warp that compresses bad outcomes, its fit, and its posterior in raw units [MATHS 13.1].

For outcomes y to be maximised, with ``top`` the best and ``worst`` the worst of them::

    r = (top - y) / scale,   h = log(1 + r),   w = (centre - h) / spread

Above ``top`` and below ``worst`` the warp continues as a straight line, so that it maps the whole
line onto itself with a continuous slope, and a prediction beyond the observed outcomes is on their
scale. Because the warp increases, a quantile of w becomes that of y.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self, cast

import numpy as np
import torch
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.posterior import Posterior
from botorch.posteriors.transformed import TransformedPosterior
from torch import Tensor

from bo_stream.errors import StateError, UnsupportedError
from bo_stream.mathematics.exact import Array, Evidence, Maximum, Priors, Solved, Targets, maximised

__all__ = [
    "EXACT",
    "FLOOR",
    "OutcomeWarp",
    "WarpFit",
    "WarpedPosterior",
    "coefficients",
    "contradicted",
    "evidence_of",
    "fitted",
    "log_slopes",
    "priors",
    "unit",
    "unwarped",
    "warped",
]

EXACT = 1e-8
"""Relative noise variance of exact evaluations."""
FLOOR = 1e-6
"""Smallest learned noise variance, relative to the process's."""
LENGTHSCALE = (0.0, 1.0, math.log(5e-3), math.log(30.0))
TAU = (-7.0, 3.0, math.log(1e-9), math.log(10.0))
SCALE = (0.0, 2.0, math.log(0.2), math.log(1e3))
"""Mean and deviation under the priors, and bounds, of the logarithms of a lengthscale (in the unit
cube), of noise above the floor, and of the warp's scale over the outcomes' `unit`."""
EQUAL = 1e-12
"""Relative difference up to which outcomes count as equal."""
SAME, DIFFERENT = 9, 1e-6
"""Decimals up to which points, and deviations up to which their outcomes, count as the same."""
ASCENT = {"maxiter": 30, "factr": 1e9, "pgtol": 1e-2}
AFRESH = 2
"""Every so many fits one ascent starts from the centre of the priors."""
COMPARED = 5
"""Every so many fits the evidences with and without the warp are compared and, where noise is
learned, two ascents start from high and from low noise."""
HIGH, LOW = math.log(0.3), math.log(1e-6)
QUIET = 1e-3
"""Largest relative noise variance under which outcomes are warped: the warp magnifies noise near
the best outcomes, and cost a third of the regret at the noise of published studies."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(48)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def warped(y: Tensor, about: Tensor) -> Tensor:
    """Warp outcomes of any shape by their `coefficients`."""
    top, scale, centre, spread, worst = about.unbind()
    r, most = (top - y) / scale, (top - worst) / scale
    h = r.clamp(torch.zeros_like(most), most).log1p()
    h = torch.where(r > most, most.log1p() + (r - most) / (1.0 + most), h)
    return (centre - torch.where(r > 0.0, h, r)) / spread


def unwarped(w: Tensor, about: Tensor) -> Tensor:
    """The inverse of `warped`."""
    top, scale, centre, spread, worst = about.unbind()
    h, most = centre - spread * w, (top - worst) / scale
    last = most.log1p()
    r = h.clamp(torch.zeros_like(last), last).expm1()
    r = torch.where(h > last, most + (h - last) * (1.0 + most), r)
    return top - scale * torch.where(h > 0.0, r, h)


def coefficients(y: Tensor, scale: Tensor) -> Tensor:
    """``top, scale, centre, spread, worst`` for outcomes ``n``, n >= 1, and a scale (0-dim).

    Warped outcomes have mean 0 and deviation 1, unless all are equal.
    """
    top, worst = y.max(), y.min()
    h = ((top - y) / scale).log1p()
    spread = h.std(correction=0)
    spread = torch.where(spread > 0.0, spread, torch.ones_like(spread))
    return torch.stack([top, scale, h.mean(), spread, worst])


def log_slopes(y: Tensor, about: Tensor) -> Tensor:
    """Sum of the logarithms of the warp's slopes at outcomes, 0-dim."""
    top, scale, _, spread, worst = about.unbind()
    r = ((top - y) / scale).clamp(torch.zeros_like(top), (top - worst) / scale)
    return -(r.log1p() + (scale * spread).log()).sum()


# -- fits ----------------------------------------------------------------------------------------


def unit(y: Array) -> float:
    """From the best of ``n >= 1`` outcomes to the median of their distinct values; 0 if all are
    equal.

    However many outcomes are tied, and whether at the best, at the worst or between, it is of the
    size of the differences between outcomes.
    """
    falling = np.sort(y)[::-1]
    top, middle = falling[0], falling[len(y) // 2]
    apart = -np.diff(falling) > EQUAL * (abs(top) + abs(middle))
    return float(top - np.median(falling[np.append(True, apart)]))


def contradicted(X: Array, y: Array) -> bool:
    """Whether outcomes ``n`` differ at one of the points ``n x d``, n >= 1: they are not exact."""
    _, place = np.unique(X.round(SAME), axis=0, return_inverse=True)
    order = np.lexsort((y, place.ravel()))
    steps = np.diff(y[order])[np.diff(place.ravel()[order]) == 0]
    return bool((steps > DIFFERENT * y.std()).any())


def priors(dim: int, *, learned: bool = False, warp: bool = False) -> Priors:
    """Of ``dim`` lengthscales and, if they are parameters, of noise and warp."""
    rows = [LENGTHSCALE] * dim + [TAU] * learned + [SCALE] * warp
    return Priors.of(rows, k=1.0, floor=FLOOR)


def evidence_of(
    X: Array,
    y: Array,
    size: float,
    *,
    learned: bool,
    warp: bool,
    cat_dims: tuple[int, ...] = (),
) -> Evidence:
    """The evidence of outcomes ``n`` at points ``n x d``, n >= 2.

    Args:
        X: Points.
        y: Outcomes, to be maximised.
        size: Their `unit`.
        learned: Whether the noise is learned; else evaluations are exact.
        warp: Whether outcomes are warped; else they are standardised.
        cat_dims: Indices of categories.
    """
    spread = float(y.std()) if size else 1.0
    plain = Targets((y - y.mean()) / spread, -len(y) * math.log(spread))
    targets = _under_a_warp(y, size) if warp else plain
    own = priors(X.shape[1], learned=learned, warp=warp)
    return Evidence(X - X.mean(0), targets, own, None if learned else EXACT, cat_dims)


def _under_a_warp(y: Array, size: float) -> Callable[[float], Targets]:
    """Standardised warped outcomes as a function of the log scale over ``size``."""
    r, n, ones = (y.max() - y) / size, len(y), np.ones(len(y))

    def targets(log_c: float) -> Targets:
        c = math.exp(log_c)
        h, t = np.log1p(r / c), -r / (r + c)  # t = dh / d log c
        total, drifted = float(ones @ h), float(ones @ t)
        at, drift = h - total / n, t - drifted / n
        spread = math.sqrt(float(at @ at) / n) + 1e-100  # its square is no zero
        w = at / -spread
        wider = float(at @ drift) / (n * spread * spread)  # d log spread / d log c
        log_slope = -total - n * (log_c + math.log(spread) + math.log(size))
        return Targets(w, log_slope, drift / -spread - w * wider, -n - drifted - n * wider)

    return targets


@dataclass(frozen=True)
class WarpFit:
    """Hyperparameters of the highest evidence.

    Attributes:
        lengthscales: ``d``.
        noise: Variance relative to the process's.
        warp: The warp's scale, zero for none, and the shift and size of the outcomes, in which mean
            and variance have their priors: 0 and 1 under a warp.
        solved: Mean and variance of the process of warped or standardised outcomes.
        value: Log evidence plus log priors.
        evaluations: Of all ascents.
        converged: Whether the best one ended by its tolerance.
        memory: For the next fit.
    """

    lengthscales: Array
    noise: float
    warp: tuple[float, float, float]
    solved: Solved
    value: float
    evaluations: int
    converged: bool
    memory: Array


def fitted(
    X: Array,
    y: Array,
    memory: Array,
    *,
    learned: bool,
    warp: bool,
    most: int | None,
    cat_dims: tuple[int, ...] = (),
) -> WarpFit:
    """The hyperparameters of the highest evidence, warm.

    Args:
        X: ``n x d``, n >= 2.
        y: ``n``, to be maximised.
        memory: What the last fit left: the number of fits, whether the warp was chosen, and the
            parameters with and without warp; empty before the first.
        learned: Whether the noise is learned.
        warp: Whether outcomes may be warped.
        most: Largest number of evaluations; None for no limit.
        cat_dims: Indices of categories.

    Returns:
        The fit. Equal outcomes determine nothing: the parameters are the centre of the priors.

    Raises:
        StateError, torch.linalg.LinAlgError: if the evidence is not finite.
    """
    size = unit(y)
    kinds = [True, False] if warp and size else [False]
    made = partial(evidence_of, X, y, size, learned=learned, cat_dims=cat_dims)
    evidences = [made(warp=kind) for kind in kinds]
    thetas = [each.priors.centre for each in evidences]
    chosen, fits = 0, 0
    if size and len(memory) == 2 + sum(map(len, thetas)):
        fits, chosen = int(memory[0]), kinds.index(bool(memory[1]))
        thetas = np.split(memory[2:], [len(thetas[0])])[: len(kinds)]
    if size:
        found, chosen = _search(evidences, thetas, chosen, fits, learned, most)
        memory = np.concatenate([[fits + 1.0, float(kinds[chosen])], *thetas])
    else:
        found, memory = Maximum(thetas[0], evidences[0](thetas[0])[0], 1, True), np.empty(0)
    if not math.isfinite(found.value):
        raise StateError(
            "outcomes whose evidence is finite",
            f"outcomes from {y.min():.2g} to {y.max():.2g} in the units of the model",
            "Standardize the outcomes, or drop those that stand for failures.",
        )
    evidence, theta = evidences[chosen], found.theta
    lengthscales, noise = np.exp(theta[: X.shape[1]]), evidence.noise_at(theta)
    about = (0.0, float(y.mean()), float(y.std()) if size else 1.0)
    if kinds[chosen]:
        about = (size * math.exp(theta[-1]), 0.0, 1.0)
    solved = evidence.solved_at(theta)
    return WarpFit(lengthscales, noise, about, solved, *found[1:], memory)


def _search(
    evidences: list[Evidence],
    thetas: list[Array],
    now: int,
    fits: int,
    learned: bool,
    most: int | None,
) -> tuple[Maximum, int]:
    """The best maximum and its place among the evidences, with and without warp.

    The parameters of both, from which the ascents start, are replaced by their maxima.
    """
    centre, d = evidences[now].priors.centre, evidences[now].X.shape[1]
    starts = [thetas[now]]
    if fits and fits % AFRESH == 0:
        starts.append(centre)
    if learned and fits % COMPARED == 0:
        starts += [np.concatenate([centre[:d], [tau], centre[d + 1 :]]) for tau in (HIGH, LOW)]
    found = maximised(evidences[now], starts, most, **ASCENT)
    thetas[now] = found.theta
    spent = most is not None and found.evaluations >= most
    if len(evidences) == 1 or fits % COMPARED or spent:
        return found, now
    other, shared = 1 - now, d + learned
    starts = [np.append(found.theta[:shared], thetas[other][shared:])]
    starts += [thetas[other]] if fits else []
    left = None if most is None else most - found.evaluations
    rival = maximised(evidences[other], starts, left, **ASCENT)
    thetas[other] = rival.theta
    both = (found, rival) if now == 0 else (rival, found)
    quiet = evidences[0].noise_at(both[0].theta) < QUIET
    chosen = 0 if quiet and both[0].value > both[1].value else 1
    evaluations = found.evaluations + rival.evaluations
    return both[chosen]._replace(evaluations=evaluations), chosen


# -- posterior -----------------------------------------------------------------------------------


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
        return warped(Y if self.before is None else self.before(Y, X=X)[0], self.about), None

    def untransform(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Raw outcomes from warped ones, of any batch shape."""
        y = unwarped(Y, self.about)
        return (y if self.before is None else self.before.untransform(y, X=X)[0]), None

    def untransform_posterior(self, posterior: Posterior, X: Tensor | None = None) -> Posterior:
        """The posterior of raw outcomes."""
        return WarpedPosterior(posterior, lambda w: self.untransform(w, X=X)[0])

    def subset_output(self, idcs: list[int]) -> Self:
        """The transform itself: there is one output."""
        return self


class WarpedPosterior(TransformedPosterior):
    """The posterior of an increasing function of a Gaussian one, in raw units.

    ``mean`` and ``variance`` are those of the raw outcomes, by Gauss-Hermite quadrature with 48
    nodes: O(48) per entry. ``median`` and `quantile` are exact.

    Args:
        posterior: The Gaussian posterior of one output, ``batch_shape x q x 1``.
        raw: The function, elementwise.
    """

    def __init__(self, posterior: Posterior, raw: Callable[[Tensor], Tensor]) -> None:
        super().__init__(posterior, raw, self._mean_of, self._variance_of)
        self._gaussian, self._raw = posterior, raw

    @property
    def latent(self) -> GPyTorchPosterior:
        """The Gaussian posterior."""
        return cast(GPyTorchPosterior, self._gaussian)

    @property
    def median(self) -> Tensor:
        """The median, ``batch_shape x q x 1``."""
        return self._raw(self.latent.mean)

    def quantile(self, value: Tensor) -> Tensor:
        """Marginal quantiles, ``len(value) x batch_shape x q x 1`` for levels of one dimension."""
        return self._raw(self.latent.quantile(value))

    def _values(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        nodes, weights = (torch.as_tensor(t).to(mean) for t in (_NODES, _WEIGHTS))
        sd = variance.clamp_min(0.0).sqrt()
        shape = (-1, *(1,) * mean.ndim)
        return self._raw(mean + sd * nodes.reshape(shape)), weights.reshape(shape)

    def _mean_of(self, mean: Tensor, variance: Tensor) -> Tensor:
        values, weights = self._values(mean, variance)
        return (values * weights).sum(0)

    def _variance_of(self, mean: Tensor, variance: Tensor) -> Tensor:
        values, weights = self._values(mean, variance)
        return ((values - (values * weights).sum(0)).square() * weights).sum(0)
