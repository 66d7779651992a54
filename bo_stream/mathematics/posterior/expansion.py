"""Covariances that are a kernel minus a quadratic form in finitely many functions.

Every family but the grid's has ``cov(x, z) = k(x, z) - a_x' W a_z`` with ``a_x = R^-1 b(x)``:

    ========================  =====================  ================  ==============
    family                    b(x)                   R                 W
    ========================  =====================  ================  ==============
    exact, computation-aware  k(X, x), S'k(X, x)     factor of K + D   I
    nodes, inducing points    k(Z, x)                root of k(Z, Z)   I - L_Q^-T L_Q^-1
    sine features (no k)      phi(x)                 I                 -S
    ========================  =====================  ================  ==============

New data change W by a matrix of low rank, or append to a_x, or both. So covariances at fixed points
change by low rank (`change_from`) while the hyperparameters stay the same [MATHS 10].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.linalg import chol_psd, low_rank
from bo_stream.mathematics.posterior.factor import cross_kernel
from bo_stream.mathematics.posterior.row_matching import matching_rows

__all__ = ["Expansion", "on_nodes"]

LONGER = 1.25
"""Ratio of all nodes so far to nodes in use from which the basis is started again."""
MOST = 64
"""Rank of a change of W above which all is computed again."""
ROUNDING = 1e-13
"""Tolerance of a low-rank change, relative to the reduction of variance by W."""


@dataclass(frozen=True)
class Expansion:
    """``cov(x, z) = k(x, z) - a_x' W a_z``, ``a_x = R^-1 b(x)`` of length r.

    Attributes:
        kernel: The prior's kernel, frozen, or None if there is no ``k``.
        R: ``o x r x r``, lower triangular; None for the identity.
        W: ``o x r x r``; None for the identity.
        values: ``b`` at ``n x d`` points from some row on: ``o x (r - first) x n``.
        defining_tensors: Tensors that determine ``R`` and ``b``; those of a basis that begins with
            this one's functions begin with these.
    """

    kernel: Kernel | None
    R: Tensor | None
    W: Tensor | None
    values: Callable[[Tensor, int], Tensor]
    defining_tensors: tuple[Tensor, ...]

    def rows(self, X: Tensor) -> Tensor:
        """``a`` at points ``n x d``: ``o x r x n``."""
        b = self.values(X, 0)
        return b if self.R is None else torch.linalg.solve_triangular(self.R, b, upper=False)

    def continued(self, rows: Tensor, X: Tensor) -> Tensor:
        """``a`` at points whose first entries are known."""
        first = rows.shape[-2]
        b = self.values(X, first)
        if self.R is None or not b.shape[-2]:
            return rows
        b = b - self.R[..., first:, :first] @ rows
        new = torch.linalg.solve_triangular(self.R[..., first:, first:], b, upper=False)
        return torch.cat([rows.expand(*new.shape[:-2], -1, -1), new], -2)

    def continues(self, before: Expansion) -> bool:
        """Whether this expansion begins with the functions of another, under the same kernel."""
        pairs = zip(before.defining_tensors, self.defining_tensors, strict=False)
        return all(a is b or _begins(a, b) for a, b in pairs)

    def change_from(self, before: Expansion, rows: Tensor) -> tuple[Tensor, Tensor] | None:
        """The change of covariances: ``U`` (``o x k x n``) and signed weights ``s`` (``o x k``).

        Covariances between points are those under ``before`` minus ``U' diag(s) U``.

        Args:
            before: An expansion that this one continues.
            rows: ``a`` at the points, ``o x r x n``.

        Returns:
            None if the change is not of low rank.
        """
        if self.W is None or before.W is None:
            new = rows[..., before.size :, :]
            return new, torch.ones_like(new[..., 0])
        wide = torch.zeros_like(self.W)
        wide[..., : before.size, : before.size] = before.W
        # scaled so that every function has size one at the points
        size = rows.square().mean(-1).sqrt().clamp_min(torch.finfo(rows.dtype).tiny)
        change = size.unsqueeze(-1) * (self.W - wide) * size.unsqueeze(-2)
        scale = (size.square() * wide.diagonal(dim1=-2, dim2=-1).abs()).sum(-1)
        found = low_rank(change, MOST, ROUNDING * float(scale.max()))
        return None if found is None else (found[0] @ (rows / size.unsqueeze(-1)), found[1])

    def given(self, X: Tensor, L: Tensor) -> Expansion:
        """The process given observations at ``q x d`` points.

        Args:
            X: The points.
            L: Cholesky factor of their covariance plus noise, ``o x q x q``.
        """
        a, r = self.weighted(self.rows(X)), self.size
        R = L.new_zeros(*L.shape[:-2], r + len(X), r + len(X))
        R[..., :r, :r] = torch.eye(r).to(L) if self.R is None else self.R
        R[..., r:, :r], R[..., r:, r:] = a.mT, L
        W = None
        if self.W is not None:
            W = torch.zeros_like(R)
            W[..., :r, :r] = self.W
            W.diagonal(dim1=-2, dim2=-1)[..., r:] = 1.0

        def values(points: Tensor, first: int) -> Tensor:
            new = self.prior(X[max(first - r, 0) :], points)
            if first >= r:
                return new
            old = self.values(points, first)
            return torch.cat([old.expand(*new.shape[:-2], -1, -1), new], -2)

        return replace(self, R=R, W=W, values=values)

    @property
    def outputs(self) -> int:
        """The number of outputs o."""
        return len(cast(Tensor, self.R if self.W is None else self.W))

    @property
    def size(self) -> int:
        """The number of functions r."""
        return cast(Tensor, self.R if self.W is None else self.W).shape[-1]

    def weighted(self, rows: Tensor) -> Tensor:
        """``W a``."""
        return rows if self.W is None else self.W @ rows

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        """``k`` between ``n x d`` and ``n' x d`` points, ``o x n x n'``."""
        if self.kernel is None:
            return X.new_zeros(1, len(X), len(Z))
        return cross_kernel(self.kernel, X, Z)

    def variances(self, X: Tensor, rows: Tensor) -> Tensor:
        """Marginal variances at ``n x d`` points, ``o x n``."""
        less = (rows * self.weighted(rows)).sum(-2)
        if self.kernel is None:
            return -less
        prior: Tensor = self.kernel(X.unsqueeze(-3), diag=True)
        return prior - less


def on_nodes(
    kernel: Kernel, Z: Tensor, R: Tensor, W: Tensor, before: Expansion | None
) -> Expansion:
    """The expansion in kernels at nodes, ``b(x) = k(Z, x)``.

    With ``before``, it is over the nodes of both, so that it continues ``before`` whichever nodes
    were replaced, unless these are many more than the nodes in use.

    Args:
        kernel: The kernel.
        Z: ``m x d``.
        R: Root of ``k(Z, Z)``, ``o x m x m``.
        W: ``o x m x m``.
        before: An expansion on nodes under the same kernel, or None.
    """
    if before is not None and not (
        _same(before.defining_tensors[0], Z) and _same(before.defining_tensors[1], R)
    ):
        joint = _joined(kernel, Z, R, W, before)
        if joint is not None:
            Z, R, W = joint
    return Expansion(kernel, R, W, lambda X, first: cross_kernel(kernel, Z[first:], X), (Z, R))


def _joined(
    kernel: Kernel, Z: Tensor, R: Tensor, W: Tensor, before: Expansion
) -> tuple[Tensor, Tensor, Tensor] | None:
    """All nodes, their root and W: as ``k(Z, x) = R_all[Z] a_all``, ``a = R^-1 R_all[Z] a_all``."""
    Z_all, R_all = before.defining_tensors
    if not len(Z_all) or not len(Z):
        return None
    place = matching_rows(Z, Z_all)
    new = Z[place < 0]
    if len(Z_all) + len(new) > LONGER * len(Z) + MOST:
        return None
    place[place < 0] = torch.arange(len(new), device=Z.device) + len(Z_all)
    if len(new):
        r, side = len(Z_all), cross_kernel(kernel, Z_all, new)
        below = torch.linalg.solve_triangular(R_all, side, upper=False).mT
        corner = cross_kernel(kernel, new, new) - below @ below.mT
        wide = R_all.new_zeros(*R_all.shape[:-2], r + len(new), r + len(new))
        wide[..., :r, :r], wide[..., r:, :r] = R_all, below
        wide[..., r:, r:] = chol_psd(corner)
        Z_all, R_all = torch.cat([Z_all, new]), wide
    change = torch.linalg.solve_triangular(R, R_all[..., place, :], upper=False)
    return Z_all, R_all, change.mT @ W @ change


def _same(a: Tensor, b: Tensor) -> bool:
    return a.device == b.device and torch.equal(a, b)


def _begins(first: Tensor, whole: Tensor) -> bool:
    """Whether a tensor is the leading corner of another."""
    if first.device != whole.device or first.ndim != whole.ndim:
        return False
    return torch.equal(first, whole[tuple(slice(size) for size in first.shape)])
