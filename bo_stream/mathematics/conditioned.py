"""A posterior process given more data: exact Gaussian conditioning, for every family (MATHS 1).

For a Gaussian process and ``y_q = f(X_q) + eps``, the posterior of ``f`` given ``y_q`` costs one
joint evaluation at ``X_q`` and the test points, a ``q x q`` Cholesky factor and a ``q x p``
product. The covariance does not depend on ``y_q``: it is shared by all fantasies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Size, Tensor

from bo_stream.errors import NoiseError
from bo_stream.mathematics.integral import Integral, PointIntegral
from bo_stream.mathematics.joint import Joint, products, solved_rows
from bo_stream.mathematics.linalg import REPAIR, bordered, chol_psd
from bo_stream.mathematics.moments import Moments
from bo_stream.mathematics.paths import Path, noisy
from bo_stream.mathematics.process import PosteriorProcess

__all__ = ["ConditionedProcess", "conditioned_on", "unconditioned"]


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
            new = ConditionedProcess(process, X, Y, noise)
            return replace(new, factors=new._factored())
        old = cast(ConditionedProcess, process)
        every = torch.cat([old.X, X]), torch.cat([old.Y, Y], -1), torch.cat([old.noise, noise], -1)
        try:
            factors = _extended(before, old.base.at(X), Y, noise)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            return conditioned_on(old.base, *every)  # the whole is repaired
        return ConditionedProcess(old.base, *every, factors)


Factors = tuple[Joint, Tensor, Tensor]
"""A process's joint posterior at points, the factor ``L`` of ``cov + D``, ``L^-1 (Y - mean)``."""


def _extended(factors: Factors, new: Joint, Y: Tensor, noise: Tensor) -> Factors:
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

    def at(self, X: Tensor) -> Joint:
        """The joint posterior at points ``batch x p x d``: O(q^3 + q^2 p) beyond the base's."""
        return _given(self._factored(), self.base.at(X))

    def outputs(self, index: list[int]) -> PosteriorProcess:
        """Some of the outputs."""
        Y, noise = (part[..., index, :] for part in (self.Y, self.noise))
        return conditioned_on(self.base.outputs(index), self.X, Y, noise)

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

    def moments(self, X: Tensor, *, slopes: bool, across: Joint | None = None) -> Moments | None:
        """From the base's, given data without batch."""
        if self.factors is None or across is not None:
            return None
        f, L, r = self.factors
        base = self.base.moments(X, slopes=slopes, across=f)
        return None if base is None else base.conditioned(L[0], r[0, :, 0])

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


def _given(factors: Factors, s: Joint) -> Joint:
    """The base's joint posterior at some points, given the data: one solve for the whole batch
    if the data have none.
    """
    f, L, r = factors
    if f.mean.ndim == L.ndim - 1 == 2:
        W = solved_rows(L, s.covariance(f)).mT
    else:
        W = torch.linalg.solve_triangular(L, f.covariance(s), upper=False)
    mean = (s.mean.unsqueeze(-1) + products(W.mT, r)).squeeze(-1)
    return s.updated(mean, *s.less, W)


def unconditioned(process: PosteriorProcess) -> tuple[PosteriorProcess, int]:
    """A process without the data that it is given, and their number."""
    if isinstance(process, ConditionedProcess):
        return process.base, process.X.shape[-2]
    return process, 0


@dataclass(frozen=True)
class ConditionedIntegral:
    """Sums under a process given more data at points ``f``: cov is ``cov(a, b) - W_a' W_b``.

    Attributes:
        base: The sums under the base.
        f: The base's joint posterior at the points conditioned on.
        L: Cholesky factor of ``cov(f, f) + D``.
        M: ``L^-1 gram(f, f) L^-T``.
    """

    base: Integral
    f: Joint
    L: Tensor
    M: Tensor

    @property
    def total(self) -> Tensor:
        """Weighted sum of the variances, ``batch x o``."""
        return self.base.total - self.M.diagonal(dim1=-2, dim2=-1).sum(-1)

    def gram(self, a: Joint, b: Joint) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``."""
        left, W_a, F_a = self._before(a)
        right, W_b, F_b = (left, W_a, F_a) if a is b else self._before(b)
        cross = F_a.mT @ W_b
        crossed = cross.mT if a is b else W_a.mT @ F_b
        return self.base.gram(left, right) - cross - crossed + W_a.mT @ self.M @ W_b

    def gram_diagonal(self, a: Joint) -> Tensor:
        """The diagonal of ``gram(a, a)``."""
        before, W, F = self._before(a)
        return self.base.gram_diagonal(before) + (W * (self.M @ W - 2.0 * F)).sum(-2)

    def _before(self, a: Joint) -> tuple[Joint, Tensor, Tensor]:
        """The points under the base but for the mean, ``W_a``, and ``L^-1 gram(f, a)``."""
        before = a.updated(a.mean, *a.less[:-1])
        F = torch.linalg.solve_triangular(self.L, self.base.gram(self.f, before), upper=False)
        return before, a.less[-1], F
