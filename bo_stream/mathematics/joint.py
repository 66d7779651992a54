"""The joint Gaussian of the latent function at some points, from factors.

Shapes: points ``batch x q x d`` in transformed space, float64. The output dimension ``o`` (the
number of independent outputs) is always present, just before the point dimensions: means ``batch x
o x q``, covariances ``batch x o x q x q'``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import LinearOperator, MatmulLinearOperator
from torch import Tensor

from bo_stream.mathematics.kernels import cross_kernel
from bo_stream.mathematics.lasting import lasting_property

__all__ = ["Joint", "products", "solved_rows"]


@dataclass(frozen=True)
class Joint:
    """Joint posterior with covariance ``k(x, z) - a_x'a_z + V_x'V_z - W_x'W_z``.

    ``V_x = L^-1 a_x`` is zero without L. Without a kernel the prior is ``a_x'a_z``, and the first
    two terms cancel. There is one ``W`` for each time that data were added to the process.

    Attributes:
        mean: ``batch x o x q``.
        X: Points, ``batch x q x d``.
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

    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``."""
        parts = [] if self.plus is None else [self.plus.square().sum(-1)]
        if self.kernel is not None:
            prior = self.kernel(self.X.unsqueeze(-3), diag=True)
            parts.insert(0, prior - self.rows.square().sum(-1))
        parts += [-W.square().sum(-2) for W in self.less]
        return sum(parts[1:], parts[0])

    def covariance(self, other: Joint) -> Tensor:
        """Covariance with the values at other points, ``batch x o x q x q'``; batches broadcast."""
        return self.times(other)

    def times(self, other: Joint, M: Tensor | None = None) -> Tensor:
        """The covariance, or its product with M (``o x q' x k``): for points without batch without
        the whole covariance.
        """
        if M is not None and self.X.ndim > 2:
            return self.covariance(other) @ M

        def on(columns: Tensor) -> Tensor:
            return columns if M is None else columns @ M

        def inner(rows: Tensor, others: Tensor) -> Tensor:
            """``A (B' M)`` as the transpose of ``(M'B) A'``, which is the faster product where A is
            stored by columns and B has few rows.
            """
            return ((others if M is None else M.mT @ others) @ rows.mT).mT

        batched = self.X.ndim > 2 and other.X.ndim == 2
        left = self._flat() if batched else self  # a product with many points is one product
        terms = []
        if self.kernel is not None:
            terms.append(on(cross_kernel(self.kernel, left.X, other.X)))
            terms.append(-inner(left.rows, other.rows))
        if left.plus is not None and other.plus is not None:
            terms.append(inner(left.plus, other.plus))
        cov = sum(terms[1:], terms[0])
        if batched:
            cov = cov.unflatten(-2, self.X.shape[:-1]).movedim(0, -3)
        for W, others in zip(self.less, other.less, strict=True):
            cov = cov - products(W.mT, on(others))
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
        for name in ("plus", "coefficients"):
            if self.L is not None and name in vars(self):
                vars(both)[name] = torch.cat([getattr(self, name), getattr(other, name)], -2)
        return both

    def updated(self, mean: Tensor, *less: Tensor) -> Joint:
        """The same points with another mean and other ``W``."""
        new = replace(self, mean=mean, less=less)
        vars(new).update({k: v for k, v in vars(self).items() if k in ("plus", "coefficients")})
        return new

    def _flat(self) -> Joint:
        """The same points without batch and data."""
        X, mean = self.X.reshape(-1, self.X.shape[-1]), flattened(self.mean.unsqueeze(-1))[..., 0]
        flat = Joint(mean, X, self.kernel, flattened(self.rows), self.L)
        if self.plus is not None:
            vars(flat)["plus"] = flattened(self.plus)
        return flat

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

    A single triangular solve for the whole batch, since a batched one would copy the factor.
    """
    shape = rows.shape[:-3], rows.shape[-2]
    flat = torch.linalg.solve_triangular(L.mT, flattened(rows), upper=not upper, left=False)
    return flat.unflatten(-2, (*shape[0], shape[1])).movedim(0, -3)


def products(rows: Tensor, others: Tensor) -> Tensor:
    """``A B`` for ``batch x o x q x k`` and ``o x k x p``: a single product for the whole batch,
    since a batched one would copy B.
    """
    if rows.ndim == 3 or others.ndim > 3:
        return rows @ others
    shape = rows.shape[:-3], rows.shape[-2]
    product = flattened(rows) @ others
    return product.unflatten(-2, (*shape[0], shape[1])).movedim(0, -3)


def flattened(rows: Tensor) -> Tensor:
    """``batch x o x q x k`` to ``o x (batch q) x k``."""
    return rows.movedim(-3, 0).flatten(1, -2)
