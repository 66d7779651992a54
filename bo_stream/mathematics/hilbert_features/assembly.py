"""Sums over sine features from sums over frequencies (MATHS 12.2).

With ``c = prod_k 1/(2 L)``, the sum over data of the product of two functions of all inputs is

    A_ab = c sum_{s in {0,1}^d} (-1)^|s| G[|a_k - b_k| where s_k = 0, a_k + b_k where s_k = 1]

for the sums ``G`` of products of cosines. Main effects likewise need the other sums of
`bo_stream.mathematics.hilbert_features.frequencies`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, product

import torch
from torch import Tensor

from bo_stream.mathematics.hilbert_features.basis import Basis
from bo_stream.mathematics.hilbert_features.frequencies import HALF, Frequencies
from bo_stream.mathematics.lasting import lasting

__all__ = ["Assembly", "assembly_for"]

ROWS = 64
"""Rows assembled at a time; of these the part left of the diagonal and a little more."""


class Assembly:
    """Where the sums over a basis are among those over frequencies; O(2^d f^2) integers.

    Args:
        frequencies: The frequencies stored.
        basis: Functions within them, on the box of half width `HALF`.
    """

    def __init__(self, frequencies: Frequencies, basis: Basis) -> None:
        self.frequencies = frequencies
        self.basis = basis
        self.d, self.main, self.joint = frequencies.dim, frequencies.main, basis.joint
        self.size = len(basis.alpha)
        a, last = frequencies.joint, self.joint[:, -1]
        one = torch.arange(1, a + 1, device=last.device)
        self._apart = (one.unsqueeze(-1) - one).abs().flatten()
        self._together = (one.unsqueeze(-1) + one).flatten()
        self._blocks = [
            self._indices(start, min(start + ROWS, len(last)))
            for start in range(0, len(last), ROWS)
        ]
        self._odd = self._flat(self.joint - 1, (a,) * self.d)
        self._mixed = [self._mixed_indices(k) for k in range(self.d)] if self.main else []

    def vector(self, odd: Tensor) -> Tensor:
        """Sums of the features, ``o x f``, from odd sums ``o x odd``: O(f)."""
        scale, rows = HALF ** (-0.5 * self.d), []
        for row in odd:
            parts = self.frequencies.parts(row)
            own = parts["joint"].flatten().index_select(0, self._odd) * scale
            rows.append(torch.cat([parts["main"].flatten() * HALF**-0.5, own]))
        return torch.stack(rows)

    def matrix(self, sums: Tensor) -> Tensor:
        """Sums of products of two features from one row of sums: O(2^d f^2).

        Returns:
            ``f x f``, of which the lower triangle and the diagonal blocks are filled.
        """
        parts, m = self.frequencies.parts(sums), self.main * self.d
        A = sums.new_zeros(self.size, self.size)
        self._joint_with_joint(A[m:, m:], parts["cosines"])
        if m:
            self._joint_with_main(A[m:, :m], parts["mixed"])
            self._main_with_main(A[:m, :m], parts)
        return A

    # -- blocks ----------------------------------------------------------------------------------

    def _indices(self, start: int, end: int) -> list[tuple[float, Tensor]]:
        """Signs and places, in `_joint_with_joint`'s table, of rows ``start`` to ``end``."""
        first, second = self.joint[start:end, None], self.joint[None, :end]
        a, size = self.frequencies.joint, 2 * self.frequencies.joint + 1
        pair = (first[..., -1] - 1) * a + second[..., -1] - 1
        both = (first - second).abs(), first + second
        found = []
        for signs in product((0, 1), repeat=self.d - 1):
            place = torch.zeros_like(pair)
            for k, s in enumerate(signs):
                place = place * size + both[s][..., k]
            found.append(((-1.0) ** sum(signs), (place * a * a + pair).flatten().int()))
        return found

    def _mixed_indices(self, k: int) -> tuple[Tensor, Tensor]:
        """Places of both terms of `_joint_with_main`, for main effects of one input."""
        a, own = self.frequencies.joint, self.joint[:, [k]]
        j = torch.arange(1, self.main + 1, device=own.device)
        others = torch.cat([self.joint[:, :k], self.joint[:, k + 1 :]], -1) - 1
        rest = self._flat(others, (a,) * (self.d - 1)).unsqueeze(-1)
        both = ((own - j).abs(), own + j)
        apart, together = ((x * a ** (self.d - 1) + rest).flatten().int() for x in both)
        return apart, together

    def _joint_with_joint(self, A: Tensor, cosines: Tensor) -> None:
        flat = cosines.flatten(0, -2) if self.d > 1 else cosines.unsqueeze(0)
        table = flat.index_select(-1, self._apart) - flat.index_select(-1, self._together)
        table = table.flatten().mul_((2.0 * HALF) ** -self.d)
        for i, block in enumerate(self._blocks):
            start = i * ROWS
            rows = A[start : start + ROWS, : start + ROWS]
            total = table.index_select(0, block[0][1])
            for sign, place in block[1:]:
                total.add_(table.index_select(0, place), alpha=sign)
            rows.copy_(total.view(rows.shape))

    def _joint_with_main(self, A: Tensor, mixed: Tensor) -> None:
        """``sin(a t) sin(j t)`` of one input, times sines of the others."""
        p, scale = self.main, 0.5 / HALF * HALF ** (-0.5 * (self.d - 1))
        for k, (apart, together) in enumerate(self._mixed):
            sums = mixed[k].flatten()
            difference = sums.index_select(0, apart) - sums.index_select(0, together)
            A[:, k * p : (k + 1) * p] = difference.view(-1, p).mul_(scale)

    def _main_with_main(self, A: Tensor, parts: dict[str, Tensor]) -> None:
        p = self.main
        j = torch.arange(1, p + 1, device=A.device)
        apart, together = (j.unsqueeze(-1) - j).abs(), j.unsqueeze(-1) + j
        for k, row in enumerate(parts["single"]):
            own = slice(k * p, (k + 1) * p)
            A[own, own] = (row[apart] - row[together]) * (0.5 / HALF)
        for pair, (k, i) in zip(parts["pairs"], combinations(range(self.d), 2), strict=True):
            scaled = pair / HALF
            A[k * p : (k + 1) * p, i * p : (i + 1) * p] = scaled
            A[i * p : (i + 1) * p, k * p : (k + 1) * p] = scaled.mT

    def _flat(self, indices: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Places of multi-indices in a flattened tensor."""
        place = torch.zeros_like(indices[:, 0]) if shape else self.joint.new_zeros(len(indices))
        for k, size in enumerate(shape):
            place = place * size + indices[:, k]
        return place


@lru_cache(maxsize=16)
@lasting
def assembly_for(
    frequencies: Frequencies,
    count: int,
    lengthscales: tuple[float, ...],
    low: tuple[float, ...],
    width: tuple[float, ...],
    device: torch.device,
) -> Assembly:
    """The ``count`` best functions for given lengthscales within the frequencies stored, and where
    their sums are. The last few are remembered.
    """
    like = torch.empty(0, dtype=torch.float64, device=device)
    scales, low_, width_ = (like.new_tensor(t) for t in (lengthscales, low, width))
    half = torch.full_like(scales, HALF)
    main, highest = frequencies.main, frequencies.joint
    return Assembly(frequencies, Basis.within(scales, low_, width_, half, count, main, highest))
