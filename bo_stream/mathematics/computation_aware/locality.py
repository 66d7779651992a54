"""An order of rows in which neighbours in space are neighbours in line: the leaves of a balanced
k-d tree.

Blocks of actions along an arbitrary row order mix points that have nothing to do with each
other, and a block of unrelated points says little about any of them. [MATHS 5.3]
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["locality_blocks", "split_blocks"]


def split_blocks(n: int, num_actions: int, device: torch.device) -> Tensor:
    """Block indices of n rows in order, sizes like `numpy.array_split` (longer blocks first)."""
    i = min(num_actions, n)
    if i == 0:
        return torch.empty(0, dtype=torch.int64, device=device)
    short, longer = divmod(n, i)
    sizes = torch.full((i,), short, device=device)
    sizes[:longer] += 1
    return torch.repeat_interleave(torch.arange(i, device=device), sizes)


def locality_blocks(X: Tensor, num_blocks: int) -> Tensor:
    """Block index of each row: array-split sizes, each block a cell of a k-d tree.

    Every node splits its rows across the coordinate of most variance, in proportion to the blocks
    each side is to have. Scale X first: distances are Euclidean. Ties are broken by the
    coordinate of next most variance, and so on (a split of a column of few values, such as a
    category, must not scatter the neighbours of one value over both sides); rows equal in all keep
    their order, so the result is deterministic.

    Args:
        X: ``n x d``.
        num_blocks: Blocks wanted; min(num_blocks, n) are made.

    Returns:
        ``n`` indices. O(n log(i) (d + log n)) time, O(d n log(i) log n) where columns have ties.
    """
    n = X.shape[0]
    in_order = split_blocks(n, num_blocks, X.device)
    order = torch.arange(n, device=X.device)
    blocks = int(in_order[-1]) + 1 if n else 0
    starts = torch.searchsorted(in_order, torch.arange(blocks + 1, device=X.device)).tolist()
    nodes = [(0, blocks)] if blocks > 1 else []
    while nodes:
        first, last = nodes.pop()
        middle = (first + last) // 2
        rows = order[starts[first] : starts[last]]
        order[starts[first] : starts[last]] = rows[_line_up(X[rows])]
        nodes += [(a, b) for a, b in ((first, middle), (middle, last)) if b - a > 1]
    block = torch.empty_like(in_order)
    block[order] = in_order
    return block


def _line_up(points: Tensor) -> Tensor:
    """The order of points along the coordinate of most variance, ties by the next, and so on."""
    axes = points.var(0, correction=0).argsort(descending=True, stable=True)
    along, order = points[:, axes[0]].sort(stable=True)
    if not bool((along[1:] == along[:-1]).any()):
        return order
    order = torch.arange(len(points), device=points.device)
    for axis in axes.flip(0).tolist():
        order = order[points[order, axis].argsort(stable=True)]
    return order
