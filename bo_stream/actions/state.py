"""The state of a computation-aware GP on a stream, and its update by a batch.  [MATHS 5.4]

The state is the data (all of them), the actions S, and L = chol(S'(K + D)S) under the
hyperparameters of its last factorisation. A batch has actions of its own: S grows by a block, L by
a border. If there are too many actions then, pairs of them are merged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, Self

import torch
from torch import Tensor

from bo_stream.actions.history import FitHistory
from bo_stream.actions.policy import Actions
from bo_stream.mathematics.computation_aware.compression import compress
from bo_stream.mathematics.computation_aware.locality import locality_blocks
from bo_stream.mathematics.computation_aware.matrix import (
    ActionMatrix,
    BlockMatrix,
    DenseMatrix,
    identity_actions,
    one_action,
)
from bo_stream.mathematics.computation_aware.objective import border
from bo_stream.mathematics.computation_aware.problem import Prior, RegressionProblem
from bo_stream.mathematics.computation_aware.products import cross_product
from bo_stream.mathematics.shapes import shaped

__all__ = ["Append", "CaGPState", "batch_actions"]

Append = Literal["identity", "block"]


@dataclass(frozen=True)
class CaGPState:
    """Data, actions and their factor, and the history of fits.

    Attributes:
        X: Inputs, ``n x d``.
        Y: Targets, ``n``.
        R: Noise variances before the prior's noise scale, ``n``.
        block: Column of each row of a block-sparse S; else empty.
        values: The values of a block-sparse S, ``n``; else empty.
        dense: A dense S, ``n x i``; else empty.
        L: The factor, ``i x i``; empty if unknown.
        made_with: The hyperparameters of L, flat.
        history: The history of fits.
    """

    X: Tensor = shaped("n d")
    Y: Tensor = shaped("n")
    R: Tensor = shaped("n", "positive")
    block: Tensor = shaped("b", "not negative")
    values: Tensor = shaped("b")
    dense: Tensor = shaped("e f")
    L: Tensor = shaped("i i")
    made_with: Tensor = shaped("p")
    history: FitHistory = field(kw_only=True)

    @classmethod
    def empty(cls, dim: int, made_with: Tensor) -> Self:
        """Before any data of ``dim`` inputs, under these hyperparameters (flat)."""
        none, square = torch.empty(0, dtype=torch.float64), torch.empty(0, 0, dtype=torch.float64)
        block = torch.empty(0, dtype=torch.int64)
        X, history = square.new_empty(0, dim), FitHistory.empty()
        return cls(X, none, none, block, none, square, square, made_with, history=history)

    @property
    def size(self) -> int:
        """The number of data n."""
        return self.X.shape[0]

    @property
    def S(self) -> ActionMatrix:
        """The actions, ``n x i``."""
        if self.dense.numel():
            return DenseMatrix(self.dense)
        count = int(self.block.max()) + 1 if self.block.numel() else 0
        return BlockMatrix(self.block, self.values, count)

    def problem(self, prior: Prior) -> RegressionProblem:
        """The data under a prior."""
        return RegressionProblem(self.X, self.Y, prior.noise * self.R, prior.kernel, prior.mean)

    def factored_under(self, prior: Prior) -> bool:
        """Whether L is the factor under this prior."""
        return self.L.shape[0] > 0 and torch.equal(self.made_with, prior.hyperparameters)

    def with_actions(
        self, S: ActionMatrix, L: Tensor | None = None, made_with: Tensor | None = None
    ) -> Self:
        """The same data with actions S and, if known, their factor under ``made_with``."""
        L = self.L[:0, :0] if L is None else L
        made_with = self.made_with if made_with is None else made_with
        if isinstance(S, BlockMatrix):
            block, values, dense = S.block, S.values, self.dense[:0, :0]
        else:
            block, values, dense = self.block[:0], self.values[:0], S.S
        return replace(self, block=block, values=values, dense=dense, L=L, made_with=made_with)

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The same data with targets ``(y - shift) / factor``; known noise takes a new factor."""
        state = replace(self, Y=(self.Y - shift) / factor)
        if not known_noise:
            return state
        return replace(state, R=self.R / factor.square()).with_actions(self.S)

    def current_actions(self, policy: Actions, prior: Prior) -> ActionMatrix:
        """S, rebuilt if it depends on hyperparameters that have changed."""
        if not (self.size and policy.follows_hyperparameters) or self.factored_under(prior):
            return self.S
        return policy.made_for(self.problem(prior))

    def refactored(self, policy: Actions, prior: Prior) -> Self:
        """The state with the current actions, factored under other hyperparameters."""
        S, problem = self.current_actions(policy, prior), self.problem(prior)
        return self.with_actions(S, problem.factor(S), prior.hyperparameters)

    def started(self, X: Tensor, y: Tensor, r: Tensor, S: ActionMatrix, prior: Prior) -> Self:
        """The state after the first data (``n x d``, ``n``, ``n``) with actions S. O(n^2) kernel
        values.
        """
        first = replace(self, X=X.clone(), Y=y.clone(), R=r.clone())
        return first.with_actions(S, first.problem(prior).factor(S), prior.hyperparameters)

    def appended(
        self,
        X: Tensor,
        y: Tensor,
        r: Tensor,
        S2: BlockMatrix,
        prior: Prior,
        limit: int | None,
        budget: int,
    ) -> Self:
        """S <- blkdiag(S, S2) and L bordered; actions are merged if there are too many.

        O(n q) kernel values, O(i^2 j) time, and O(i^3) where actions are merged. The history counts
        the standardised residuals of the new projected data, predicted from the old.

        Args:
            X: New inputs, ``q x d``.
            y: New targets, ``q``.
            r: Their noise variances in the units of the state, ``q``.
            S2: Their actions, ``q x j``.
            prior: The prior, under which the state must be factored.
            limit: Largest number of actions; None for no limit.
            budget: Number of actions after merging.
        """
        i, S = self.L.shape[0], self.S.append(S2)
        X, y, r = (torch.cat(pair) for pair in ((self.X, X), (self.Y, y), (self.R, r)))
        new, noise = slice(self.size, None), prior.noise * r
        rows = S2.transpose_times(cross_product(prior.kernel, X[new], X, S))  # j x (i + j)
        L = border(self.L, rows[:, :i], rows[:, i:] + S2.gram(noise[new]))
        u = S.transpose_times(y - prior.mean)
        w = torch.linalg.solve_triangular(L, u[:, None], upper=False)[i:, 0]
        if limit is not None and S.num_actions > limit:
            S, L = compress(S, L, u, noise, budget)
        whole = replace(self, X=X, Y=y, R=r, history=self.history.surprised(w))
        return whole.with_actions(S, L, prior.hyperparameters)


def batch_actions(X: Tensor, append: Append, budget: int | None) -> BlockMatrix:
    """The actions of a later batch (``q x d``): one for each point, or one for the batch.

    More points than the budget are divided into ``budget`` blocks of neighbours.
    """
    q = X.shape[0]
    if append == "block":
        return one_action(q, X)
    if budget is None or q <= budget:
        return identity_actions(q, X)
    return BlockMatrix(locality_blocks(X, budget), torch.ones_like(X[:, 0]), budget).normalised()
