"""Maximisers of polynomials fitted to noisy values about a point (MATHS 12.4).

A Gaussian process resolves all that its kernel allows. Near the optimum of a smooth function that
is more than the function needs, and the slope has the error of many coefficients. A polynomial of
second or fourth degree over a wide window has few. Window and degree follow from the data
[Lepski1997]: a fit is dismissed if one of less bias, of a smaller window and no lower degree, finds
its maximiser significantly lower than its own.

References:
    [Lepski1997] O. V. Lepski, E. Mammen, V. G. Spokoiny. Optimal spatial adaptation to
        inhomogeneous smoothness. Annals of Statistics 25, 1997.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement

import torch
from torch import Tensor

__all__ = ["Peak", "peaks"]

DEGREES = (2, 4)
WINDOWS = tuple(0.4 * 2.0 ** (-0.5 * k) for k in range(9))
"""Radii of the windows."""
MOST_COEFFICIENTS, LEAST = 100, 20
"""Largest number of coefficients, and number of values that a fit needs for each."""
MOST_VALUES = 100_000
"""Number of values from which on some of them are left out."""
WITHIN = 0.7
"""Share of a window's radius within which a maximiser must be."""
SIGMAS = 2.0
"""Standard errors from which on a difference is significant."""
STEPS, LONGEST, SPREAD = 12, 0.2, 512
"""Newton steps, their largest length in radii, and points from the best of which they start."""


@dataclass(frozen=True)
class Peak:
    """The maximiser of a fitted polynomial.

    Attributes:
        x: The point, ``d``.
        loss: Expected loss of value, by the error of the slope there.
        degree: Degree of the polynomial.
        radius: Radius of the window.
        lost: What the polynomial loses from its maximiser to another point ``d``, and the standard
            error of that.
    """

    x: Tensor
    loss: float
    degree: int
    radius: float
    lost: Callable[[Tensor], tuple[float, float]]


def peaks(X: Tensor, y: Tensor, centre: Tensor) -> list[Peak]:
    """Maximisers that no fit of less bias contradicts, the one of least expected loss first.

    O(n p^2) for each window and degree, for p coefficients.

    Args:
        X: Points in the unit cube, ``n x d``.
        y: Noisy values, ``n``.
        centre: The point about which they are fitted, ``d``.
    """
    some = slice(None, None, -(-len(y) // MOST_VALUES))
    D, y = X[some] - centre, y[some]
    found = []
    for radius in WINDOWS:
        inside = D.norm(dim=-1) < radius
        D, y = D[inside], y[inside]
        made = (_fitted(D, y, centre, radius, degree) for degree in DEGREES)
        found += [peak for peak in made if peak is not None]
    kept = [peak for peak in found if not any(_contradicts(other, peak) for other in found)]
    return sorted(kept, key=lambda peak: peak.loss)


def _contradicts(other: Peak, peak: Peak) -> bool:
    """Whether a fit of less bias finds another's maximiser significantly lower than its own."""
    if other is peak or other.radius > peak.radius or other.degree < peak.degree:
        return False
    loss, error = other.lost(peak.x)
    return loss > SIGMAS * error


def _fitted(D: Tensor, y: Tensor, centre: Tensor, radius: float, degree: int) -> Peak | None:
    """The maximiser of a fit to values at ``centre + D``; None without one inside the window."""
    powers = _powers(D.shape[-1], degree).to(D.device)
    n, p = len(y), len(powers)
    if p > MOST_COEFFICIENTS or n < LEAST * p:
        return None
    scale = y.std() + 1e-300
    targets = (y - y.mean()) / scale
    rows, weights = _monomials(D / radius, powers), 1.0 - (D / radius).square().sum(-1)
    A = rows.mT @ (weights.unsqueeze(-1) * rows)
    inverse = torch.linalg.inv(A + 1e-9 * A.diagonal().mean() * torch.eye(p).to(A))
    coefficients = inverse @ (rows.mT @ (weights * targets))
    residuals = weights * (targets - rows @ coefficients)
    spread = rows.mT @ (residuals.square().unsqueeze(-1) * rows)
    covariance = inverse @ spread @ inverse * (n / (n - p))
    z = _maximiser(coefficients, powers)
    sizes, V = torch.linalg.eigh(_curvature(z, powers, coefficients))
    if not (float(z.norm()) <= WITHIN and float(sizes.max()) < 0.0):
        return None
    slopes = V.mT @ _slopes(z, powers)
    loss = -0.5 * ((slopes @ covariance * slopes).sum(-1) / sizes).sum() * scale

    def lost(x: Tensor) -> tuple[float, float]:
        other = (x - centre) / radius
        other = other / other.norm().clamp_min(1.0)
        apart = _monomials(z.unsqueeze(0), powers)[0] - _monomials(other.unsqueeze(0), powers)[0]
        return float(apart @ coefficients), float(apart @ covariance @ apart) ** 0.5

    return Peak(centre + radius * z, float(loss), degree, radius, lost)


def _maximiser(coefficients: Tensor, powers: Tensor) -> Tensor:
    """The maximiser within the unit ball, or a point outside on the way to one there."""
    d = powers.shape[-1]
    U = torch.quasirandom.SobolEngine(d, scramble=True, seed=0).draw(SPREAD, dtype=torch.float64)
    Z = 2.0 * U.to(coefficients) - 1.0
    Z = torch.cat([Z.new_zeros(1, d), Z[Z.norm(dim=-1) <= 1.0]])
    z = Z[(_monomials(Z, powers) @ coefficients).argmax()]
    for _ in range(STEPS):
        sizes, V = torch.linalg.eigh(_curvature(z, powers, coefficients))
        across = V.mT @ (_slopes(z, powers) @ coefficients) / sizes.abs().clamp_min(1e-300)
        step = V @ across
        z = z + step * (LONGEST / step.norm().clamp_min(LONGEST))
        if float(z.norm()) > 1.0:
            break
    return z


@cache
def _powers(d: int, degree: int) -> Tensor:
    """Exponents of the monomials, ``p x d``, the constant first."""
    rows = []
    for total in range(degree + 1):
        for chosen in combinations_with_replacement(range(d), total):
            rows.append([chosen.count(k) for k in range(d)])
    return torch.tensor(rows)


def _monomials(Z: Tensor, powers: Tensor) -> Tensor:
    """``n x p``."""
    table = torch.stack([Z**k for k in range(int(powers.max()) + 1)])
    product = Z.new_ones(len(Z), len(powers))
    for k, column in enumerate(powers.T):
        product = product * table[column, :, k].mT
    return product


def _lowered(powers: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Factors and exponents of the monomials' derivatives in some inputs, one after another."""
    factors, powers = torch.ones(len(powers), dtype=torch.float64), powers.clone()
    for k in axes:
        factors = factors * powers[:, k]
        powers[:, k] = (powers[:, k] - 1).clamp_min(0)
    return factors, powers


def _slopes(z: Tensor, powers: Tensor) -> Tensor:
    """Derivatives of the monomials, ``d x p``."""
    rows = []
    for k in range(len(z)):
        factors, lower = _lowered(powers, (k,))
        rows.append(factors.to(z) * _monomials(z.unsqueeze(0), lower)[0])
    return torch.stack(rows)


def _curvature(z: Tensor, powers: Tensor, coefficients: Tensor) -> Tensor:
    """The Hessian of the polynomial, ``d x d``."""
    d = len(z)
    H = z.new_zeros(d, d)
    for k in range(d):
        for i in range(k + 1):
            factors, lower = _lowered(powers, (k, i))
            row = factors.to(z) * _monomials(z.unsqueeze(0), lower)[0]
            H[k, i] = H[i, k] = row @ coefficients
    return H
