"""A warp that compresses bad outcomes, and its fit [MATHS 13.1].

For outcomes y to be maximised, with ``top`` the best and ``worst`` the worst of them::

    r = (top - y) / scale,   h = log(1 + r),   w = (centre - h) / spread

Above ``top`` and below ``worst`` the warp continues as a straight line, so that it maps the whole
line onto itself with a continuous slope, and a prediction beyond the observed outcomes is on their
scale. Because the warp increases, a quantile of w becomes that of y.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from bo_stream.errors import StateError
from bo_stream.mathematics.exact import Array, Evidence, Maximum, Priors, Targets, maximised

__all__ = [
    "EXACT",
    "FLOOR",
    "coefficients",
    "contradicted",
    "evidence_of",
    "fitted",
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
    return Priors(np.array(rows).T, k=1.0, floor=FLOOR)


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
    middle, spread = float(y.mean()), float(y.std()) if size else 1.0
    plain = Targets((y - middle) / spread, (0.0, middle, spread), -len(y) * math.log(spread))
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
        units, by_scale = (size * c, 0.0, 1.0), drift / -spread - w * wider
        return Targets(w, units, log_slope, by_scale, -n - drifted - n * wider)

    return targets


def fitted(
    X: Array,
    y: Array,
    memory: Array,
    *,
    learned: bool,
    warp: bool,
    most: int | None,
    cat_dims: tuple[int, ...] = (),
) -> tuple[Evidence, Maximum, Array]:
    """The parameters of the highest evidence, warm.

    Args:
        X: ``n x d``, n >= 2.
        y: ``n``, to be maximised.
        memory: What the last fit left: the number of fits, the place of the evidence chosen, and
            the parameters with and without warp; empty before the first.
        learned: Whether the noise is learned.
        warp: Whether outcomes may be warped.
        most: Largest number of evaluations; None for no limit.
        cat_dims: Indices of categories.

    Returns:
        The evidence, its maximum, and the memory for the next fit. Equal outcomes determine
        nothing: the parameters are the centre of the priors.

    Raises:
        StateError, torch.linalg.LinAlgError: if the evidence is not finite.
    """
    size = unit(y)
    evidences = [
        evidence_of(X, y, size, learned=learned, warp=kind, cat_dims=cat_dims)
        for kind in ([True, False] if warp and size else [False])
    ]
    thetas, chosen, fits = [each.priors.centre for each in evidences], 0, 0
    if not size:
        found, memory = Maximum(thetas[0], evidences[0](thetas[0])[0], 1, True), np.empty(0)
    else:
        if len(memory) == 2 + sum(map(len, thetas)):
            fits, chosen = int(memory[0]), int(memory[1])
            thetas = np.split(memory[2:], [len(thetas[0])])[: len(evidences)]
        found, chosen = _search(evidences, thetas, chosen, fits, learned, most)
        memory = np.concatenate([[fits + 1.0, chosen], *thetas])
    if not math.isfinite(found.value):
        raise StateError(
            "outcomes whose evidence is finite",
            f"outcomes from {y.min():.2g} to {y.max():.2g} in the units of the model",
            "Standardize the outcomes, or drop those that stand for failures.",
        )
    return evidences[chosen], found, memory


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
    compared = fits % COMPARED == 0
    if learned and compared:
        starts += [np.concatenate([centre[:d], [tau], centre[d + 1 :]]) for tau in (HIGH, LOW)]
    found = maximised(evidences[now], evidences[now].priors.bounds, starts, most, **ASCENT)
    thetas[now] = found.theta
    left = None if most is None else most - found.evaluations
    if len(evidences) == 1 or not compared or left == 0:
        return found, now
    other, shared = 1 - now, d + learned
    starts = [np.append(found.theta[:shared], thetas[other][shared:])]
    starts += [thetas[other]] if fits else []
    rival = maximised(evidences[other], evidences[other].priors.bounds, starts, left, **ASCENT)
    thetas[other] = rival.theta
    both = (found, rival) if now == 0 else (rival, found)
    quiet = evidences[0].noise_at(both[0].theta) < QUIET
    chosen = 0 if quiet and both[0].value > both[1].value else 1
    return both[chosen]._replace(evaluations=found.evaluations + rival.evaluations), chosen
