"""Covariances of a pool of candidates with fixed test points, kept between steps [MATHS 10].

The ``N x P`` covariances, which integrated variance over a pool needs, are computed once. While
hyperparameters and test points stay the same, new data subtract a product of low rank from them,
and candidates may leave the pool: O(N P q + r q (N + P)) per step instead of O(N P r).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from bo_stream.mathematics.lasting import lasting
from bo_stream.mathematics.posterior.expansion import Expansion
from bo_stream.mathematics.posterior.process import PosteriorProcess
from bo_stream.mathematics.posterior.row_matching import matching_rows

__all__ = ["KeptCovariances", "ExpandedProcess", "PoolCovariances"]

LARGEST = 2**25
"""Most numbers kept, ``o (N P + r (N + P))``: 256 MB. Larger pools are not kept. Pending changes
take up to `DEEP` rows more; during a step, there are both old and new numbers."""
BLOCK = 256
"""Candidates in a block of covariances."""
DEEP = 64
"""Rank of pending changes above which they are subtracted from the covariances."""
SPARSE = 0.75
"""Share of the candidates left in the pool below which the others are dropped."""


@dataclass(frozen=True)
class PoolCovariances:
    """``N`` candidates and ``P`` weighted points under one process.

    Attributes:
        expansion: The process.
        X: Candidates, ``N x d``, transformed, of which some may have left the pool.
        points: ``P x d``, transformed; may be none.
        weights: ``P``.
        rows: The expansion's functions at candidates and points, ``o x r x (N + P)``.
        variances: At candidates and points, ``o x (N + P)``.
        cov: Covariances ``o x n x P`` of blocks of candidates, before pending changes.
        left: Pending changes: ``left' right`` is to be subtracted; ``o x k x N``.
        right: ``o x k x P``.
        place: Row in ``X`` of each remaining candidate; None if all remain.
    """

    expansion: Expansion
    X: Tensor
    points: Tensor
    weights: Tensor
    rows: Tensor
    variances: Tensor
    cov: tuple[Tensor, ...]
    left: Tensor
    right: Tensor
    place: Tensor | None = None

    @classmethod
    def over(
        cls, expansion: Expansion, X: Tensor, points: Tensor, weights: Tensor
    ) -> PoolCovariances:
        """Computed from the points: O(N P r + r^2 (N + P))."""
        both, N = torch.cat([X, points]), len(X)
        rows = expansion.rows(both)
        variances = expansion.variances(both, rows)
        right = expansion.weighted(rows[..., N:])
        candidates = zip(X.split(BLOCK), rows[..., :N].split(BLOCK, -1), strict=True)
        cov = tuple(expansion.prior(part, points) - a.mT @ right for part, a in candidates)
        left, right = (variances.new_empty(len(variances), 0, n) for n in (N, len(points)))
        return cls(expansion, X, points, weights, rows, variances, cov, left, right)

    def under(self, expansion: Expansion, deep: int = DEEP) -> PoolCovariances | None:
        """The same under another expansion, if this is a change of low rank; else None.

        Pending changes of a rank above ``deep`` are applied.
        """
        if not expansion.continues(self.expansion):
            return None
        N = len(self.X)
        rows = expansion.continued(self.rows, torch.cat([self.X, self.points]))
        change = expansion.change_from(self.expansion, rows)
        if change is None:
            return None
        U, s = change[0], change[1].unsqueeze(-1)
        variances = self.variances - (s * U.square()).sum(-2)
        left = torch.cat([self.left, s * U[..., :N]], -2)
        right = torch.cat([self.right, U[..., N:]], -2)
        new = replace(self, expansion=expansion, rows=rows, variances=variances)
        new = replace(new, left=left, right=right)
        return new._applied() if left.shape[-2] > deep else new

    def narrowed(self, X: Tensor, points: Tensor, weights: Tensor) -> PoolCovariances | None:
        """Some of the candidates, if the test points are the same; else None."""
        alike = _same(points, self.points) and _same(weights, self.weights)
        if not alike or X.shape[-1] != self.X.shape[-1] or X.device != self.X.device:
            return None
        if _same(X, self.X):
            return replace(self, place=None)
        place = matching_rows(X, self.X)
        if bool((place < 0).any()):
            return None
        if len(X) > SPARSE * len(self.X):
            return replace(self, place=place)
        N = len(self.X)
        both = torch.cat([place, torch.arange(N, N + len(points), device=X.device)])
        rows, variances = self.rows[..., both], self.variances[..., both]
        cov = torch.cat(self.cov, -2)[..., place, :].split(BLOCK, -2)
        new = replace(self, X=X, place=None, rows=rows, variances=variances, cov=cov)
        return replace(new, left=self.left[..., place])

    @property
    def total(self) -> Tensor:
        """Weighted sum of the points' variances, ``o``."""
        return self.variances[..., len(self.X) :] @ self.weights

    @property
    def variance(self) -> Tensor:
        """Variances of the candidates, ``o x N``."""
        return self._placed(self.variances[..., : len(self.X)])

    def gram_diagonal(self) -> Tensor:
        """``sum_t w_t cov(c, t)^2`` of the candidates, ``o x N``."""
        parts = [block.square() @ self.weights for block in self._blocks()]
        return self._placed(torch.cat(parts, -1))

    def among(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """``cov`` and ``sum_t w_t cov(., t) cov(t, .)`` among ``s x d`` points, ``o x s x s``."""
        a = self.expansion.rows(X)
        cov = self.expansion.prior(X, X) - self.expansion.weighted(a).mT @ a
        to_points = self._with_both(X)[1]
        return cov, (to_points * self.weights) @ to_points.mT

    def against(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """The same between ``s x d`` points and the candidates, ``o x s x N``."""
        cov, to_points = self._with_both(X)
        weighted = to_points * self.weights
        gram = torch.cat([weighted @ block.mT for block in self.cov], -1)
        gram = gram - (weighted @ self.right.mT) @ self.left
        return self._placed(cov), self._placed(gram)

    def _blocks(self) -> Iterator[Tensor]:
        """Covariances ``o x n x P`` of blocks of candidates, one block at a time."""
        parts = zip(self.cov, self.left.mT.split(BLOCK, -2), strict=True)
        return (
            c if not u.shape[-1] else torch.baddbmm(c, u, self.right, alpha=-1.0) for c, u in parts
        )

    def _applied(self) -> PoolCovariances:
        """The same with pending changes subtracted."""
        left, right = self.left[..., :0, :], self.right[..., :0, :]
        return replace(self, cov=tuple(self._blocks()), left=left, right=right)

    def _with_both(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Covariances with all candidates, ``o x s x N``, and with the points, ``o x s x P``."""
        less = self.expansion.weighted(self.expansion.rows(X)).mT @ self.rows
        cov = self.expansion.prior(X, torch.cat([self.X, self.points])) - less
        return cov[..., : len(self.X)], cov[..., len(self.X) :]

    def _placed(self, values: Tensor) -> Tensor:
        return values if self.place is None else values[..., self.place]


@dataclass(eq=False)
class KeptCovariances:
    """Covariances kept for the next process under the same hyperparameters. Copies are empty.

    Attributes:
        kept: The last covariances, and whether they belong to this process or an earlier one.
    """

    kept: tuple[PoolCovariances, bool] | None = None

    def __reduce__(self) -> tuple[type[KeptCovariances], tuple[()]]:
        return KeptCovariances, ()


@dataclass(frozen=True)
class ExpandedProcess(PosteriorProcess):
    """A process with an `Expansion`, which keeps the covariances of one pool."""

    carry: KeptCovariances = field(
        default_factory=KeptCovariances, kw_only=True, compare=False, repr=False
    )

    @abstractmethod
    def expansion(self, before: Expansion | None) -> Expansion:
        """The process as an expansion that continues ``before``, if it can.

        ``before`` is one of an earlier process of the same surrogate and hyperparameters.
        """

    def follow(self, before: PosteriorProcess) -> None:
        """Take over the covariances that an earlier process kept."""
        if isinstance(before, ExpandedProcess) and before.carry.kept is not None:
            self.carry.kept = before.carry.kept[0], before is self

    @lasting
    def pool(
        self, X: Tensor, points: Tensor, weights: Tensor, largest: int = LARGEST
    ) -> PoolCovariances | None:
        """Kept for the next call and the next process; None if they are more numbers than
        ``largest``.
        """
        with torch.no_grad():
            kept = self.carry.kept
            made = None if kept is None else kept[0].narrowed(X, points, weights)
            if made is None or kept is None:
                made = self._anew(X, points, weights, largest)
            elif not kept[1]:
                made = self._brought_forward(made, largest)
                made = made or self._anew(X, points, weights, largest)
            self.carry.kept = None if made is None else (made, True)
            return made

    def _anew(
        self, X: Tensor, points: Tensor, weights: Tensor, largest: int
    ) -> PoolCovariances | None:
        expansion = self.expansion(None)
        if _numbers(expansion, len(X), len(points)) > largest:
            return None
        return PoolCovariances.over(expansion, X, points, weights)

    def _brought_forward(self, made: PoolCovariances, largest: int) -> PoolCovariances | None:
        expansion = self.expansion(made.expansion)
        fits = _numbers(expansion, len(made.X), len(made.points)) <= largest
        return made.under(expansion) if fits else None


def _numbers(expansion: Expansion, N: int, P: int) -> int:
    return expansion.outputs * (N * P + expansion.size * (N + P))


def _same(a: Tensor, b: Tensor) -> bool:
    return a.device == b.device and torch.equal(a, b)
