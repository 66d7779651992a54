"""A posterior process given more data: exact Gaussian conditioning, for every family (MATHS 1).

For a Gaussian process and ``y_q = f(X_q) + eps``, the posterior of ``f`` given ``y_q`` costs one
joint evaluation at ``X_q`` and the test points, a ``q x q`` Cholesky factor and a ``q x p``
product. The covariance does not depend on ``y_q``: it is shared by all fantasies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from linear_operator.operators import LinearOperator, MatmulLinearOperator
from torch import Size, Tensor

from bo_stream.errors import NoiseError
from bo_stream.mathematics.integral import Integral, PointIntegral
from bo_stream.mathematics.joint import JointGaussian, products, solved_rows
from bo_stream.mathematics.linalg import REPAIR, bordered, chol_psd
from bo_stream.mathematics.moments import Moments
from bo_stream.mathematics.paths import Path, noisy
from bo_stream.mathematics.process import PosteriorProcess

__all__ = [
    "ConditionedGaussian",
    "ConditionedProcess",
    "SubsetProcess",
    "conditioned_on",
    "unconditioned",
]


@dataclass(frozen=True)
class ConditionedGaussian(JointGaussian):
    """Joint posterior with covariance ``cov(x, z) - V_x' V_z``, ``V = L^-1 cov(X_f, .)``."""

    mean: Tensor
    base: JointGaussian
    V: Tensor

    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``."""
        return self.base.variance() - self.V.square().sum(-2)

    def covariance(self, other: ConditionedGaussian) -> Tensor:
        """Covariance with the values at other points."""
        return self.base.covariance(other.base) - products(self.V.mT, other.V)

    def times(self, other: ConditionedGaussian, M: Tensor) -> Tensor:
        """Covariance with the values at other points times M, without the full covariance."""
        return self.base.times(other.base, M) - products(self.V.mT, other.V @ M)

    def joined(self, other: ConditionedGaussian) -> ConditionedGaussian:
        """The joint posterior at the points of both."""
        mean, V = torch.cat([self.mean, other.mean], -1), torch.cat([self.V, other.V], -1)
        return ConditionedGaussian(mean, self.base.joined(other.base), V)

    def operator(self) -> LinearOperator:
        """The covariance as an operator whose diagonal is cheap."""
        return self.base.operator() + MatmulLinearOperator(-self.V.mT, self.V)


def conditioned_on(
    process: PosteriorProcess, X: Tensor, Y: Tensor, noise: Tensor
) -> ConditionedProcess:
    """A process given data.

    The factor of data without batch or graph is computed once. Later data of that kind extend it:
    O(n q^2) for q points after n.

    Args:
        process: The process, which may be given data already.
        X: Points, ``batch x q x d``.
        Y: Outcomes, ``batch' x o x q``.
        noise: Their noise variances, like Y.

    Raises:
        NoiseError: if neither noise nor posterior variance exceeds rounding errors.
    """
    if any(t.ndim > 2 or t.requires_grad for t in (X, Y, noise)):
        return ConditionedProcess(process, X, Y, noise)
    with torch.no_grad():
        before = process.factors if isinstance(process, ConditionedProcess) else None
        if before is None:
            made = ConditionedProcess(process, X, Y, noise)
            return replace(made, factors=made._factored())
        old = cast(ConditionedProcess, process)
        every = torch.cat([old.X, X]), torch.cat([old.Y, Y], -1), torch.cat([old.noise, noise], -1)
        try:
            factors = _extended(before, old.base.at(X), Y, noise)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            return conditioned_on(old.base, *every)  # the whole is repaired
        return ConditionedProcess(old.base, *every, factors)


Factors = tuple[JointGaussian, Tensor, Tensor]
"""A process's joint posterior at points, the factor ``L`` of ``cov + D``, ``L^-1 (Y - mean)``."""


def _extended(factors: Factors, new: JointGaussian, Y: Tensor, noise: Tensor) -> Factors:
    """The same with more points."""
    f, L, r = factors
    L = bordered(L, f.covariance(new), new.covariance(new) + torch.diag_embed(noise))
    n = r.shape[-2]
    gap = (Y - new.mean).unsqueeze(-1) - L[..., n:, :n] @ r
    r = torch.cat([r, torch.linalg.solve_triangular(L[..., n:, n:], gap, upper=False)], -2)
    return f.joined(new), L, r


@dataclass(frozen=True)
class ConditionedProcess(PosteriorProcess):
    """A process given ``Y`` (``batch' x o x q``) at ``X`` (``batch x q x d``) with noise
    variances like ``Y``.

    Without `factors` each joint posterior computes them again, so that no graph is shared between
    backward passes.

    Attributes:
        base: The process.
        X: The points.
        Y: The outcomes.
        noise: Their noise variances.
        factors: Those of data without batch or graph.
    """

    base: PosteriorProcess
    X: Tensor
    Y: Tensor
    noise: Tensor
    factors: Factors | None = None

    def _factored(self) -> Factors:
        if self.factors is not None:
            return self.factors
        f = self.base.at(self.X)
        C = f.covariance(f) + torch.diag_embed(self.noise)
        L = chol_psd(C, REPAIR, self._unresolved)
        return f, L, torch.linalg.solve_triangular(L, (self.Y - f.mean).unsqueeze(-1), upper=False)

    def _unresolved(self, row: int) -> NoiseError:
        return NoiseError(
            "noise that doubles can tell from none, at points whose values are known already",
            f"noise variances from {float(self.noise.detach().min()):.2g} on and a covariance that "
            f"cannot be factored at point {row} of {self.X.shape[-2]}",
            "Give noise above 1e-12 of the prior variance, or leave such points out.",
        )

    def at(self, X: Tensor) -> ConditionedGaussian:
        """The joint posterior at points ``batch x p x d``: O(q^3 + q^2 p) beyond the base's."""
        return _given(self._factored(), self.base.at(X))

    @property
    def batch_shape(self) -> Size:
        """Batch shape of all data."""
        batches = (part.shape[:-2] for part in (self.X, self.Y, self.noise))
        return torch.broadcast_shapes(self.base.batch_shape, *batches)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions by Matheron's rule on the base's sample functions."""
        added = len(self.batch_shape) - len(self.base.batch_shape)
        base = self.base.path(Size([*sample_shape, *self.batch_shape[:added]]))
        values = noisy(base(self.X), self.noise)
        f, L, _ = self._factored()
        weights = torch.cholesky_solve((self.Y - values).unsqueeze(-1), L).squeeze(-1)
        return self.base.plus(base, f, weights)

    def mean_function(self) -> Path:
        """The base's, updated."""
        f, L, r = self._factored()
        weights = torch.linalg.solve_triangular(L.mT, r, upper=True).squeeze(-1)
        return self.base.plus(self.base.mean_function(), f, weights)

    @property
    def has_moments(self) -> bool:
        """Where the base has them, given data without batch."""
        return self.factors is not None and self.base.has_moments

    def moments(
        self, X: Tensor, *, slopes: bool, across: JointGaussian | None = None
    ) -> Moments | None:
        """From the base's, given data without batch."""
        if self.factors is None or across is not None:
            return None
        f, L, r = self.factors
        base = self.base.moments(X, slopes=slopes, across=f)
        return None if base is None else base.given(L[0], r[0, :, 0])

    def integral(self, points: Tensor, weights: Tensor) -> Integral:
        """From the base's; computed at each call, because it may hold the graph of the
        conditioning points.
        """
        base = self.base.integral(points, weights)
        if self.factors is not None and isinstance(base, PointIntegral):
            factors = self.factors
            return base.of(lambda tile: _given(factors, tile))
        f, L, _ = self._factored()
        half = torch.linalg.solve_triangular(L, base.gram(f, f), upper=False)
        M = torch.linalg.solve_triangular(L, half.mT, upper=False)
        return ConditionedIntegral(base, f, L, M)


def _given(factors: Factors, s: JointGaussian) -> ConditionedGaussian:
    """The base's joint posterior at some points, given the data: one solve for the whole batch
    if the data have none.
    """
    f, L, r = factors
    if f.mean.ndim == L.ndim - 1 == 2:
        V = solved_rows(L, s.covariance(f)).mT
    else:
        V = torch.linalg.solve_triangular(L, f.covariance(s), upper=False)
    return ConditionedGaussian((s.mean.unsqueeze(-1) + products(V.mT, r)).squeeze(-1), s, V)


def unconditioned(process: PosteriorProcess) -> tuple[PosteriorProcess, int]:
    """A process without the data that it is given, and their number."""
    if isinstance(process, ConditionedProcess):
        return process.base, process.X.shape[-2]
    return process, 0


@dataclass(frozen=True)
class ConditionedIntegral:
    """Sums under a process given more data at points ``f``: cov is ``cov(a, b) - V_a' V_b``.

    Attributes:
        base: The sums under the base.
        f: The base's joint posterior at the points conditioned on.
        L: Cholesky factor of ``cov(f, f) + D``.
        M: ``L^-1 gram(f, f) L^-T``.
    """

    base: Integral
    f: JointGaussian
    L: Tensor
    M: Tensor

    @property
    def total(self) -> Tensor:
        """Weighted sum of the variances, ``batch x o``."""
        return self.base.total - self.M.diagonal(dim1=-2, dim2=-1).sum(-1)

    def gram(self, a: ConditionedGaussian, b: ConditionedGaussian) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``."""
        F_a = self._whitened(a)
        F_b = F_a if a is b else self._whitened(b)
        cross = F_a.mT @ b.V
        crossed = cross.mT if a is b else a.V.mT @ F_b
        return self.base.gram(a.base, b.base) - cross - crossed + a.V.mT @ self.M @ b.V

    def gram_diagonal(self, a: ConditionedGaussian) -> Tensor:
        """The diagonal of ``gram(a, a)``."""
        base = self.base.gram_diagonal(a.base)
        return base + (a.V * (self.M @ a.V - 2.0 * self._whitened(a))).sum(-2)

    def _whitened(self, a: ConditionedGaussian) -> Tensor:
        """``L^-1 gram(f, a)``."""
        return torch.linalg.solve_triangular(self.L, self.base.gram(self.f, a.base), upper=False)


@dataclass(frozen=True)
class SubsetGaussian(JointGaussian):
    """Some of the outputs of a joint posterior."""

    base: JointGaussian
    index: list[int]

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        """Means, ``batch x len(index) x q``."""
        return self.base.mean[..., self.index, :]

    def variance(self) -> Tensor:
        """Marginal variances."""
        return self.base.variance()[..., self.index, :]

    def covariance(self, other: SubsetGaussian) -> Tensor:
        """Covariance with the values at other points."""
        return self.base.covariance(other.base)[..., self.index, :, :]

    def joined(self, other: SubsetGaussian) -> SubsetGaussian:
        """The outputs at the points of both."""
        return SubsetGaussian(self.base.joined(other.base), self.index)

    def operator(self) -> LinearOperator:
        """The covariance as an operator whose diagonal is cheap."""
        return self.base.operator()[..., self.index, :, :]


@dataclass(frozen=True)
class SubsetProcess(PosteriorProcess):
    """Some of the outputs of a process."""

    base: PosteriorProcess
    index: list[int]

    def at(self, X: Tensor) -> SubsetGaussian:
        """The joint posterior at points ``batch x q x d``."""
        return SubsetGaussian(self.base.at(X), self.index)

    @property
    def batch_shape(self) -> Size:
        """The base's."""
        return self.base.batch_shape

    def path(self, sample_shape: Size) -> Path:
        """Sample functions of the chosen outputs."""
        base = self.base.path(sample_shape)
        return lambda X: base(X)[..., self.index, :]
