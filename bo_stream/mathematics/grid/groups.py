"""Grids over groups of inputs, for a function that is a sum of one function of each group.

A row of W is the groups' rows of weights side by side, and the prior covariance of the values at
all nodes has one block a group (MATHS 2.2 to 2.4 hold for the nodes together). Each group's weights
sum to one, so a whole row sums to the number of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Self

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.mathematics.grid.kernel import kernel_matrices
from bo_stream.mathematics.grid.nodes import Grid, Interpolation
from bo_stream.mathematics.grid.resolution import coarse_inputs, kernel_lengths
from bo_stream.mathematics.grid.roots import dense_root
from bo_stream.mathematics.posterior.moments import Back
from bo_stream.mathematics.shapes import nested
from bo_stream.mathematics.sufficient_statistics.evidence import Factorisation, attach, factorise
from bo_stream.mathematics.sufficient_statistics.state import Sums

__all__ = ["GroupState", "Groups", "checked_groups", "group_evidence", "inputs_of", "members"]

SIDE = {1: 30, 2: 15, 3: 10}
"""Nodes per dimension by default, of a group of so many inputs."""


@dataclass(frozen=True)
class _GroupGrid(Grid):
    """Nodes over some of the inputs.

    Attributes:
        group: Which ones,
        among: of how many.
    """

    group: tuple[int, ...] = ()
    among: int = 0

    @property
    def inputs(self) -> int:
        """Number of all inputs."""
        return self.among

    def place(self, X: Tensor) -> Tensor:
        """Their columns of points ``batch x q x d``."""
        return X[..., list(self.group)]

    def differences(self, like: Tensor) -> Tensor:
        """Differences of nodes, as differences of points in all inputs."""
        own = super().differences(like)
        wide = like.new_zeros(len(own), self.among)
        wide[:, list(self.group)] = own
        return wide


@dataclass(frozen=True)
class Groups:
    """The grids of all groups, their nodes numbered one group after the other; a `FeatureMap`."""

    grids: tuple[_GroupGrid, ...]

    @classmethod
    def covering(cls, box: Tensor, groups: Sequence[Sequence[int]], side: int | None) -> Self:
        """Folded grids of ``side`` nodes a dimension over groups of inputs between ``2 x d``
        bounds.
        """
        grids = []
        for group in groups:
            grid = Grid.covering(box[:, list(group)], side or SIDE.get(len(group)))
            nodes = (grid.origin, grid.step, grid.sizes, grid.folded)
            grids.append(_GroupGrid(*nodes, tuple(group), box.shape[1]))
        return cls(tuple(grids))

    @property
    def m(self) -> int:
        """The number of nodes of all groups."""
        return sum(grid.m for grid in self.grids)

    def interpolate(self, X: Tensor) -> Interpolation:
        """Rows at points ``batch x q x d``: the groups' weights side by side."""
        rows = [grid.interpolate(X) for grid in self.grids]
        starts = accumulate((grid.m for grid in self.grids[:-1]), initial=0)
        index = [row.index + start for row, start in zip(rows, starts, strict=True)]
        return Interpolation(torch.cat(index, -1), torch.cat([row.weight for row in rows], -1))

    def features(self, X: Tensor) -> Tensor:
        """The same, dense: ``batch x q x m``."""
        return self.interpolate(X).dense(self.m)

    def sloped(self, X: Tensor) -> tuple[Tensor, Back]:
        """As `FeatureMap.sloped`; places are the points themselves."""
        rows, first = X.new_zeros(*X.shape[:-1], 1 + X.shape[-1], self.m), 0
        for grid in self.grids:
            index, own = grid.sloped(grid.place(X))
            at = (first + index).unsqueeze(-2).expand_as(own)
            orders = [0, *(1 + k for k in grid.group)]
            rows[..., orders, :] = rows[..., orders, :].scatter_add(-1, at, own)
            first += grid.m
        return rows, lambda slopes: slopes

    def same_as(self, other: Any) -> bool:
        """Whether the rows are the same."""
        return bool(self == other)

    @cached_property
    def made_of(self) -> tuple[Tensor, ...]:
        """Tensors that tell these nodes from others."""
        parts = [[*g.group, *g.origin, *g.step, *g.sizes] for g in self.grids]
        return tuple(torch.tensor(part, dtype=torch.float64) for part in parts)

    def too_coarse(self, kernel: Kernel, widths: Tensor, outputs: int) -> list[str]:
        """Inputs along which a group's kernel is too short for its nodes, each with the reason.

        Args:
            kernel: The kernel of the sum.
            widths: Of the bounds, ``d``.
            outputs: Number of outputs.
        """
        reasons = []
        for member, grid in zip(members(kernel), self.grids, strict=True):
            lengths = kernel_lengths(member, widths, outputs, grid.group)
            reasons += coarse_inputs(grid.group, lengths.tolist(), grid.step)
        return reasons


@dataclass(frozen=True)
class GroupState(Sums):
    """Sums over the nodes of all groups.

    Attributes:
        groups: The nodes.
    """

    groups: Groups = nested()

    @classmethod
    def on(cls, groups: Groups, outputs: int, shared: bool) -> Self:
        """Before any data."""
        sums = Sums.none(groups.m, outputs, shared)
        return cls(sums.A, sums.b, sums.yy, sums.origin, sums.ld, sums.weight, groups)

    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """``W'R^-1 1`` (``s x m``), ``1'R^-1 y`` (``o``) and ``1'R^-1 1`` (``s``)."""
        w1, y1, one = super().totals()
        G = len(self.groups.grids)  # rows of W sum to the number of groups
        return w1 / G, y1 / G, one / G**2


class BlockRoot:
    """Root of a block-diagonal kernel matrix.

    Args:
        blocks: The matrices on the diagonal.
    """

    def __init__(self, blocks: Sequence[Tensor]) -> None:
        self.roots = [dense_root(K, len(K)) for K in blocks]
        self.sizes = [len(K) for K in blocks]

    def left(self, M: Tensor) -> Tensor:
        """``R M``."""
        parts = zip(self.roots, M.split(self.sizes), strict=True)
        return torch.cat([root.left(part) for root, part in parts])

    def left_t(self, M: Tensor) -> Tensor:
        """``R' M``."""
        parts = zip(self.roots, M.split(self.sizes), strict=True)
        return torch.cat([root.left_t(part) for root, part in parts])

    def project(self, A: Tensor) -> Tensor:
        """``R' A R``: O(m^2) for each node of a block."""
        return self.left_t(self.left_t(A).mT)

    def lift(self, Q_inv: Tensor) -> Tensor:
        """``R Q^-1 R'``: likewise."""
        return self.left(self.left(Q_inv).mT)

    def gradient(self, Y: Tensor) -> list[Tensor]:
        """Gradients in the blocks, of blocks of Y alone."""
        rows = Y.split(self.sizes)
        corners = [part.split(self.sizes, -1)[g] for g, part in enumerate(rows)]
        parts = zip(self.roots, corners, strict=True)
        return [gradient for root, corner in parts for gradient in root.gradient(corner)]


def group_evidence(
    state: GroupState, kernel: Kernel, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, list[Factorisation]]:
    """Log evidence summed over outputs, with closed-form gradients, and what the posterior needs
    of it. O(m^3): one Cholesky factor and one inverse an output.

    Args:
        state: The state.
        kernel: A sum of stationary kernels, one a group, with or without one batch dimension of the
            outputs.
        s2: Noise scales, ``o``.
        c: Constant means, counted from the state's origin, ``o``.
        profile_mean: Take the best constant means instead.
    """
    outputs, values, made = len(state.b), list[Tensor](), list[Factorisation]()
    each = [
        kernel_matrices(member, grid, state.b, outputs)
        for member, grid in zip(members(kernel), state.groups.grids, strict=True)
    ]
    for i in range(outputs):
        blocks = [matrices[i] for matrices in each]
        with torch.no_grad():
            root, stats = BlockRoot([K.detach() for K in blocks]), state.statistics(i)
            value, gradients, own = factorise(root, stats, s2[i], c[i], profile_mean)
        made.append(own)
        values.append(attach(value, [s2[i], c[i], *blocks], gradients))
    return torch.stack(values).sum(), made


def members(kernel: Kernel) -> list[Kernel]:
    """The kernels of a sum; a kernel that is none is its only one."""
    return list(kernel.kernels) if isinstance(kernel, AdditiveKernel) else [kernel]


def inputs_of(kernel: Kernel, dim: int) -> list[int]:
    """Which of ``dim`` inputs a kernel looks at, by the ``active_dims`` of its parts."""
    if kernel.active_dims is not None:
        return [int(k) for k in kernel.active_dims]
    if isinstance(kernel, ScaleKernel):
        return inputs_of(kernel.base_kernel, dim)
    if isinstance(kernel, ProductKernel | AdditiveKernel):
        return sorted({k for part in kernel.kernels for k in inputs_of(part, dim)})
    return list(range(dim))


def checked_groups(given: Sequence[Sequence[int]] | None, dim: int) -> list[list[int]]:
    """Groups of ``dim`` inputs; by default each input on its own.

    Raises:
        InputError: unless each names inputs there are, none of them twice.
    """
    if given is None:
        return [[k] for k in range(dim)]
    groups = [list(group) for group in given]
    whole = all(type(k) is int and 0 <= k < dim for group in groups for k in group)
    if not (groups and all(groups) and whole and all(len(set(g)) == len(g) for g in groups)):
        raise InputError(
            f"groups of inputs, numbered from 0 to {dim - 1}, none twice in a group",
            repr(given),
            "Give for example [[0], [1, 2]]; left out, each input is a group.",
        )
    return groups
