"""A recommendation refined by polynomials fitted to the outcomes about it (MATHS 12.4).

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
from functools import cache, reduce
from itertools import combinations_with_replacement

import torch
from botorch.posteriors.gpytorch import GPyTorchPosterior
from torch import Tensor

from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.mathematics.autograd import lasting

__all__ = ["Peak", "peaks", "refined"]

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
APART = 0.02
"""Half the distance, in widths of the box, over which slopes and curvatures are measured."""

SHARE = 0.5
"""Share of the surrogate's expected loss below which a polynomial's must be."""

LOWER = 3.0
"""Standard deviations by which the surrogate must find a polynomial's maximiser lower, to reject
it. It overrates its own maximiser, which was chosen for that: on Zakharov's and Levy's functions,
after 20,000 outcomes, polynomials with a third of its regret were up to 2.6 below."""


@torch.no_grad()
def refined(
    model: GaussianModel, best: Tensor, bounds: Tensor, X: Tensor, y: Tensor
) -> Tensor | None:
    """The maximiser of a polynomial near the best point, if it is known better than that.

    Its expected loss must be less than half of the surrogate's, and the surrogate must not find it
    lower than the best point by more than three standard deviations of the difference. 0.1 s for
    40,000 outcomes of three inputs.

    Args:
        model: The surrogate.
        best: Maximiser of its posterior mean, ``d``.
        bounds: ``2 x d``.
        X: Observed points, ``n x d``.
        y: Their outcomes, ``n``, to be maximised.

    Returns:
        The maximiser, and the radii of the polynomial's window, raw: ``2 x d``. None if no
        polynomial is known better, and for a posterior that is not Gaussian.
    """
    low, width, d = bounds[0], bounds[1] - bounds[0], len(best)
    centre = (best - low) / width
    if not bool(((centre > APART) & (centre < 1.0 - APART)).all()):
        return None
    found = peaks((X - low) / width, y, centre)
    found = [peak for peak in found if bool(((peak.x >= 0.0) & (peak.x <= 1.0)).all())]
    if not found:
        return None
    moves = _moves(d).to(centre)
    unit = torch.cat([centre + APART * moves, torch.stack([peak.x for peak in found])])
    points = (low + width * unit).clamp(*bounds)
    posterior = model.posterior(points)
    if not isinstance(posterior, GPyTorchPosterior):  # of a warped process: of few outcomes
        return None
    mean, covariance = posterior.mean[:, 0], posterior.distribution.covariance_matrix
    around = len(moves)
    loss = _expected_loss(mean[:around], covariance[:around, :around], d)
    for place, peak in enumerate(found, around):
        variance = covariance[0, 0] + covariance[place, place] - 2.0 * covariance[0, place]
        lower = bool(mean[0] - mean[place] > LOWER * variance.clamp_min(0.0).sqrt())
        if peak.loss < SHARE * loss and not lower:
            return torch.stack([points[place], peak.radius * width])
    return None


def _moves(d: int) -> Tensor:
    """No move, one along each input, one back, and one along each two inputs."""
    eye, (i, k) = torch.eye(d), torch.tril_indices(d, d, -1)
    return torch.cat([torch.zeros(1, d), eye, -eye, eye[i] + eye[k]])


def _expected_loss(mean: Tensor, covariance: Tensor, d: int) -> float:
    """What a maximiser loses by the error of the slope, from the posterior at `_moves`."""
    i, k = torch.tril_indices(d, d, -1)
    up, down, both = mean[1:].split([d, d, len(i)])
    H = torch.diag(0.5 * (up + down) - mean[0])
    H[i, k] = both + mean[0] - up[i] - up[k]
    sizes, V = torch.linalg.eigh(H + H.mT)
    half = 0.5 * torch.eye(d).to(mean)
    slope = torch.cat([half.new_zeros(d, 1), half, -half, half.new_zeros(d, len(i))], -1)
    along = (V.mT @ slope @ covariance @ slope.mT @ V).diagonal()
    return float((0.5 * along / sizes.abs().clamp_min(1e-300)).sum())


@dataclass(frozen=True)
class Peak:
    """The maximiser of a fitted polynomial.

    Attributes:
        x: The point, ``d``.
        loss: Expected loss of value, by the error of the slope there.
        degree: Degree of the polynomial.
        radius: Radius of the window.
        lower: Whether the polynomial is significantly lower at a point ``d``.
    """

    x: Tensor
    loss: float
    degree: int
    radius: float
    lower: Callable[[Tensor], bool]

    def contradicts(self, other: Peak) -> bool:
        """Whether another fit of no less bias has a maximiser that is significantly lower here."""
        if other is self or self.radius > other.radius or self.degree < other.degree:
            return False
        return self.lower(other.x)


def peaks(X: Tensor, y: Tensor, centre: Tensor) -> list[Peak]:
    """Maximisers that no fit of less bias contradicts, the one of least expected loss first.

    O(n p^2) for p coefficients; 0.1 s for 40,000 values of three inputs.

    Args:
        X: Points in the unit cube, ``n x d``.
        y: Noisy values, ``n``.
        centre: The point about which they are fitted, ``d``.
    """
    degrees = [k for k in DEGREES if len(_powers(X.shape[-1], k)) <= MOST_COEFFICIENTS]
    some = slice(None, None, -(-len(y) // MOST_VALUES))
    D, y = (X[some] - centre) / WINDOWS[0], y[some]
    r, order = D.norm(dim=-1).sort()
    order = order[r < 1.0]
    if not degrees or len(order) < 2:
        return []
    y, scale = y[order], float(y[order].std()) + 1e-300
    y, found = (y - y.mean()) / scale, list[Peak]()
    powers = _powers(X.shape[-1], degrees[-1]).to(D.device)
    rows = _monomials(D[order], powers)
    for radius in WINDOWS[::-1]:
        size = radius / WINDOWS[0]  # the monomials' unit becomes the radius of the window
        n = int((r < size).sum())
        sums = _sums(rows[:n] * size ** -powers.sum(-1).to(D), r[:n] / size, y[:n])
        for degree in degrees:
            found += _fitted(sums, n, centre, radius, degree, scale)
    kept = [peak for peak in found if not any(other.contradicts(peak) for other in found)]
    return sorted(kept, key=lambda peak: peak.loss)


def _sums(rows: Tensor, r: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Sums over points of products of monomials f and values y with weights ``w = 1 - r^2``: of ``w
    f f'``, ``w^2 f f'``, ``w f y`` and ``w y^2``.
    """
    weights = 1.0 - r.square()
    weighted = weights.unsqueeze(-1) * rows
    return rows.mT @ weighted, weighted.mT @ weighted, y @ weighted, weights @ y.square()


def _fitted(
    sums: tuple[Tensor, ...], n: int, centre: Tensor, radius: float, degree: int, scale: float
) -> list[Peak]:
    """The maximiser of a fit in a window; none without one inside.

    Args:
        sums: Those over the window, with its radius as the unit.
        n: Number of points in it.
        centre: Centre of the window, ``d``.
        radius: Its radius.
        degree: Degree of the polynomial.
        scale: The unit of the values.
    """
    powers = _powers(len(centre), degree).to(centre.device)
    p, derivatives = len(powers), _derivatives(len(centre), degree).to(centre)
    if n < LEAST * p:
        return []
    A, twice, b, left = sums[0][:p, :p], sums[1][:p, :p], sums[2][:p], sums[3]
    inverse = torch.linalg.inv(A + 1e-9 * A.diagonal().mean() * torch.eye(p).to(A))
    coefficients = inverse @ b
    noise = (left - coefficients @ b) / (A[0, 0] - (inverse * twice).sum())
    covariance = noise.clamp_min(0.0) * inverse @ twice @ inverse
    slopes = torch.einsum("kij,j->ki", derivatives, coefficients)
    curvatures = torch.einsum("lij,kj->lki", derivatives, slopes)
    z = _maximiser(coefficients, slopes, curvatures, powers)
    row = _monomials(z, powers)
    sizes, V = torch.linalg.eigh(curvatures @ row)
    if not (float(z.norm()) <= WITHIN and float(sizes.max()) < 0.0):
        return []
    across = V.mT @ (row @ derivatives)
    loss = -0.5 * ((across @ covariance * across).sum(-1) / sizes).sum() * scale

    def lower(x: Tensor) -> bool:
        other = (x - centre) / radius
        apart = _monomials(other / other.norm().clamp_min(1.0), powers) - row
        error = float(apart @ covariance @ apart) ** 0.5
        return float(apart @ coefficients) < -SIGMAS * error

    return [Peak(centre + radius * z, float(loss), degree, radius, lower)]


def _maximiser(coefficients: Tensor, slopes: Tensor, curvatures: Tensor, powers: Tensor) -> Tensor:
    """The maximiser within the unit ball, or a point outside on the way to one there.

    Args:
        coefficients: Those of the polynomial, ``p``.
        slopes: Those of its derivatives, ``d x p``.
        curvatures: Those of its second derivatives, ``d x d x p``.
        powers: Exponents of the monomials, ``p x d``.
    """
    d = powers.shape[-1]
    U = torch.quasirandom.SobolEngine(d, scramble=True, seed=0).draw(SPREAD, dtype=torch.float64)
    Z = 2.0 * U.to(coefficients) - 1.0
    Z = torch.cat([Z.new_zeros(1, d), Z[Z.norm(dim=-1) <= 1.0]])
    z = Z[(_monomials(Z, powers) @ coefficients).argmax()]
    for _ in range(STEPS):
        row = _monomials(z, powers)
        sizes, V = torch.linalg.eigh(curvatures @ row)
        step = V @ (V.mT @ (slopes @ row) / sizes.abs().clamp_min(1e-300))
        z = z + step * (LONGEST / step.norm().clamp_min(LONGEST))
        if float(z.norm()) > 1.0:
            break
    return z


@cache
@lasting
def _powers(d: int, degree: int) -> Tensor:
    """Exponents of the monomials, ``p x d``, the constant first, lower degrees before higher."""
    rows = []
    for total in range(degree + 1):
        for chosen in combinations_with_replacement(range(d), total):
            rows.append([chosen.count(k) for k in range(d)])
    return torch.tensor(rows)


def _monomials(Z: Tensor, powers: Tensor) -> Tensor:
    """Monomials at points ``... x d``, ``... x p``."""
    table = torch.stack([Z**k for k in range(int(powers.max()) + 1)])  # exponents x ... x d
    factors = [table[column, ..., k] for k, column in enumerate(powers.T)]
    return reduce(torch.mul, factors).movedim(0, -1)


@cache
@lasting
def _derivatives(d: int, degree: int) -> Tensor:
    """Coefficients of each monomial's derivative in each input, ``d x p x p``, in columns."""
    powers = _powers(d, degree)
    lower = powers - torch.eye(d, dtype=powers.dtype).unsqueeze(1)
    same = (powers.unsqueeze(1) == lower.unsqueeze(1)).all(-1)
    return same * powers.T.unsqueeze(1).double()
