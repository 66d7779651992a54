"""The statistics of a grid in an eigenbasis [MATHS 2.7].

``F'A F`` for features ``F = prod_k V_k`` needs, in each dimension, the products of two columns of
``V_k`` over pairs of nodes. These products span few dimensions. On a large grid A is projected on
this span once. The projection serves all features whose products lie in the span: those of longer
and of slightly shorter lengthscales. Its cost does not depend on the number of observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from bo_stream.mathematics.grid.bands import REACH
from bo_stream.mathematics.grid.eigenbasis import Eigenbasis
from bo_stream.mathematics.grid.kronecker import kron_right
from bo_stream.mathematics.grid.state import MOST_A_SIDE, GridState

__all__ = ["Compressed", "CompressedStatistics", "node_pairs"]

FEW_NODES = 1500
"""Nodes up to which A is used as a matrix."""
SPAN = 1e-11
"""Relative size below which directions of the products are left out of the span."""
SERVES = 1e-10
"""Largest share of the products that may lie outside of the span."""
WIDER = 1e-2
"""The span is made with eigenvectors down to this share of the smallest eigenvalue kept."""


@dataclass(eq=False)
class CompressedStatistics:
    """What depends on a state alone, kept for evaluations at other hyperparameters.

    Attributes:
        totals: ``W'R^-1 1``, ``1'R^-1 y`` and ``1'R^-1 1`` of all outputs.
        matrices: A as a matrix, by output.
        compressed: The projected A of a large grid, by output.
    """

    totals: tuple[Tensor, Tensor, Tensor] | None = None
    matrices: dict[int, Tensor] = field(default_factory=dict)
    compressed: dict[int, Compressed] = field(default_factory=dict)

    def totals_of(self, state: GridState) -> tuple[Tensor, Tensor, Tensor]:
        """The totals, computed on the first call."""
        self.totals = state.totals() if self.totals is None else self.totals
        return self.totals

    def matrix(self, state: GridState, output: int) -> Tensor:
        """A as a matrix, computed on the first call: O(m^2)."""
        output = min(output, len(state.A) - 1)
        if output not in self.matrices:
            self.matrices[output] = state.matrix(output)
        return self.matrices[output]

    def gram(
        self, state: GridState, output: int, basis: Eigenbasis, factors: Sequence[Tensor]
    ) -> Tensor:
        """``F'A F`` for the features F of a basis, its lower triangle.

        Args:
            state: The state.
            output: The output whose A is meant.
            basis: The eigenbasis.
            factors: The kernel's amplitude and unit-diagonal factors, which it was made from.
        """
        if state.grid.m <= FEW_NODES or max(state.grid.sizes) > MOST_A_SIDE:
            return basis.of_nodes(basis.of_nodes(self.matrix(state, output)).mT)
        compressed = self.compressed.get(output)
        gram = None if compressed is None else compressed.gram(basis)
        if gram is None:
            wider = Eigenbasis.of(basis.grid, factors[0], factors[1:], WIDER * basis.share)
            A = state.A[min(output, len(state.A) - 1)]
            self.compressed[output] = compressed = Compressed.of(A, wider)
            gram = compressed.gram(basis)
        return torch.as_tensor(gram)


@dataclass(frozen=True)
class Compressed:
    """One output's A, projected on a span of products of eigenvectors.

    Attributes:
        spans: Per dimension, an orthonormal basis of products, ``R_k x 4 n_k``.
        M: The projection, ``R_1 x R_2 x R_3``; sizes of missing dimensions are 1.
    """

    spans: tuple[Tensor, ...]
    M: Tensor

    @classmethod
    def of(cls, A: Tensor, wider: Eigenbasis) -> Compressed:
        """A projected on the products of these eigenvectors: O((4 n_k)^d R_k).

        Args:
            A: Stored by pairs of nodes (`bo_stream.mathematics.grid.bands`).
            wider: More eigenvectors than the features need.
        """
        spans = []
        for V in wider.vectors:
            _, s, span = torch.linalg.svd(_lower(node_pairs(V)), full_matrices=False)
            spans.append(span[s > SPAN * s[0]])
        shape = [len(span) for span in spans] + [1] * (3 - len(spans))
        return cls(tuple(spans), kron_right(A.unsqueeze(0), spans).reshape(shape))

    def gram(self, basis: Eigenbasis) -> Tensor | None:
        """``F'A F``, its lower triangle, or None if the products lie outside of the span."""
        products = []
        for V, span in zip(basis.vectors, self.spans, strict=True):
            pairs = node_pairs(V)
            within = pairs @ span.mT
            if (pairs - within @ span).norm() > SERVES * pairs.norm():
                return None
            products.append(within)
        one = self.M.new_ones(1, 1, 1)
        G = _assembled(self.M, products + [one] * (3 - len(products)), basis.index)
        return G.mul_(basis.amplitude)


def node_pairs(V: Tensor) -> Tensor:
    """Products of two columns of ``n x P`` V summed over pairs of nodes: ``P x P x 4 n``."""
    parts = []
    for s in range(REACH):
        product = V[: len(V) - s].mT.unsqueeze(1) * V[s:].mT
        product = product if s == 0 else product + product.transpose(0, 1)
        parts.append(F.pad(product, (0, s)))
    return torch.stack(parts, -1).flatten(-2)


def _assembled(M: Tensor, products: Sequence[Tensor], index: Tensor) -> Tensor:
    """Lower triangle of the ``r x r`` sums ``G[i, j] = sum M E_1[i_1, j_1] E_2[..] E_3[..]``.

    Args:
        M: ``R_1 x R_2 x R_3``.
        products: ``E_k``, ``P_k x P_k x R_k``.
        index: ``r x 1 to 3`` multi-indices, sorted.
    """
    columns = F.pad(index, (0, 3 - index.shape[-1])).unbind(-1)
    low1, low2, low3 = (_lower(E) for E in products)
    first = (low1 @ M.flatten(1)).unflatten(-1, M.shape[1:])
    G, low = M.new_zeros(len(index), len(index)), 0
    for a, count in enumerate(columns[0].bincount().tolist()):
        high = low + count
        own, others = ([t[low:high] for t in columns], [t[:high] for t in columns])
        left, number2 = _numbered(products[1], low2, int(own[1].max()) + 1)
        right, number3 = _numbered(products[2], low3, int(own[2].max()) + 1)
        part = left @ (first[a * (a + 1) // 2 :][: a + 1] @ right.mT)
        number2 = number2 * len(right)
        place = number2.index_select(0, own[1]).index_select(1, others[1])
        place += number3.index_select(0, own[2]).index_select(1, others[2])
        place += others[0] * (len(left) * len(right))
        G[low:high, :high] = part.take(place)
        low = high
    return G


def _lower(E: Tensor) -> Tensor:
    """Symmetric ``P x P x R`` to one row a pair, ``P (P + 1) / 2 x R``."""
    i, j = torch.tril_indices(*E.shape[:2], device=E.device)
    return E[i, j]


def _numbered(E: Tensor, lower: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """Rows for the pairs of one of the first p and any, and their numbers, ``p x P``."""
    P = len(E)
    if 2 * p <= P:
        return E[:p].flatten(0, 1), torch.arange(p * P, device=E.device).reshape(p, P)
    i = torch.arange(P, device=E.device)
    i, j = torch.maximum(i.unsqueeze(-1), i), torch.minimum(i.unsqueeze(-1), i)
    return lower, i * (i + 1) // 2 + j
