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
from bo_stream.mathematics.autograd import attach
from bo_stream.mathematics.exact import Array

__all__ = ["alternate", "maximise_in_turn", "repeats_tell"]

ROUNDS = 12
"""Largest number of changes of discrete inputs."""
STARTS, EVALUATIONS = 10, 24
"""Points that a search starts from, and evaluations of their first climb."""
TOLERANCE = 1e-6
"""Promised gain, in standard deviations of the candidates' values, at which a climb ends."""
SPREAD = 512
"""Candidates over the feasible set."""
SCALES = (-3.0, -0.3)
"""Decimal logarithms of the smallest and largest local steps, in widths of the box."""
TYPICAL = 0.2
"""Length over which a function varies, in widths of the box, where it is not known."""
NEGLIGIBLE = 1e-3
"""Noise variance, in variances of the outcomes, below which a repeated evaluation tells nothing."""


@torch.no_grad()
def alternate(
    value: Callable[[Tensor, Tensor], Tensor],
    X: Tensor,
    domain: Domain,
    unit: Tensor,
    evaluations: int,
    tolerance: float,
    of: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Local maxima from feasible points, ``R x d``, and their values, ``R``.

    Args:
        value: Values ``L`` of points ``L x d``, and the functions ``of`` that they are for, ``L``;
            differentiable in continuous inputs.
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
        with torch.enable_grad():
            points = torch.from_numpy(x).to(X).requires_grad_()
            values = value(points, torch.from_numpy(labels).to(X.device))
            (slopes,) = torch.autograd.grad(values.sum(), points)
        return values.numpy(force=True), slopes.numpy(force=True) * free

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


@torch.no_grad()
def maximise_in_turn(
    acquisition: AcquisitionFunction,
    domain: Domain,
    q: int,
    near: Tensor,
    seen: Tensor,
    starts: int = STARTS,
    spread: int = SPREAD,
    unit: Tensor | None = None,
) -> Tensor:
    """Maximisers of an acquisition function, ``q x d``, one after another.

    Points chosen earlier are pending for later ones.

    Args:
        acquisition: Of one point, or of several with pending ones.
        domain: The feasible set.
        q: Number of points.
        near: Good points, about which some candidates are drawn, ``n' x d``.
        seen: Points that are not to be repeated, ``n x d``.
        starts: Points that a search starts from.
        spread: Candidates over the feasible set; half as many are about good points.
        unit: Lengths over which it varies, the unit of local steps, in widths of the box, ``d``.
    """
    pending = acquisition.X_pending if q > 1 else None
    chosen, lengths = domain.bounds[:0], domain.width * (TYPICAL if unit is None else unit)
    for _ in range(q):
        X = domain.spread(spread)
        if len(near):
            X = torch.cat([X, _about(domain, near.to(X), unit, spread // 2)])
        value, f = _evaluated(acquisition, domain.bounds.to(near), X)
        first, tolerance = X[_starts(f, spread, starts)], TOLERANCE * float(f.std().nan_to_num(0.0))
        found, reached = alternate(value, first, domain, lengths, EVALUATIONS, tolerance)
        order = torch.cat([reached, f]).argsort(descending=True, stable=True)
        X = torch.cat([found, X])[order]
        new = ~domain.repeats(X, torch.cat([seen.to(chosen), chosen]))
        X = X[new] if bool(new.any()) else X
        chosen = torch.cat([chosen, X[:1]])
        if len(chosen) < q:
            parts = [chosen.to(near)] if pending is None else [pending, chosen.to(near)]
            acquisition.set_X_pending(torch.cat(parts))
    return chosen.to(near)


def _evaluated(
    acquisition: AcquisitionFunction, bounds: Tensor, X: Tensor
) -> tuple[Callable[[Tensor, Tensor], Tensor], Tensor]:
    """What `alternate` maximises, and about its values at candidates."""
    search = search_of(acquisition, bounds, 1)
    if search is not None:
        scores = torch.from_numpy(search.scored(X.numpy(force=True))[0]).to(X)
        best = X[scores.argmax()].unsqueeze(0)
        own = float(search.of_all(best.numpy(force=True))[0][0])
        if value_of(acquisition, search, best.to(bounds), own) is not None:

            def of_moments(X: Tensor, of: Tensor) -> Tensor:
                f, slopes = map(torch.from_numpy, search.of_one(X.numpy(force=True)))
                return attach(f.unsqueeze(-1).to(X), [X], [slopes.to(X)]).squeeze(-1)

            return of_moments, scores

    def value(X: Tensor, of: Tensor) -> Tensor:
        flat: Tensor = acquisition(X.unsqueeze(-2).to(bounds))
        return flat.to(X)

    return value, value(X, X)


def _about(domain: Domain, near: Tensor, unit: Tensor | None, count: int) -> Tensor:
    """Steps of many sizes from good points, in some inputs."""
    X = near[torch.randint(len(near), (count,))]
    low, high = SCALES
    sd = 10.0 ** (low + (high - low) * torch.rand(count, 1).to(X))
    return domain.perturbed(X, sd if unit is None else sd * unit, max(0.4, 2.0 / domain.dim))


def _starts(values: Tensor, spread: int, count: int) -> Tensor:
    """Rows to start from: the best over the set and about good points, and others by chance."""
    best = [int(values[:spread].argmax())]
    if len(values) > spread:
        best.append(spread + int(values[spread:].argmax()))
    z = (values - values.mean()) / values.std().clamp_min(1e-300)
    weights = z.nan_to_num(0.0).exp()
    weights[best] = 0.0
    others = min(count, len(values)) - len(best)
    first = torch.tensor(best, device=values.device)
    return torch.cat([first, torch.multinomial(weights, others)]) if others > 0 else first[:count]


def repeats_tell(model: Model, domain: Domain) -> bool:
    """Whether a point may be evaluated again: under noise, where all inputs are discrete.

    With a continuous input, a point close by tells as much.
    """
    noise = getattr(getattr(model, "likelihood", None), "noise", None)
    exact = noise is not None and float(noise.detach().max()) < NEGLIGIBLE
    return not exact and not bool(domain.continuous.any())
