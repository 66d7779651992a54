"""How the action matrix S of a computation-aware GP is built from the data.  [CaGP, section 4]"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.errors import InputError, ShapeError, check_choice, whole_number
from bo_stream.mathematics.computation_aware import (
    ActionMatrix,
    BlockMatrix,
    DenseMatrix,
    cross_product,
    kernel_values,
    locality_blocks,
    neighbours,
    split_blocks,
)
from bo_stream.mathematics.kernels import shortest_lengths

BREAKDOWN = 1e-10
"""CG has converged when a new direction is this small a share of the last product."""

IN_MEMORY = 2048
"""Rows up to which CG keeps the kernel matrix, in 32 MB."""


@dataclass(frozen=True, eq=False)
class Actions(ABC):
    """A policy that chooses actions.

    Attributes:
        learned: Whether a fit learns the values of S along with the hyperparameters.
        follows_hyperparameters: Whether S is a function of data and hyperparameters, built again
            when the hyperparameters or the units of the outcomes change.
    """

    learned: ClassVar[bool] = False
    follows_hyperparameters: ClassVar[bool] = False

    @abstractmethod
    def build(self, X: Tensor, e: Tensor, noise: Tensor, kernel: Kernel) -> ActionMatrix:
        """S for the data, with S'S = I, a constant of every gradient: dense if it follows the
        hyperparameters, else block sparse.

        Args:
            X: ``n x d`` inputs in transformed space.
            e: ``n`` residuals y - c.
            noise: ``n`` noise variances.
            kernel: The prior's kernel.
        """

    def budget(self) -> int | None:
        """Number of actions above which a stream compresses them; None for no limit."""
        return None


@dataclass(frozen=True)
class Identity(Actions):
    """One action for each point: exact inference, in O(n^2) memory and O(n^3) time."""

    def build(self, X: Tensor, e: Tensor, noise: Tensor, kernel: Kernel) -> BlockMatrix:
        """S = I_n."""
        return neighbours(X)


@dataclass(frozen=True, eq=False)
class CountedActions(Actions):
    """A policy with a number of actions.

    Args:
        num_actions: Number i of actions; min(i, n) are used.

    Raises:
        InputError: unless it is a positive whole number.
    """

    num_actions: int

    def __post_init__(self) -> None:
        whole_number("num_actions", self.num_actions, 1)

    def budget(self) -> int:
        """The number of actions."""
        return self.num_actions


@dataclass(frozen=True, eq=False)
class BlockSparse(CountedActions):
    """One action for each block of rows, with values learned along with the hyperparameters:
    CaGP-Opt.  [CaGP, section 4.2, eqs. 13, 14; MATHS 5.3]

    Args:
        num_actions: Number i of actions; min(i, n) are used, so that up to i points the model is
            the exact GP.
        values: A flat n-vector in data order, the starting values of S; it implies
            ``order="given"``. By default 1/sqrt(k) plus a seeded perturbation, so that learning
            can distinguish the rows of a block.
        order: ``"locality"`` puts neighbours in space into one block (cells of a k-d tree in the
            units of the kernel's lengthscales); ``"given"`` divides the rows in data order.

    Example:
        >>> from bo_stream.actions import BlockSparse
        >>> BlockSparse(64).num_actions
        64
    """

    values: Tensor | None = None
    order: Literal["locality", "given"] = "locality"

    learned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("order", self.order, "locality", "given")
        if self.values is not None:
            object.__setattr__(self, "order", "given")
            values = torch.as_tensor(self.values, dtype=torch.float64)
            object.__setattr__(self, "values", values.detach().clone())

    def build(self, X: Tensor, e: Tensor, noise: Tensor, kernel: Kernel) -> BlockMatrix:
        """S for the data.

        Raises:
            ShapeError: unless there is one value for each row of X.
            InputError: if a block's values are all zero or not finite.
        """
        n = X.shape[0]
        if self.order == "given":
            block = split_blocks(n, self.num_actions, X.device)
        else:
            lengths = torch.from_numpy(shortest_lengths(kernel, X.shape[-1])).to(X)
            block = locality_blocks(X / lengths.nan_to_num(posinf=1.0), self.num_actions)
        S = BlockMatrix(block, self._start(X))
        if n and not bool((S.gram(torch.ones_like(S.values)).diagonal() > 0).all()):
            raise InputError(
                "values finite and not all zero in any block",
                "a block of zeros or NaN",
                "Give every block at least one value.",
            )
        return S.normalised()

    def _start(self, X: Tensor) -> Tensor:
        n = X.shape[0]
        if self.values is None:
            generator = torch.Generator().manual_seed(0)
            noise = torch.randn(n, generator=generator, dtype=torch.float64)
            return (1.0 + 0.1 * noise).to(X.device)
        if self.values.shape != (n,):
            raise ShapeError(
                f"{n} values, one a row",
                f"{tuple(self.values.shape)}",
                "Give a flat vector in the order of the data, or leave `values` out.",
            )
        return self.values.to(X.device)


@dataclass(frozen=True)
class ConjugateGradient(CountedActions):
    """CaGP-CG: S spans the residuals r_0 .. r_{i-1} of CG on (K + D) v = y - c from v_0 = 0.

    Residuals of CG are Lanczos vectors up to scale, and are computed as such, each orthogonalised
    twice against all earlier ones. The posterior mean is that of the CG iterate v_i: mean = c +
    k(x, X) v_i. There are fewer than i actions if CG converges earlier. [CaGP, section 4.1; MATHS
    5.3]

    Args:
        num_actions: Number i of actions. O(n^2 i) kernel values, O(n i) memory.
    """

    follows_hyperparameters: ClassVar[bool] = True

    @torch.no_grad()
    def build(self, X: Tensor, e: Tensor, noise: Tensor, kernel: Kernel) -> DenseMatrix:
        """S with orthonormal columns."""
        n, i = X.shape[0], min(self.num_actions, X.shape[0])
        K = kernel_values(kernel, X, X) if n <= IN_MEMORY else None
        S = X.new_zeros(n, i)
        residual = e if bool(e.any()) else torch.ones_like(noise)
        before = residual.norm()

        def product(s: Tensor) -> Tensor:
            if K is not None:
                return K @ s
            return cross_product(kernel, X, X, DenseMatrix(s[:, None]))[:, 0]

        for j in range(i):
            length = residual.norm()
            if bool(length <= BREAKDOWN * before):
                return DenseMatrix(S[:, :j])
            s = S[:, j] = residual / length
            residual = product(s) + noise * s
            before = residual.norm()
            for _ in range(2):
                residual = residual - S[:, : j + 1] @ (S[:, : j + 1].mT @ residual)
        return DenseMatrix(S)


@dataclass(frozen=True)
class TopEigenvectors(CountedActions):
    """For comparisons: S spans the eigenvectors of K(X, X) of the i largest eigenvalues.

    Args:
        num_actions: Number i of actions; min(i, n) are used. O(n^3) time and, unlike all others,
            O(n^2) memory.
    """

    follows_hyperparameters: ClassVar[bool] = True

    @torch.no_grad()
    def build(self, X: Tensor, e: Tensor, noise: Tensor, kernel: Kernel) -> DenseMatrix:
        """S with orthonormal columns."""
        vectors = torch.linalg.eigh(kernel_values(kernel, X, X))[1].flip(-1)
        return DenseMatrix(vectors[:, : self.num_actions].contiguous())
