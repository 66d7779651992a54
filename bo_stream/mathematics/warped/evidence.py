"""The evidence of an exact Matern-5/2 process with its outcome warp, and its maximum (MATHS 13.1).

Mean and variance of the process have the priors ``m ~ N(0, v)`` and ``p(v) ~ exp(-1 / v) / v`` in
units of the warped, standardised outcomes, and take their optimum in closed form. With
``C = R + (floor + e^tau) I`` and ``S = (w - m)' C^-1 (w - m) + m^2`` the loss is::

    (n/2 + 1) log(1 + S/2) + 1/2 log |C| - log |dw/dy| - log prior,   v = (1 + S/2) / (n/2 + 1)

in ``theta = (log lengthscales, tau if the noise is learned, log c if warped)``, ``c`` the scale of
the warp over ``max y - median y``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotri
from scipy.optimize import fmin_l_bfgs_b

from bo_stream.mathematics.warped.latent import Array, factor, matern

__all__ = ["EXACT", "FLOOR", "Fitted", "LOG_LENGTHSCALE", "SmallEvidence"]

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
        gaps = X.T[:, :, None] - X.T[:, None, :]
        for j in cat_dims:
            gaps[j] = gaps[j] != 0.0
        self._squares = (gaps * gaps).reshape(d, n * n)
        top, middle = float(y.max()), float(np.median(y))
        smallest = 1e-12 * (abs(top) + abs(middle)) + 1e-300
        self._top, self._unit = top, max(top - middle, smallest)
        self._r = (top - y) / self._unit
        spread = float(y.std())
        self._plain = (float(y.mean()), spread if spread > smallest else 1.0)

    def start(self, tau: float = -7.0) -> Array:
        """The centre of the priors."""
        return np.array([LOG_LENGTHSCALE] * self.d + [tau] * self.learned + [LOG_C[0]] * self.warp)

    def _warped(self, theta: Array) -> tuple[Array, float, Array | None, float, tuple[float, ...]]:
        """Targets, log Jacobian, their derivatives in log c, and the coefficients."""
        if not self.warp:
            centre, spread = self._plain
            w = (self.y - centre) / spread
            return w, -self.n * math.log(spread), None, 0.0, (0.0, 0.0, centre, spread)
        c = math.exp(theta[-1])
        q = self._r + c
        h = np.log(q / c)
        t = -self._r / q  # dh / d log c
        centre, at = float(h.mean()), h - h.mean()
        spread = math.sqrt(float(at @ at) / self.n) + 1e-100  # its square is no zero
        w, drift = -at / spread, t - t.mean()
        wider = float(at @ drift) / (self.n * spread * spread)  # d log spread / d log c
        slope = -drift / spread - w * wider
        jacobian = -float(np.log(q).sum()) - self.n * (math.log(spread) + math.log(self._unit))
        by_c = -float((c / q).sum()) - self.n * wider
        return w, jacobian, slope, by_c, (self._top, self._unit * c, centre, spread)

    def _correlated(self, theta: Array) -> tuple[Array, Array, Array, float]:
        """Squared inverse lengthscales, correlations with noise, their slopes, noise."""
        il2 = np.exp(-2.0 * theta[: self.d])
        K, dK = matern((il2 @ self._squares).reshape(self.n, self.n))
        noise = FLOOR + math.exp(theta[self.d]) if self.learned else EXACT
        K.flat[:: self.n + 1] += noise
        return il2, K, dK, noise

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Loss and gradient: O(n^3 + d n^2)."""
        self.evaluations += 1
        n, d = self.n, self.d
        il2, K, dK, noise = self._correlated(theta)
        L = factor(K)
        w, jacobian, by_c, jacobian_by_c, _ = self._warped(theta)
        inverse = _inverse(L)
        m, S, a = _profiled(inverse, w)
        power = 0.5 * n + 1.0
        loss = power * math.log1p(0.5 * S) + float(np.log(L.flat[:: n + 1]).sum()) - jacobian
        by_S = power / (1.0 + 0.5 * S)
        by_C = 0.5 * (inverse - by_S * np.outer(a, a))
        gradient = np.empty_like(theta)
        z = theta[:d] - LOG_LENGTHSCALE
        loss += 0.5 * float(z @ z)
        gradient[:d] = -2.0 * il2 * (self._squares @ (by_C * dK).ravel()) + z
        if self.learned:
            z_tau = (theta[d] - TAU[0]) / TAU[1]
            loss += 0.5 * z_tau**2
            gradient[d] = (noise - FLOOR) * float(np.trace(by_C)) + z_tau / TAU[1]
        if by_c is not None:
            z_c = (theta[-1] - LOG_C[0]) / LOG_C[1]
            loss += 0.5 * z_c**2
            gradient[-1] = by_S * float(a @ by_c) - jacobian_by_c + z_c / LOG_C[1]
        return loss, gradient

    def fitted(self, theta: Array, loss: float = math.nan, converged: bool = True) -> Fitted:
        """Everything that follows from the parameters."""
        _, K, _, noise = self._correlated(theta)
        inverse = _inverse(factor(K))
        w, _, _, _, coefficients = self._warped(theta)
        m, S, _ = _profiled(inverse, w)
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


def _inverse(L: Array) -> Array:
    """The inverse of ``L L'``, from a lower triangular factor."""
    lower, _ = dpotri(L, lower=1)  # above the diagonal it is zero, as L is
    inverse: Array = lower + lower.T
    inverse.flat[:: len(L) + 1] *= 0.5
    return inverse


def _profiled(inverse: Array, w: Array) -> tuple[float, float, Array]:
    """The optimal mean, ``S``, and ``C^-1 (w - m)``."""
    ones = inverse.sum(1)
    m = float(ones @ w) / (float(ones.sum()) + 1.0)
    r: Any = w - m
    a = inverse @ r
    return m, float(r @ a) + m * m, a
