"""The action matrix S (n x i) of a computation-aware GP: block sparse or dense.  [CaGP, eq. 14;
MATHS 5.1, 5.3]

Actions are the linear functionals S'y of the data a computation-aware GP conditions on.
`BlockMatrix` holds one value a row (its column given by an index), so S costs O(n); `DenseMatrix`
holds all n i numbers. Both offer the few products that posterior, losses, appends and compression
need. Columns are kept at length one, S'S = I; the posterior depends on the span of S alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BlockMatrix:
    """S[j, block[j]] = values[j], all else zero.

    Attributes:
        block: ``n`` column indices, int64. Every column is met.
        values: ``n`` values, float64.
        num_actions: Columns i.
    """

    block: Tensor
    values: Tensor
    num_actions: int

    @property
    def num_rows(self) -> int:
        """Rows n."""
        return self.block.shape[0]

    def transpose_times(self, A: Tensor) -> Tensor:
        """S'A for A ``n`` or ``n x p``. O(n p)."""
        weighted = A * (self.values if A.dim() == 1 else self.values[:, None])
        out = weighted.new_zeros(self.num_actions, *A.shape[1:])
        return out.index_add(0, self.block, weighted)

    def right_of(self, K: Tensor) -> Tensor:
        """K S for K ``p x n``. O(p n)."""
        out = K.new_zeros(K.shape[0], self.num_actions)
        return out.scatter_add(1, self.block.expand(K.shape[0], -1), K * self.values)

    def gram(self, weights: Tensor) -> Tensor:
        """S' diag(weights) S, ``i x i``: diagonal, as no two columns share a row."""
        return torch.diag_embed(self._gram_diagonal(weights))

    def gram_logdet(self, weights: Tensor) -> Tensor:
        """log|S' diag(weights) S|."""
        return self._gram_diagonal(weights).log().sum()

    def _gram_diagonal(self, weights: Tensor) -> Tensor:
        squares = self.values.square() * weights
        return squares.new_zeros(self.num_actions).index_add(0, self.block, squares)

    def normalised(self) -> BlockMatrix:
        """The same span with columns of unit length."""
        norms = self._gram_diagonal(torch.ones_like(self.values)).sqrt()
        return BlockMatrix(self.block, self.values / norms[self.block], self.num_actions)

    def append(self, other: BlockMatrix) -> BlockMatrix:
        """blkdiag(S, other)."""
        block = torch.cat([self.block, other.block + self.num_actions])
        values = torch.cat([self.values, other.values])
        return BlockMatrix(block, values, self.num_actions + other.num_actions)

    def merge(self, target: Tensor, weights: Tensor) -> BlockMatrix:
        """S T for T[a, target[a]] = weights[a]: the blocks of one target become one block."""
        block, values = target[self.block], self.values * weights[self.block]
        return BlockMatrix(block, values, int(target.max()) + 1)

    def dense(self) -> Tensor:
        """S, ``n x i``."""
        S = self.values.new_zeros(self.values.numel(), self.num_actions)
        return S.scatter(1, self.block[:, None], self.values[:, None])


@dataclass(frozen=True)
class DenseMatrix:
    """A dense S (``n x i``, full column rank), a constant of every gradient."""

    S: Tensor

    @property
    def num_actions(self) -> int:
        """Columns i."""
        return self.S.shape[1]

    @property
    def num_rows(self) -> int:
        """Rows n."""
        return self.S.shape[0]

    def transpose_times(self, A: Tensor) -> Tensor:
        """S'A for A ``n`` or ``n x p``. O(n i p)."""
        return self.S.mT @ A

    def right_of(self, K: Tensor) -> Tensor:
        """K S for K ``p x n``. O(p n i)."""
        return K @ self.S

    def gram(self, weights: Tensor) -> Tensor:
        """S' diag(weights) S, ``i x i``. O(n i^2)."""
        return self.S.mT @ (weights[:, None] * self.S)

    def gram_logdet(self, weights: Tensor) -> Tensor:
        """log|S' diag(weights) S|."""
        factor = torch.linalg.cholesky(self.gram(weights))
        return 2.0 * factor.diagonal().log().sum()

    def append(self, other: BlockMatrix) -> DenseMatrix:
        """blkdiag(S, other)."""
        return DenseMatrix(torch.block_diag(self.S, other.dense()))

    def merge(self, target: Tensor, weights: Tensor) -> DenseMatrix:
        """S T for T[a, target[a]] = weights[a]."""
        T = self.S.new_zeros(target.numel(), int(target.max()) + 1)
        return DenseMatrix(self.S @ T.scatter(1, target[:, None], weights[:, None]))

    def dense(self) -> Tensor:
        """S itself."""
        return self.S


ActionMatrix = BlockMatrix | DenseMatrix


def identity_actions(n: int, like: Tensor) -> BlockMatrix:
    """S = I_n: one action a point, on the device and in the dtype of ``like``."""
    return BlockMatrix(torch.arange(n, device=like.device), like.new_ones(n), n)


def one_action(n: int, like: Tensor) -> BlockMatrix:
    """One normalised column over n points."""
    block = torch.zeros(n, dtype=torch.int64, device=like.device)
    return BlockMatrix(block, like.new_full((n,), max(n, 1) ** -0.5), min(n, 1))
