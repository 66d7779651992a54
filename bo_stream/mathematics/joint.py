"""What a process gives at points: joint Gaussians, moments with derivatives, integrals.

Shapes: points ``batch x q x d`` in transformed space, float64. The output dimension ``o`` (the
number of independent outputs) is always present, just before the point dimensions: means ``batch x
o x q``, covariances ``batch x o x q x q'``.

Integrated-variance acquisition functions need weighted sums over fixed points of products of
covariances [MATHS 10], an `Integral`. With weights ``w_t`` of points ``t``,

    ``total = sum_t w_t var(t)``        ``gram(a, b) = sum_t w_t cov(a, t) cov(t, b)``

so that the integrated variance after observing points ``f`` with noise ``D`` is
``total - tr( (cov(f, f) + D)^-1 gram(f, f) )``. Covariances among the points summed over are never
needed. On features the cost depends neither on these points nor on the observations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import LinearOperator, MatmulLinearOperator
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bo_stream.mathematics.autograd import lasting_property
from bo_stream.mathematics.kernels import cross_kernel
from bo_stream.mathematics.linalg import pivoted_root

__all__ = [
    "Integral",
    "Joint",
    "products",
    "solved_rows",
]


PARTS = ("plus", "coefficients", "spread")
"""What a joint posterior computes once of its points, whatever data are added to the process."""


@dataclass(frozen=True)
class Joint:
    """Joint posterior with covariance ``k(x, z) - a_x'a_z + V_x'V_z - W_x'W_z``.

    ``V_x = L^-1 a_x`` is zero without L. Without a kernel the prior is ``a_x'a_z``, and the first
    two terms cancel. There is one ``W`` for each time that data were added to the process.

    Attributes:
        mean: ``batch x o x q``.
        X: Points, ``batch x q x d``, as the kernel takes them.
        kernel: The prior's kernel, frozen, or None.
        rows: ``a``, ``batch x o x q x r``.
        L: Lower triangular, ``o x r x r``, or None.
        less: ``W``, each ``batch x o x p x q`` for p points of data.
    """

    mean: Tensor
    X: Tensor
    kernel: Kernel | None
    rows: Tensor
    L: Tensor | None = None
    less: tuple[Tensor, ...] = ()

    @lasting_property
    def plus(self) -> Tensor | None:
        """``V``, ``batch x o x q x r``: O(r^2) per point, in one solve for the whole batch."""
        if self.L is None:
            return self.rows if self.kernel is None else None
        return solved_rows(self.L, self.rows)

    @lasting_property
    def coefficients(self) -> Tensor:
        """``L^-T V``: coefficients of ``V_x'V_z`` as a function of x, ``batch x o x q x r``."""
        V = cast(Tensor, self.plus)
        return V if self.L is None else solved_rows(self.L.mT, V, upper=True)

    @lasting_property
    def spread(self) -> Tensor:
        """``a - L^-T V``: with it ``a_x'a_z - V_x'V_z`` is one product, ``batch x o x q x r``."""
        return self.rows if self.L is None else self.rows - self.coefficients

    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``."""
        parts = [] if self.plus is None else [self.plus.square().sum(-1)]
        if self.kernel is not None:
            prior = self.kernel(self.X.unsqueeze(-3), diag=True)
            parts.insert(0, prior - self.rows.square().sum(-1))
        parts += [-W.square().sum(-2) for W in self.less]
        return sum(parts[1:], parts[0])

    def covariance(
        self, other: Joint, M: Tensor | None = None, bare: Tensor | None = None
    ) -> Tensor:
        """Covariance with the values at other points, ``batch x o x q x q'``; batches broadcast.

        With M, ``o x q' x k``, its product with this: for points without batch without the whole.
        For these it may be given as it is without data that were added to the process.
        """
        if M is not None and self.X.ndim > 2:
            return self.covariance(other) @ M

        def on(columns: Tensor) -> Tensor:
            return columns if M is None else columns @ M

        batched = self.X.ndim > 2 and other.X.ndim == 2
        flat = flattened if batched else lambda rows: rows  # one product with many points
        if bare is not None:
            cov = on(bare)
        elif self.kernel is None:
            cov = product(flat(cast(Tensor, self.plus)), on(cast(Tensor, other.plus).mT))
        else:
            X = self.X.flatten(0, -2) if batched else self.X
            cov = on(cross_kernel(self.kernel, X, other.X))
            if self is other and self.L is not None:
                V = cast(Tensor, self.plus)
                cov = cov - self.rows @ self.rows.mT + V @ V.mT
            else:
                cov = reduced(cov, flat(self.rows), on(other.spread.mT))
        if batched:
            cov = cov.unflatten(-2, self.X.shape[:-1]).movedim(0, -3)
        for W, others in zip(self.less, other.less, strict=True):
            cov = reduced(cov, W.mT, on(others))
        return cov

    def joined(self, other: Joint) -> Joint:
        """The joint posterior at the points of both, which have no batch."""
        pairs = zip(self.less, other.less, strict=True)
        both = replace(
            self,
            mean=torch.cat([self.mean, other.mean], -1),
            X=torch.cat([self.X, other.X]),
            rows=torch.cat([self.rows, other.rows], -2),
            less=tuple(torch.cat(pair, -1) for pair in pairs),
        )
        for name in PARTS:
            if vars(self).get(name) is not None:
                vars(both)[name] = torch.cat([getattr(self, name), getattr(other, name)], -2)
        return both

    def conditioned(self, factors: Factors) -> Joint:
        """The same points given data: O(q^2) a point, in one solve for the whole batch if the data
        have none.
        """
        f, L, r = factors
        if f.mean.ndim == L.ndim - 1 == 2:
            W = solved_rows(L, self.covariance(f)).mT
        else:
            W = torch.linalg.solve_triangular(L, f.covariance(self), upper=False)
        mean = (self.mean.unsqueeze(-1) + products(W.mT, r)).squeeze(-1)
        return self.given(mean, (*self.less, W))

    def given(self, mean: Tensor, less: tuple[Tensor, ...]) -> Joint:
        """The same points given other data that were added to the process."""
        new = replace(self, mean=mean, less=less)
        vars(new).update({k: v for k, v in vars(self).items() if k in PARTS})
        return new

    def operator(self) -> LinearOperator:
        """The covariance ``batch x o x q x q`` as an operator whose diagonal is cheap."""
        parts = [] if self.plus is None else [MatmulLinearOperator(self.plus, self.plus.mT)]
        if self.kernel is not None:
            prior = self.kernel(self.X.unsqueeze(-3))
            parts.insert(0, prior + MatmulLinearOperator(-self.rows, self.rows.mT))
        parts += [MatmulLinearOperator(-W.mT, W) for W in self.less]
        return sum(parts[1:], parts[0])


def solved_rows(L: Tensor, rows: Tensor, *, upper: bool = False) -> Tensor:
    """``L^-1 a`` for rows a, ``batch x o x q x r``, and triangular L, ``o x r x r``.

    A single triangular solve for the whole batch, since a batched one would copy the factor. The
    rows are solved for as columns: faster if they are few, and each is then contiguous.
    """
    shape = *rows.shape[:-3], rows.shape[-2]
    flat = torch.linalg.solve_triangular(L, flattened(rows).mT, upper=upper).mT
    return flat.reshape(len(flat), *shape, flat.shape[-1]).movedim(0, -3)


def products(rows: Tensor, others: Tensor) -> Tensor:
    """``A B`` for ``batch x o x q x k`` and ``o x k x p``: a single product for the whole batch,
    since a batched one would copy B.
    """
    if rows.ndim == 3 or others.ndim > 3:
        return rows @ others
    return (
        (flattened(rows) @ others).unflatten(-2, (*rows.shape[:-3], rows.shape[-2])).movedim(0, -3)
    )


def product(A: Tensor, B: Tensor) -> Tensor:
    """``A B``, as the transpose of ``B'A'`` if that has fewer rows, which is faster."""
    return A @ B if A.shape[-2] <= B.shape[-1] else (B.mT @ A.mT).mT


def reduced(C: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """``C - A B``; without batch the product has no memory of its own."""
    if not (C.ndim == A.ndim == B.ndim == 3 and len(A) == len(B) >= len(C)):
        return C - products(A, B)
    return torch.baddbmm(C, A, B, alpha=-1.0)


def flattened(rows: Tensor) -> Tensor:
    """``batch x o x q x k`` to ``o x (batch q) x k``."""
    return rows.movedim(-3, 0).flatten(1, -2)


FEATURE_TILE = 4096
"""Points whose features are computed at a time."""

KEPT, COVARIANCES = 2**25, 2**27
"""Entries of joint posteriors, and covariances with the points of an integral, kept between calls
at most: 256 MiB and 1 GiB."""


Factors = tuple[Joint, Tensor, Tensor]
"""A joint posterior at q points, the factor ``L`` of ``cov + D``, ``L^-1 (Y - mean)``."""


@dataclass(frozen=True)
class Integral:
    """Sums over fixed points under one process; arguments are its joint posteriors.

    They go through the ``q x P`` covariance with the points summed over: O(P r) memory. A call
    costs O(P q (d + r)) time; r is the rank of the family's factors, n for an exact GP. On features
    at most r functionals stand for the points, however many these are.

    Attributes:
        t: The joint posterior at the points, or of the functionals.
        weights: Their weights, ``P``.
        kept: The rows of the last arguments of `gram_diagonal` and their covariances with t, if
            few, before data were added to the process.
    """

    t: Joint
    weights: Tensor
    kept: list[tuple[Tensor, Tensor]] = field(default_factory=list, compare=False)

    @classmethod
    def on_features(
        cls, basis: Callable[[Tensor], Tensor], L: Tensor | None, points: Tensor, weights: Tensor
    ) -> Integral:
        """Sums over points: O(P r^2 + r^3).

        With ``sum_t w_t V_t V_t' = F F'``, the functionals' covariances with values are ``F'V_x``.

        Args:
            basis: The functions ``a``, ``n x d`` to ``o x n x r``.
            L: Lower triangular, ``o x r x r``: ``V = L^-1 a``; None: ``V = a``.
            points: ``P x d``.
            weights: ``P``, not negative.
        """
        M = torch.zeros((), dtype=weights.dtype, device=weights.device)
        for X, w in zip(points.split(FEATURE_TILE), weights.split(FEATURE_TILE), strict=True):
            a = basis(X)
            M = M + (a * w.unsqueeze(-1)).mT @ a
        if L is not None:
            half = torch.linalg.solve_triangular(L, M, upper=False)
            M = torch.linalg.solve_triangular(L, half.mT, upper=False)
        roots = [torch.from_numpy(pivoted_root(each).T) for each in M.numpy(force=True)]
        F = pad_sequence(roots, batch_first=True).to(M)
        return cls(Joint(F[..., 0], F[0, :, :0], None, F), torch.ones_like(F[0, :, 0]))

    @lasting_property
    def total(self) -> Tensor:
        """Weighted sum of the variances, ``batch x o``."""
        return (self.t.variance() * self.weights).sum(-1)

    def gram(self, a: Joint, b: Joint) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``."""
        cov = self._times(b)
        weighted = (cov * self.weights).mT
        return cov @ weighted if a is b else self._times(a, weighted)

    def gram_diagonal(self, a: Joint) -> Tensor:
        """The diagonal of ``gram(a, a)``. The covariances of the last ``a``, such as parts of a
        pool from which a batch is selected, are kept for all data added, up to `COVARIANCES`.
        """
        if (
            a.X.ndim == 2
            and a.mean.numel() * len(self.weights) <= COVARIANCES
            and self._kept(a) is None
        ):
            bare, t = (joint.given(joint.mean, ()) for joint in (a, self.t))
            self.kept.append((a.rows, bare.covariance(t)))
            del self.kept[: -(COVARIANCES // max(cov.numel() for _, cov in self.kept))]
        return self._times(a).square() @ self.weights

    def conditioned(self, factors: Factors) -> Integral:
        """The sums under the process conditioned on data."""
        _ = self.t.spread  # from here on for all data added
        return Integral(self.t.conditioned(factors), self.weights, self.kept)

    def _times(self, a: Joint, M: Tensor | None = None) -> Tensor:
        """Covariance with the points summed over, ``batch x o x q x P``, or its product with M."""
        return a.covariance(self.t, M, self._kept(a))

    def _kept(self, a: Joint) -> Tensor | None:
        """The covariance kept for these rows, if they are the last ones of any thread."""
        return next((cov for rows, cov in tuple(self.kept) if rows is a.rows), None)
