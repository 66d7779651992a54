"""A sparse covariance from all data, and a mean that is exact on a window of rows (MATHS 6.8).

With ``L L' = K(Z, Z)`` (and a nugget) and ``A = L^-1 K(Z, X)``, all data are in the covariance as

    cov(x, z) = k(x, z) - A_x'A_z + A_x'(I + G)^-1 A_z,    G = G_D + A_R D_R^-1 A_R',

where ``G_D`` holds the data that have left the window, and the window's rows R have coefficients w
in the mean. In the letters of MATHS 6.1: ``alpha = Z u R``, ``beta = Z``, ``B = L^-T G L^-1``.

Rows are added to the window and to the covariance. Then rows beyond the window's size are folded
into the inducing points, those of least contribution first, as in online SGPR (MATHS 3.3). The
coefficients solve

    (k_D(R, R) + D) w = y - m_D,    k_D = K + A'(B_D^-1 - I) A,    B_D = I + G_D.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from bo_stream.mathematics.inducing import (
    InducingState,
    SGPRState,
    SparsePrior,
    dense,
    diagonal,
    factor_B,
    rebase,
    solve,
)
from bo_stream.mathematics.linalg import bordered, chol_psd, lower_factor
from bo_stream.mathematics.process import KernelBasis, Process
from bo_stream.mathematics.shapes import Rows, nested, shaped

__all__ = ["DecoupledState"]


@dataclass(frozen=True)
class DecoupledState(InducingState):
    """State of the stream: O(M^2 + r^2) numbers, whatever n is.

    The likelihood of the values at its points is that by rows that left the window: ``G_D`` and
    ``c_D`` of MATHS 6.8.

    Attributes:
        G: Whitened precision of all data, ``M x M``.
        L_D: ``chol(I + G_D)``, ``M x M``.
        window: The rows that have not left.
        A: ``L^-1 K(Z, X)`` of these rows, ``M x r``.
        C: Cholesky factor of ``k_D(X, X) + D``, ``r x r``.
        folded: Number of rows that have left the window, 0-dim.
    """

    G: Tensor = shaped("M M")
    L_D: Tensor = shaped("M M")
    window: Rows = nested(n="r")
    A: Tensor = shaped("M r")
    C: Tensor = shaped("r r")
    folded: Tensor = shaped("", "not negative")

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The rows, and the likelihood of the folded rows; `renewed` computes the rest."""
        window = self.window.rescaled(shift, factor, known_noise)
        return replace(super().rescaled(shift, factor, known_noise), window=window)

    # -- update ----------------------------------------------------------------------------------

    def absorbed(self, rows: Rows, prior: SparsePrior, limit: int, slack: int) -> Self:
        """With more rows in window and mean, on the same inducing points.

        O(q r^2 + q M^2) for q rows, and O(r^3 + r^2 M) whenever rows are folded. A batch larger
        than the window is absorbed in parts.

        Args:
            rows: The batch.
            prior: The current hyperparameters, which the state has.
            limit: Number of rows in the window after folding.
            slack: Number of rows beyond these before some are folded.
        """
        state, first, most = self, 0, limit + slack
        while first < len(rows):
            last = first + max(most - len(state.window), limit // 2, 1)
            state, first = state._joined(rows[first:last], prior), last
            if len(state.window) > most:
                state = state._folded(prior, limit)
        return state

    def _joined(self, rows: Rows, prior: SparsePrior) -> Self:
        """With rows at the end of the window."""
        d, n, window = prior.s2 * rows.r, len(self.window), self.window.joined(rows)
        new = solve(self.points.L, dense(prior.kernel, self.points.Z, rows.X))
        A = torch.cat([self.A, new], -1)
        state = replace(self, G=self.G + _gram(new, d), window=window, A=A)
        block = self._covariance(prior, rows.X, window.X, new, A)
        try:
            C = bordered(self.C, block[:, :n].mT, block[:, n:] + torch.diag(d))
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            return state._factored(prior)  # the whole is repaired
        return replace(state, C=C)

    def _folded(self, prior: SparsePrior, limit: int) -> Self:
        """Without the rows of least contribution: ``G_D += A D^-1 A'``, likewise ``c_D`` (step 4).

        The contribution is ``|w| sqrt(k(x, x) - |A|^2)``, the norm of the part of the mean that the
        inducing points cannot represent.
        """
        own, points, surplus = self.window, self.points, len(self.window) - limit
        missed = (diagonal(prior.kernel, own.X) - self.A.square().sum(0)).clamp_min(0.0)
        order = (self.coefficients(prior).abs() * missed.sqrt()).argsort(stable=True)
        go, stay = order[:surplus], order[surplus:].sort().values
        A, d = self.A[:, go], prior.s2 * own.r[go]
        G, c = points.G + _gram(A, d), points.c + A @ ((own.y[go] - points.mean) / d)
        L_D, _, kappa = factor_B(G, c)
        points, folded = replace(points, G=G, c=c, kappa=kappa), self.folded + surplus
        A = self.A[:, stay]
        state = replace(self, points=points, L_D=L_D, window=own[stay], A=A, folded=folded)
        return state._factored(prior)

    # -- other inducing points or hyperparameters ------------------------------------------------

    def on_points(self, Z: Tensor, old_index: Tensor, prior: SparsePrior) -> Self:
        """The state on other inducing points.

        Points that are added do not change the posterior given the folded rows; information at
        points that are dropped is projected on the others (MATHS 3.3).

        Args:
            Z: Inducing points, ``M x d``.
            old_index: Row in Z of each old inducing point, -1 if dropped.
            prior: The current hyperparameters, which the state has.
        """
        added = torch.equal(old_index, torch.arange(len(old_index), device=Z.device))
        if added and len(Z) == len(old_index):
            return self
        moved = rebase(self.points, prior.kernel, prior.mean[0], Z, old_index, same_kernel=True)
        return self.with_points(moved.state, prior, same_rows=added or not int(self.folded))

    def renewed(self, prior: SparsePrior) -> Self:
        """The state under other hyperparameters, if they are others: O(r^3 + r^2 M + M^3)."""
        if torch.equal(self.made_with, prior.numbers):
            return self
        return self.with_points(rebase(self.points, prior.kernel, prior.mean[0]).state, prior)

    def with_points(
        self, points: SGPRState, prior: SparsePrior, *, same_rows: bool = False
    ) -> Self:
        """With another posterior given the folded rows; ``same_rows`` if the covariance of the
        window's rows is the same.
        """
        A = solve(points.L, dense(prior.kernel, points.Z, self.window.X))
        G = points.G + _gram(A, prior.s2 * self.window.r)
        L_D, _, _ = factor_B(points.G, points.c)
        state = replace(self, points=points, G=G, L_D=L_D, A=A, made_with=prior.numbers)
        return state if same_rows else state._factored(prior)

    def _factored(self, prior: SparsePrior) -> Self:
        """With the covariance of the window's rows factorised again: O(r^3 + r^2 M)."""
        X, A = self.window.X, self.A
        K = self._covariance(prior, X, X, A, A)
        diagonal = K.diagonal() + prior.s2 * self.window.r
        C = lower_factor(K.diagonal_scatter(diagonal))
        return replace(self, C=chol_psd(K.diagonal_scatter(diagonal)) if C is None else C)

    def _covariance(
        self, prior: SparsePrior, X: Tensor, Z: Tensor, A_X: Tensor, A_Z: Tensor
    ) -> Tensor:
        """``k_D = k + A'(B_D^-1 - I) A`` between rows: k before any row is folded."""
        K = dense(prior.kernel, X, Z)
        if not int(self.folded):
            return K
        return torch.addmm(K, (torch.cholesky_solve(A_X, self.L_D) - A_X).mT, A_Z)

    # -- posterior -------------------------------------------------------------------------------

    def sparse_posterior(self, prior: SparsePrior) -> SGPRState:
        """The posterior of an online sparse GP with the same inducing points, for policies."""
        own = self.window
        c = self.points.c + self.A @ ((own.y - prior.mean) / (prior.s2 * own.r))
        return replace(self.points, G=self.G, c=c, kappa=factor_B(self.G, c)[2])

    def coefficients(self, prior: SparsePrior) -> Tensor:
        """``w``, the window's rows in the mean: O(r^2)."""
        folded = torch.cholesky_solve(self.points.c[:, None], self.L_D)
        e = (self.window.y - prior.mean)[:, None] - self.A.mT @ folded
        half = torch.linalg.solve_triangular(self.C, e, upper=False)
        return torch.linalg.solve_triangular(self.C.mT, half, upper=True)[:, 0]

    def process(self, prior: SparsePrior) -> Process:
        """Mean ``c + a_x'h + k(x, X) w``, covariance ``k - a_x'a_z + V_x'V_z``, from a state under
        these hyperparameters; X are the rows of the window. O(r^2 + M^3).
        """
        points, w = self.points, self.coefficients(prior)
        a, (L_B, _, _) = self.A @ w, factor_B(self.G, points.c)
        h = torch.cholesky_solve((points.c + a)[:, None], self.L_D)[:, 0] - a
        nugget = torch.cat([points.jitter * diagonal(prior.kernel, points.Z), torch.zeros_like(w)])
        Z = torch.cat([points.Z, self.window.X])
        basis, u = KernelBasis(prior.kernel, Z, nugget[None]), torch.cat([h, w])[None]
        return Process(prior.kernel, basis, points.L[None], L_B[None], u, prior.mean)


def _gram(A: Tensor, d: Tensor) -> Tensor:
    """``A D^-1 A'``."""
    root = A / d.sqrt()
    return root @ root.mT
