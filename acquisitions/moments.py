"""Acquisition functions of means and covariances in numpy, with gradients [MATHS 18.2].

With the factor L of the covariance of p points and base samples z, ``S x p``, samples are
``f_s = mean + L z_s``, and averages over s are::

    qUCB     mean_s max_j (m_j + b |f_sj - m_j|),  m = mean_s f_s, b^2 = beta pi / 2
    qLogEI   log mean_s max_j (f_sj - best)_+,  smoothed as in BoTorch
    qLogNEI  the same with best_s, the largest of the first points' samples

The base samples are those of BoTorch's sampler, so that values and gradients equal BoTorch's. Two
functions need the covariance C alone, of outcomes with noise D at the points and of sums G over
test points t, ``G_ij = sum_t w_t cov(x_i, t) cov(t, x_j)``::

    entropy  log det (C + D) / 2
    NIPV     tr((C + D)^-1 G) - sum_t w_t var(t)

A gradient in L goes back to the covariance as ``L^-T P L^-1``, with P the lower triangle of ``L'
bar L`` and half its diagonal.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self, cast

import numpy as np
import torch
from botorch.acquisition.logei import TAU_MAX, TAU_RELU
from scipy.special import erfcx, expit

from bo_stream.mathematics.exact import Array
from bo_stream.mathematics.linalg import chol_psd

__all__ = [
    "Criterion",
    "Entropy",
    "IntegratedVariance",
    "LogImprovement",
    "Sampled",
    "Slopes",
    "UpperBound",
]

FEW = 128
"""Number of samples by which points are chosen one by one."""
FAT = 0.1
"""Weight of the Cauchy density in BoTorch's smoothed improvements."""
NEAR = 40.0
"""Distance from 0, in units of the smoothing, beyond which softplus is a straight line."""
REPAIR = 1e-2
"""Largest jitter, as a share of the mean variance, of points that are too close to each other."""
FAR = -1e4
"""Standard deviations from where on the expected improvement has its asymptote."""
FLAT = 1e3
"""Improvements on average of fewer squared smoothings come from no sample that improves."""
TINY = 1e-300

Slopes = tuple[Array, Array, Array | None]
"""Gradients in means, covariances and sums of covariances."""


class Criterion(ABC):
    """A function of the joint moments of p points, better if larger.

    Attributes:
        logarithmic: Whether a difference of .001 is small whatever the unit of the outcome is.
    """

    logarithmic: bool = True

    @property
    def few(self) -> Self:
        """The same with fewer samples, for points that are chosen one by one."""
        return self

    @abstractmethod
    def value(self, mean: Array, C: Array, G: Array | None = None) -> tuple[Array, Slopes]:
        """Values ``R`` of means ``R x p``, covariances ``R x p x p`` and the sums; gradients."""

    def extended(self, chosen: np.ndarray, mean: Array, C: Array, G: Array | None = None) -> Array:
        """Values of sets of t points with one more of M candidates, ``R x M``.

        Args:
            chosen: Numbers of the points of each set, ``R x t``.
            mean: Means of the candidates, ``M``.
            C: Their covariance, ``M x M``.
            G: Their sums.
        """
        (R, t), M = chosen.shape, len(mean)
        sets = np.empty((R, M, t + 1), np.intp)
        sets[..., :t], sets[..., t] = chosen[:, None], np.arange(M)
        sets = sets.reshape(R * M, t + 1)
        rows, columns = sets[:, :, None], sets[:, None]
        value, _ = self.value(mean[sets], C[rows, columns], None if G is None else G[rows, columns])
        return value.reshape(R, M)

    def marginal(self, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        """Values of single points alone, ``p``, and the derivatives in mean and variance."""
        value, (by_mean, by_variance, _) = self.value(mean[:, None], variance[:, None, None])
        return value, by_mean[:, 0], by_variance[:, 0, 0]


def factor(C: Array) -> Array:
    """Lower Cholesky factors of ``R x p x p`` covariances, with jitter where it takes some."""
    try:
        return cast(Array, np.linalg.cholesky(C))
    except np.linalg.LinAlgError:
        floor = TINY + 1e-14 * C.diagonal(0, 1, 2).max(-1)[:, None, None]
        return cast(
            Array, chol_psd(torch.from_numpy(C + floor * np.eye(len(C[0]))), REPAIR).numpy()
        )


def through_factor(L: Array, bar_L: Array) -> Array:
    """The gradient in the covariance from that in its factor."""
    P = np.tril(L.transpose(0, 2, 1) @ bar_L)
    P[:, range(len(P[0])), range(len(P[0]))] *= 0.5
    inverse = np.linalg.inv(L)
    return cast(Array, inverse.transpose(0, 2, 1) @ P @ inverse)


# -- functions of samples ------------------------------------------------------------------------


@dataclass(frozen=True)
class Sampled(Criterion):
    """An average over samples of the largest of the points' utilities.

    Attributes:
        base: Base samples, ``S x p``; with none of them, the value of one point in closed form.
    """

    base: Array

    @property
    def few(self) -> Self:
        """As `Criterion`: a part of the samples."""
        return replace(self, base=self.base[:FEW])

    def value(self, mean: Array, C: Array, G: Array | None = None) -> tuple[Array, Slopes]:
        """As `Criterion`: O(S p^2) a set."""
        if not len(self.base):
            value, by_mean, by_variance = self.marginal(mean[:, 0], C[:, 0, 0])
            return value, (by_mean[:, None], by_variance[:, None, None], None)
        L = factor(C)
        value, bar_mean, bar_L = self.of_factor(mean, L)
        return value, (bar_mean, through_factor(L, bar_L), None)

    def extended(self, chosen: np.ndarray, mean: Array, C: Array, G: Array | None = None) -> Array:
        """As `Criterion`: the sets' factors grow by a row, O(S M t) a set."""
        t, variance = chosen.shape[1], np.maximum(C.diagonal(), 0.0)
        L = factor(C[chosen[:, :, None], chosen[:, None]])
        V = np.linalg.solve(L, C[chosen])
        rest = variance - np.einsum("rtm,rtm->rm", V, V)
        sd = np.sqrt(np.maximum(rest, 1e-10 * variance.max() + TINY))
        z = self.base[:, : t + 1]
        before = mean[chosen][..., None] + L @ z[:, :t].T
        samples = V.transpose(0, 2, 1) @ z[:, :t].T
        samples += mean[:, None]
        samples += sd[..., None] * z[:, t]
        return self.of_more(before, samples)

    @abstractmethod
    def of_factor(self, mean: Array, L: Array) -> tuple[Array, Array, Array]:
        """Values ``R``, and gradients in means ``R x t`` and factors ``R x t x t``, for the first t
        base samples.
        """

    @abstractmethod
    def of_more(self, before: Array, samples: Array) -> Array:
        """Values ``R x M`` from the samples of sets, ``R x t x S``, and of further points, ``R x M
        x S``, which may be overwritten.
        """


@dataclass(frozen=True)
class UpperBound(Sampled):
    """The upper confidence bound.

    Attributes:
        beta: As in BoTorch.
    """

    beta: float
    logarithmic = False

    @property
    def _width(self) -> float:
        return math.sqrt(self.beta * math.pi / 2.0)

    def of_factor(self, mean: Array, L: Array) -> tuple[Array, Array, Array]:
        """As `Sampled`."""
        z = self.base[:, : L.shape[-1]]
        middle = z.mean(0)
        z = z - middle
        away = L @ z.T
        size = np.abs(away)
        size *= self._width
        size += (mean + L @ middle)[..., None]
        best = size.max(1)
        hot = size == best[:, None]
        bar_mean = hot.mean(-1)
        bar_L = (self._width / len(z)) * (np.copysign(hot, away) @ z)
        bar_L += bar_mean[..., None] * middle
        return best.mean(-1), bar_mean, bar_L

    def of_more(self, before: Array, samples: Array) -> Array:
        """As `Sampled`."""
        best = self._utility(before).max(1, initial=-np.inf)
        value: Array = np.maximum(self._utility(samples), best[:, None]).mean(-1)
        return value

    def _utility(self, samples: Array) -> Array:
        level = samples.mean(-1, keepdims=True)
        samples -= level
        np.abs(samples, out=samples)
        samples *= self._width
        samples += level
        return samples

    def marginal(self, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        """As `Criterion`."""
        sd = np.sqrt(variance)
        root = math.sqrt(self.beta)
        return mean + root * sd, np.ones_like(mean), 0.5 * root / sd


@dataclass(frozen=True)
class LogImprovement(Sampled):
    """The logarithm of the expected improvement, smoothed as in BoTorch.

    Attributes:
        best: What is to be improved on; unless there are known points.
        known: Number of points, the first ones, the largest of which is to be improved on.
        width: Width of the smoothed improvement, an outcome.
        spread: Width of the smoothed maximum, of logarithms.
    """

    best: float = 0.0
    known: int = 0
    width: float = TAU_RELU
    spread: float = TAU_MAX

    def of_factor(self, mean: Array, L: Array) -> tuple[Array, Array, Array]:
        """As `Sampled`."""
        z, k = self.base[:, : L.shape[-1]], self.known
        f = L @ z.T
        f += mean[..., None]
        best = f[:, :k].max(1, keepdims=True) if k else self.best
        x = (f[:, k:] - best) / self.width
        hill = 1.0 / (x * x + 1.0)
        plus, near = np.maximum(x, 0.0), np.abs(x) < NEAR
        plus[near] += np.log1p(np.exp(-np.abs(x[near])))
        plus += FAT * hill
        each = np.log(plus)
        first = each.argmax(1)[:, None]
        top = np.take_along_axis(each, first, 1)
        beyond = (top - each) / self.spread + 1.0
        share = 1.0 / (beyond * beyond + 1.0)
        total = share.sum(1)
        most = top[:, 0] + self.spread * np.log(2.0 * total)
        ceiling = most.max(-1, keepdims=True)
        weight = np.exp(most - ceiling)
        whole = weight.sum(-1, keepdims=True)
        value = (ceiling + np.log(whole))[:, 0] + math.log(self.width / len(z))
        bar = beyond * share * share * (2.0 / total)[:, None]
        rest = np.take_along_axis(bar, first, 1) + 1.0 - bar.sum(1, keepdims=True)
        np.put_along_axis(bar, first, rest, 1)
        rise = (x > 0.0).astype(float)
        rise[near] = expit(x[near])
        rise -= 2.0 * FAT * x * hill * hill
        bar *= rise / plus * (weight / (whole * self.width))[:, None]
        bar = np.pad(bar, ((0, 0), (k, 0), (0, 0)))
        return value, bar.sum(-1), bar @ z

    def of_more(self, before: Array, samples: Array) -> Array:
        """As `Sampled`; without the smoothing where a sample improves."""
        k = self.known
        best = before[:, :k].max(1) if k else np.full((1, 1), self.best)
        gains = before[:, k:].max(1, initial=-np.inf) - best
        samples -= best[:, None]
        np.maximum(samples, gains[:, None], out=samples)
        gain = np.maximum(samples, 0.0).mean(-1)
        flat = gain.max(-1) <= FLAT * self.width**2
        if flat.any():
            far = samples[flat] / self.width
            gain[flat] += (FAT * self.width / (1.0 + far * far)).mean(-1)
        return np.log(gain + TINY)

    def marginal(self, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        """As `Criterion`: log sd + log h(u), ``h = phi + u Phi`` at ``u = (mean - best) / sd``."""
        sd = np.sqrt(variance)
        u = (mean - self.best) / sd
        log_h, ratio = log_gain(u)
        return log_h + np.log(sd), ratio / sd, (1.0 - u * ratio) / (2.0 * variance)


def log_gain(u: Array) -> tuple[Array, Array]:
    """``log h(u)``, ``h = phi + u Phi``, and ``Phi / h``.

    Far below 0, ``h`` is ``phi / u^2``; above, ``h(u) = u + h(-u)``.
    """
    v = -np.abs(u)
    mills = math.sqrt(0.5 * math.pi) * erfcx(v * -math.sqrt(0.5))  # Phi / phi
    tail = np.where(v < FAR, 1.0 / np.maximum(v * v, 1.0), np.maximum(1.0 + v * mills, TINY))
    log_phi = -0.5 * v * v - 0.5 * math.log(2.0 * math.pi)
    phi = np.exp(log_phi)
    above, high = u > 0.0, np.maximum(u, 0.0) + phi * tail
    log_h = np.where(above, np.log(np.maximum(high, TINY)), log_phi + np.log(tail))
    return log_h, np.where(above, 1.0 - phi * mills, mills) / np.where(above, high, tail)


# -- functions of the covariance -----------------------------------------------------------------


@dataclass(frozen=True)
class Entropy(Criterion):
    """Entropy of the outcomes, but for a constant.

    Attributes:
        noise: Variance of the noise.
        scale: Unit of the outcomes.
    """

    noise: float
    scale: float = 1.0

    def value(self, mean: Array, C: Array, G: Array | None = None) -> tuple[Array, Slopes]:
        """As `Criterion`."""
        L = factor(C / self.scale**2 + self.noise * np.eye(C.shape[-1]))
        inverse = np.linalg.inv(L) / self.scale
        value = np.log(L.diagonal(0, 1, 2)).sum(-1)
        return value, (np.zeros_like(mean), 0.5 * inverse.transpose(0, 2, 1) @ inverse, None)


@dataclass(frozen=True)
class IntegratedVariance(Criterion):
    """Minus the variance that is left, averaged over test points.

    Attributes:
        noise: Variance of the noise.
        total: Average of the variance before.
    """

    noise: float
    total: float
    logarithmic = False

    def value(self, mean: Array, C: Array, G: Array | None = None) -> tuple[Array, Slopes]:
        """As `Criterion`."""
        inverse = np.linalg.inv(factor(C + self.noise * np.eye(C.shape[-1])))
        A = inverse.transpose(0, 2, 1) @ inverse
        AG = A @ cast(Array, G)
        return np.trace(AG, axis1=1, axis2=2) - self.total, (np.zeros_like(mean), -AG @ A, A)
