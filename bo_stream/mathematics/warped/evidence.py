"""The evidence of an exact Matern-5/2 process with its outcome warp, and its maximum (MATHS 13.1).

Mean and variance of the process have the priors ``m ~ N(0, v)`` and ``p(v) ~ exp(-1 / v) / v`` in
units of the warped, standardised outcomes, and take their optimum in closed form. With
``C = R + (floor + e^tau) I`` and ``S = (w - m)' C^-1 (w - m) + m^2`` the loss is::

    (n/2 + 1) log(1 + S/2) + 1/2 log |C| - log |dw/dy| - log prior,   v = (1 + S/2) / (n/2 + 1)

in ``theta = (log lengthscales, tau if the noise is learned, log c if warped)``, ``c`` the scale of
the warp over its `unit`: from the best outcome to the median, each value counted once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.optimize import fmin_l_bfgs_b

from bo_stream.mathematics.warped.latent import Array, matern

__all__ = [
    "EXACT",
    "FLOOR",
    "Fitted",
    "LOG_LENGTHSCALE",
    "SmallEvidence",
    "contradicted",
    "unit",
]

EXACT = 1e-8
"""Relative noise variance of exact evaluations."""
FLOOR = 1e-6
"""Smallest learned noise variance, relative to the process's."""
LOG_2PI = math.log(2.0 * math.pi)
LOG_LENGTHSCALE = 0.0
"""Mean of a log lengthscale under its prior, in inputs of the unit cube; its deviation is 1."""
TAU = (-7.0, 3.0)
LOG_C = (0.0, 2.0)
"""Mean and standard deviation of tau and of log c under their priors."""
BOUNDS = {
    "lengthscale": (math.log(5e-3), math.log(30.0)),
    "tau": (math.log(1e-9), math.log(10.0)),
    "c": (math.log(0.2), math.log(1e3)),
}
MOST = 30
"""Iterations of an ascent."""
EQUAL = 1e-12
"""Relative difference up to which outcomes count as equal."""
SAME, DIFFERENT = 9, 1e-6
"""Decimals up to which points, and deviations up to which their outcomes, count as the same."""


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


@dataclass(frozen=True)
class Fitted:
    """Hyperparameters that maximise the evidence.

    Attributes:
        theta: The parameters.
        value: The objective, with all constants: log evidence plus log priors.
        coefficients: Of the warp, as in `bo_stream.mathematics.warped.warp.NO_WARP`.
        mean: Of the process, standardised.
        variance: Of the process, standardised.
        noise: Variance relative to the process's.
        converged: Whether the ascent ended before its limit.
    """

    theta: Array
    value: float
    coefficients: tuple[float, float, float, float]
    mean: float
    variance: float
    noise: float
    converged: bool


class SmallEvidence:
    """The loss of some data.

    Args:
        X: ``n x d`` points, n >= 2.
        y: ``n`` outcomes, to be maximised.
        learned: Whether the noise is learned; else evaluations are exact.
        warp: Whether outcomes are warped.
        cat_dims: Indices of categories.

    Attributes:
        evaluations: Evaluations of loss and gradient so far.
    """

    def __init__(
        self,
        X: Array,
        y: Array,
        *,
        learned: bool,
        warp: bool,
        cat_dims: tuple[int, ...] = (),
    ) -> None:
        n, d = X.shape
        self.n, self.d, self.y = n, d, y
        self.learned, self.warp = learned, warp
        self.evaluations = 0
        rows, columns = np.tril_indices(n, -1)
        gaps = X.T[:, rows] - X.T[:, columns]
        for j in cat_dims:
            gaps[j] = gaps[j] != 0.0
        self._squares, self._rows, self._columns = gaps * gaps, rows, columns
        self._below, self._ones = rows * n + columns, np.ones(n)
        self._top, self._unit = float(y.max()), unit(y)
        self._r = (self._top - y) / (self._unit or 1.0)
        self._plain = (float(y.mean()), float(y.std()) if self._unit else 1.0)

    def start(self, tau: float = -7.0) -> Array:
        """The centre of the priors."""
        return np.array([LOG_LENGTHSCALE] * self.d + [tau] * self.learned + [LOG_C[0]] * self.warp)

    def _noise(self, theta: Array) -> float:
        return FLOOR + math.exp(theta[self.d]) if self.learned else EXACT

    def _warped(self, theta: Array) -> tuple[Array, float, Array | None, float, tuple[float, ...]]:
        """Targets, log Jacobian, their derivatives in log c, and the coefficients."""
        if not self.warp:
            centre, spread = self._plain
            w = (self.y - centre) / spread
            return w, -self.n * math.log(spread), None, 0.0, (0.0, 0.0, centre, spread)
        n, c = self.n, math.exp(theta[-1])
        q = self._r + c
        h = np.log(q / c)
        t = -self._r / q  # dh / d log c
        total, drifted = float(self._ones @ h), float(self._ones @ t)
        centre, at = total / n, h - total / n
        spread = math.sqrt(float(at @ at) / n) + 1e-100  # its square is no zero
        w, drift = at / -spread, t - drifted / n
        wider = float(at @ drift) / (n * spread * spread)  # d log spread / d log c
        slope = drift / -spread - w * wider
        jacobian = -total - n * (math.log(c) + math.log(spread) + math.log(self._unit))
        by_c = -n - drifted - n * wider  # c / q = 1 + t
        return w, jacobian, slope, by_c, (self._top, self._unit * c, centre, spread)

    def _factored(self, k: Array, noise: float) -> Array:
        """Upper factor of correlations ``k`` of the pairs, with noise.

        The noise is far above rounding errors, so that it takes no jitter.

        Raises:
            torch.linalg.LinAlgError: for values that are not finite.
        """
        n = self.n
        C = np.zeros((n, n))
        C.ravel()[self._below] = k
        C.ravel()[:: n + 1] = 1.0 + noise
        U, failed = dpotrf(C.T, lower=0, clean=0, overwrite_a=1)
        if failed:
            raise torch.linalg.LinAlgError("The evidence is not finite.")  # type: ignore[attr-defined]
        return np.asarray(U)

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Loss and gradient: O(n^3 + d n^2)."""
        self.evaluations += 1
        n, d = self.n, self.d
        il2 = np.exp(-2.0 * theta[:d])
        noise = self._noise(theta)
        k, dk = matern(il2 @ self._squares)
        U = self._factored(k, noise)
        w, jacobian, by_c, jacobian_by_c, _ = self._warped(theta)
        _, S, a = _profiled(U, w)
        power = 0.5 * n + 1.0
        loss = power * math.log1p(0.5 * S) + float(np.log(U.diagonal()).sum()) - jacobian
        by_S = power / (1.0 + 0.5 * S)
        inverse = dpotri(U, lower=0, overwrite_c=1)[0].T.ravel()
        by_k = inverse[self._below] - by_S * (a[self._rows] * a[self._columns])
        gradient = np.empty_like(theta)
        z = theta[:d] - LOG_LENGTHSCALE
        loss += 0.5 * float(z @ z)
        gradient[:d] = z - 2.0 * il2 * (self._squares @ (by_k * dk))
        if self.learned:
            trace = 0.5 * (float(inverse[:: n + 1].sum()) - by_S * float(a @ a))
            z_tau = (theta[d] - TAU[0]) / TAU[1]
            loss += 0.5 * z_tau**2
            gradient[d] = (noise - FLOOR) * trace + z_tau / TAU[1]
        if by_c is not None:
            z_c = (theta[-1] - LOG_C[0]) / LOG_C[1]
            loss += 0.5 * z_c**2
            gradient[-1] = by_S * float(a @ by_c) - jacobian_by_c + z_c / LOG_C[1]
        return loss, gradient

    def fitted(self, theta: Array, loss: float = math.nan, converged: bool = True) -> Fitted:
        """Everything that follows from the parameters."""
        noise = self._noise(theta)
        k, _ = matern(np.exp(-2.0 * theta[: self.d]) @ self._squares)
        w, _, _, _, coefficients = self._warped(theta)
        m, S, _ = _profiled(self._factored(k, noise), w)
        variance = (1.0 + 0.5 * S) / (0.5 * self.n + 1.0)
        top, scale, centre, spread = coefficients
        power = 0.5 * self.n + 1.0
        constant = power * (math.log(power) - 1.0) - 0.5 * (self.n + self.d) * LOG_2PI
        constant -= self.d * (LOG_LENGTHSCALE + 0.5)  # gpytorch's density of a lengthscale
        return Fitted(
            theta,
            float(constant - loss),
            (top, scale, centre, spread),
            m,
            variance,
            noise,
            converged,
        )

    def minimised(self, starts: list[Array], most: int | None = None) -> Fitted:
        """The best of some ascents.

        Args:
            starts: Parameters to start from.
            most: Largest number of evaluations, over all starts; None for no limit.
        """
        low, high = (np.array([bound[i] for bound in self._bounds()]) for i in (0, 1))
        best, best_loss, converged = np.clip(starts[0], low, high), math.inf, False

        def seen(theta: Array) -> tuple[float, Array]:
            nonlocal best, best_loss
            if most is not None and self.evaluations >= most:
                raise _Spent
            loss, gradient = self(theta)
            if loss < best_loss:
                best, best_loss = theta.copy(), loss
            return loss, gradient

        reached = math.inf
        try:
            for start in starts:
                _, loss, about = fmin_l_bfgs_b(
                    seen,
                    np.clip(start, low, high),
                    bounds=self._bounds(),
                    maxiter=MOST,
                    factr=1e9,
                    pgtol=1e-2,
                )
                if loss < reached:
                    reached, converged = loss, about["warnflag"] == 0
        except _Spent:
            converged = False
        return self.fitted(best, best_loss, converged)

    def _bounds(self) -> list[tuple[float, float]]:
        names = ["lengthscale"] * self.d + ["tau"] * self.learned + ["c"] * self.warp
        return [BOUNDS[name] for name in names]


class _Spent(Exception):
    """No evaluations are left."""


def _profiled(U: Array, w: Array) -> tuple[float, float, Array]:
    """The optimal mean, ``S``, and ``C^-1 (w - m)``, for ``C = U' U``."""
    sides = np.ones((2, len(w)))
    sides[1] = w
    ones, each = dpotrs(U, sides.T, lower=0, overwrite_b=1)[0].T
    m = float(ones @ w) / (float(ones.sum()) + 1.0)
    a: Array = each - m * ones
    return m, float((w - m) @ a) + m * m, a
