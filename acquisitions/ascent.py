"""Maximising over continuous and discrete inputs, inside constraints.

Continuous inputs climb while discrete ones are held; then single discrete inputs change where that
is better; both in turn, for many points at once, as in [Daulton2022]. Every point stays feasible,
and none ever gets worse.

References:
    [Daulton2022] S. Daulton, X. Wan, D. Eriksson, M. Balandat, M. A. Osborne, E. Bakshy. Bayesian
        Optimization over Discrete and Mixed Spaces via Probabilistic Reparameterization. NeurIPS
        2022, appendix on alternating optimisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from acquisitions.climb import Bounded, climb
from acquisitions.domain import Domain
from acquisitions.optimize import search_of, value_of
from acquisitions.search import Search, apart
from bo_stream.mathematics.exact import Array

__all__ = [
    "Surface",
    "alternate",
    "by_autograd",
    "maximise_in_turn",
    "of_acquisition",
    "of_moments",
    "repeats_tell",
]

ROUNDS = 12
"""Largest number of changes of discrete inputs."""
STARTS, EVALUATIONS = 10, 24
"""Points that a search starts from, and evaluations of their first climb."""
TOLERANCE = 1e-5
"""Promised gain, in differences of values that count, at which a climb ends."""
SHORTLIST = 128
"""Number of the best candidates that it starts from, those first that are apart from each other."""
SPREAD = 512
"""Candidates over the feasible set."""
SCALES = (-3.0, -0.3)
"""Decimal logarithms of the smallest and largest local steps, in widths of the box."""
TYPICAL = 0.2
"""Length over which a function varies, in widths of the box, where it is not known."""
NEGLIGIBLE = 1e-3
"""Noise variance, in variances of the outcomes, below which a repeated evaluation tells nothing."""


Values = Callable[[Tensor, Tensor], Tensor]
"""Values ``L`` of points ``L x d``, and the functions that they are for, ``L``."""
Slopes = Callable[[Array, np.ndarray], tuple[Array, Array]]
"""Values ``L`` and gradients ``L x d`` likewise, in numpy."""


def by_autograd(value: Values, like: Tensor) -> Slopes:
    """Gradients of differentiable values, for points of a dtype and device."""

    def slopes(x: Array, of: np.ndarray) -> tuple[Array, Array]:
        with torch.enable_grad():
            points = torch.from_numpy(x).to(like).requires_grad_()
            values = value(points, torch.from_numpy(of).to(like.device))
            (rates,) = torch.autograd.grad(values.sum(), points)
        return values.numpy(force=True), rates.numpy(force=True)

    return slopes


@torch.no_grad()
def alternate(
    value: Values,
    slopes: Slopes,
    X: Tensor,
    domain: Domain,
    unit: Tensor,
    evaluations: int,
    tolerance: float,
    of: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Local maxima from feasible points, ``R x d``, and their values, ``R``.

    Args:
        value: Values of several functions.
        slopes: These and gradients, of which those in continuous inputs are used.
        X: Where to start.
        domain: The feasible set.
        unit: Lengths over which functions vary, ``d``.
        evaluations: Evaluations of values and gradients in the first climb; later ones have half.
        tolerance: Promised gain at which a climb ends.
        of: The function that each point climbs, if there are several: ``R`` numbers in order.
            Points whose function climbs higher from others are given up.
    """
    of = torch.zeros(len(X), dtype=torch.long, device=X.device) if of is None else of
    within = Bounded(*domain.bounds.numpy(force=True))
    if domain.is_constrained:
        within = _Inside(within.low, within.high, domain)
    lengths, free = unit.numpy(force=True), domain.continuous.numpy(force=True)

    def function(x: Array, labels: np.ndarray) -> tuple[Array, Array]:
        values, rates = slopes(x, labels)
        return values, rates * free

    def climbed(start: Tensor, of: Tensor, most: int) -> tuple[Tensor, Tensor]:
        if not bool(domain.continuous.any()):
            return start.clone(), value(start, of)
        x, labels = start.numpy(force=True), of.numpy(force=True)
        x, f = climb(function, x, within, lengths, most, tolerance, of=labels)
        return torch.from_numpy(x).to(X), torch.from_numpy(f).to(X)

    X, f = climbed(X, of, evaluations)
    rows = torch.arange(len(X), device=X.device)
    for _ in range(ROUNDS if domain.choices else 0):
        N = domain.neighbours(X[rows])
        values = value(N.flatten(0, 1), of[rows].repeat_interleave(N.shape[1]))
        best, place = values.view(len(rows), -1).max(-1)
        better = best > f[rows] + 1e-9 * f[rows].abs()
        rows = rows[better]
        if not len(rows):
            break
        X[rows], f[rows] = climbed(N[better, place[better]], of[rows], evaluations // 2)
    return X, f


@dataclass(frozen=True)
class _Inside(Bounded):
    """Steps that end at the constraints of a domain, or slide along them."""

    domain: Domain

    def along(self, X: Array, P: Array) -> Array:
        return self._moved(self.domain.along, X, P)

    def stepped(self, X: Array, P: Array) -> Array:
        return self._moved(self.domain.stepped, X, P)

    def _moved(self, move: Callable[[Tensor, Tensor], Tensor], X: Array, P: Array) -> Array:
        x, p = (torch.from_numpy(part).to(self.domain.bounds) for part in (X, P))
        moved: Array = move(x, p).numpy(force=True)
        return moved


@dataclass(frozen=True)
class Surface:
    """A function to be maximised.

    Attributes:
        value, slopes: As `alternate` takes them.
        scores: About its values at candidates, ``n``.
        unit: A difference of values that counts.
    """

    value: Values
    slopes: Slopes
    scores: Tensor
    unit: float


@torch.no_grad()
def maximise_in_turn(
    surface: Callable[[Tensor, Tensor], Surface],
    domain: Domain,
    q: int,
    near: Tensor,
    seen: Tensor,
    starts: int = STARTS,
    spread: int = SPREAD,
    unit: Tensor | None = None,
) -> Tensor:
    """Maximisers, ``q x d``, one after another.

    Args:
        surface: What is maximised, from candidates ``n x d`` and the points chosen before.
        domain: The feasible set.
        q: Number of points.
        near: Good points, about which some candidates are drawn, ``n' x d``.
        seen: Points that are not to be repeated, ``n x d``.
        starts: Points that a search starts from.
        spread: Candidates over the feasible set; half as many are about good points.
        unit: Lengths over which it varies, the unit of local steps, in widths of the box, ``d``.
    """
    chosen, lengths = domain.bounds[:0], domain.width * (TYPICAL if unit is None else unit)
    for _ in range(q):
        X = domain.spread(spread)
        if len(near):
            X = torch.cat([X, _about(domain, near.to(X), unit, spread // 2)])
        at = surface(X, chosen)
        best = at.scores.topk(min(SHORTLIST, len(X)))
        Z, scores = (t.numpy(force=True) for t in (X[best.indices] / lengths, best.values))
        first, tolerance = X[best.indices[apart(Z, scores, starts)]], TOLERANCE * at.unit
        climbs = lengths, EVALUATIONS, tolerance
        found, reached = alternate(at.value, at.slopes, first, domain, *climbs)
        order = torch.cat([reached, at.scores]).argsort(descending=True, stable=True)
        X, known = torch.cat([found, X])[order], torch.cat([seen.to(chosen), chosen])
        new = (part[~domain.near(part, known)] for part in X.split(starts))
        chosen = torch.cat([chosen, next(filter(len, new), X)[:1]])
    return chosen


def of_moments(search: Search, X: Tensor) -> Surface:
    """What a search maximises, with its values at candidates ``n x d``."""

    def slopes(x: Array, of: np.ndarray) -> tuple[Array, Array]:
        return search.of_one(x)

    def value(X: Tensor, of: Tensor) -> Tensor:
        return torch.from_numpy(search.of_one(X.numpy(force=True))[0]).to(X)

    scores = torch.from_numpy(search.scored(X.numpy(force=True))[0]).to(X)
    unit = 1.0 if search.target.criterion.logarithmic else _sd(scores)
    return Surface(value, slopes, scores, unit)


def of_acquisition(
    acquisition: AcquisitionFunction, bounds: Tensor, running: Tensor, X: Tensor, chosen: Tensor
) -> Surface:
    """That of an acquisition function: points chosen before are pending, as running ones are.

    Args:
        acquisition: Of one point, or of several with pending ones.
        bounds: ``2 x d`` in the dtype of the surrogate.
        running: Its pending points, ``n' x d``.
        X: Candidates.
        chosen: Points chosen before.
    """
    if len(chosen):
        acquisition.set_X_pending(torch.cat([running, chosen.to(running)]))
    search = search_of(acquisition, bounds, 1)
    if search is not None:
        found = of_moments(search, X)
        best = X[found.scores.argmax()].unsqueeze(0)
        own = float(search.of_all(best.numpy(force=True))[0][0])
        if value_of(acquisition, search, best.to(bounds), own) is not None:
            return found

    def value(X: Tensor, of: Tensor) -> Tensor:
        flat: Tensor = acquisition(X.unsqueeze(-2).to(bounds))
        return flat.to(X)

    scores = value(X, X)
    return Surface(value, by_autograd(value, X), scores, _sd(scores))


def _sd(scores: Tensor) -> float:
    return float(scores.std().nan_to_num(0.0))


def _about(domain: Domain, near: Tensor, unit: Tensor | None, count: int) -> Tensor:
    """Steps of many sizes from good points, in some inputs."""
    X = near[torch.randint(len(near), (count,))]
    low, high = SCALES
    sd = 10.0 ** (low + (high - low) * torch.rand(count, 1).to(X))
    return domain.perturbed(X, sd if unit is None else sd * unit, max(0.4, 2.0 / domain.dim))


def repeats_tell(model: Model, domain: Domain) -> bool:
    """Whether a point may be evaluated again: under noise, where all inputs are discrete.

    With a continuous input, a point close by tells as much.
    """
    noise = getattr(getattr(model, "likelihood", None), "noise", None)
    exact = noise is not None and float(noise.detach().max()) < NEGLIGIBLE
    return not exact and not bool(domain.continuous.any())
