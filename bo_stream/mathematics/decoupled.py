"""A sparse covariance from all data, and a mean that is exact on a window of rows (MATHS 6.8).

With ``L L' = K(Z, Z)`` (and a nugget) and ``A = L^-1 K(Z, X)``, all data are in the covariance as

    cov(x, z) = k(x, z) - A_x'A_z + A_x'(I + G)^-1 A_z,    G = G_D + A_R D_R^-1 A_R',

where ``G_D`` holds the data that have left the window, and the window's rows R have coefficients w
in the mean. In the letters of MATHS 6.1: ``alpha = Z u R``, ``beta = Z``, ``B = L^-T G L^-1``.

Rows are added to the window and to the covariance, and the mean is solved for. Then rows beyond the
window's size are folded into the inducing points, those of least contribution first, as in online
SGPR (MATHS 3.3). The coefficients solve

    (k_D(R, R) + D) w = y - m_D,    k_D = K + A'(B_D^-1 - I) A,    B_D = I + G_D.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from bo_stream.mathematics.inducing import (
    Batch,
    InducingState,
    SGPRState,
    SparsePrior,
    dense,
    diagonal,
    empty_state,
    eye,
    factor_B,
    rebase,
    solve,
    update,
)
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.process import KernelBasis, Process
from bo_stream.mathematics.rows import Rows
from bo_stream.mathematics.shapes import nested, shaped
from bo_stream.mathematics.sums import Sample

__all__ = ["DecoupledState", "Limits", "System", "Window", "decoupled_process"]

DIRECT = 256
"""Rows up to which a factorisation is as fast as iterations."""
FEWEST, ROWS_EACH = 24, 64
"""Iterations before factorising: the first number, plus one for each so many rows."""


@dataclass(frozen=True)
class Limits:
    """Limits of what a stream keeps, and the tolerance of the mean.

    Attributes:
        window: Rows kept after folding.
        slack: Rows beyond these before some are folded.
        tolerance: In noise standard deviations.
    """

    window: int
    slack: int
    tolerance: float


@dataclass(frozen=True)
class Window:
    """Rows on which the mean is exact.

    Attributes:
        rows: The rows.
        w: Coefficients in the mean, ``r``.
        A: ``L^-1 K(Z, X)``, ``M x r``.
        K: ``k_D(X, X)``, covariances conditioned on what was folded, ``r x r``.
    """

    rows: Rows = nested(n="r")
    w: Tensor = shaped("r")
    A: Tensor = shaped("M r")
    K: Tensor = shaped("r r")

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def at(self, index: Tensor) -> Window:
        """Some of the rows."""
        K = self.K[index][:, index]
        return Window(self.rows[index], self.w[index], self.A[:, index], K)


@dataclass(frozen=True)
class DecoupledState(InducingState):
    """State of the stream: O(M^2 + r^2) numbers, whatever n is.

    The likelihood of the values at its points is that by rows that left the window: ``G_D`` and
    ``c_D`` of MATHS 6.8.

    Attributes:
        G: Whitened precision of all data, ``M x M``.
        L_B: ``chol(I + G)``, ``M x M``.
        L_D: ``chol(I + G_D)``, ``M x M``.
        window: The rows that have not left.
        folded: Number of rows that have left the window, 0-dim.
    """

    G: Tensor = shaped("M M")
    L_B: Tensor = shaped("M M")
    L_D: Tensor = shaped("M M")
    window: Window = nested()
    folded: Tensor = shaped("", "not negative")

    @classmethod
    def empty(cls, dim: int, jitter: float, prior: SparsePrior) -> Self:
        """Before any data."""
        rows, count = Rows.empty(dim), torch.zeros((), dtype=torch.int64)
        none, square = rows.X.new_zeros(0), rows.X.new_zeros(0, 0)
        points = empty_state(rows.X, prior.mean, jitter)
        common = points, Sample(rows, none), rows.X.new_zeros(3), count, prior.numbers
        factors = square, square.clone(), square.clone()
        return cls(*common, *factors, Window(rows, none, square, square), count.clone())

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The rows, and the likelihood of the folded rows; `renewed` computes the rest."""
        rows = self.window.rows.rescaled(shift, factor, known_noise)
        state = super().rescaled(shift, factor, known_noise)
        return replace(state, window=replace(self.window, rows=rows))

    # -- update ----------------------------------------------------------------------------------

    def absorbed(self, rows: Rows, prior: SparsePrior, limits: Limits) -> Self:
        """With the rows of a batch in window and mean, on the same inducing points.

        O(r^2 + r M) for each iteration of the solves, and O(q M^2 + M^3 + r^2) in addition. A batch
        larger than the window is absorbed in parts.

        Args:
            rows: The batch, of q rows.
            prior: The current hyperparameters, which the state has.
            limits: What is kept.
        """
        state, first, most = self, 0, limits.window + limits.slack
        while first < len(rows):
            room = most - state.window.size
            last = first + (room if room >= len(rows) - first else max(room, limits.window // 2, 1))
            state = state._joined(rows[first:last], prior)
            state, first = state._solved(prior, limits), last
            if state.window.size > most:
                state = state._folded(prior, limits)._solved(prior, limits)
        return state

    def _joined(self, new: Rows, prior: SparsePrior) -> Self:
        """Rows at the end of the window, with coefficients of zero: O(q M^2 + r^2)."""
        own, points, n = self.window, self.points, self.window.size
        A = solve(points.L, dense(prior.kernel, points.Z, new.X))
        rows, all_A = own.rows.joined(new), torch.cat([own.A, A], -1)
        w = torch.cat([own.w, torch.zeros_like(new.y)])
        cross = dense(prior.kernel, new.X, rows.X) + self._folded_part(A, all_A)
        K = torch.cat([torch.cat([own.K, cross[:, :n].mT], -1), cross])
        window = Window(rows, w, all_A, K)
        return replace(self, window=window)._weighed(self.G, A, prior.scale * new.r)

    def _folded(self, prior: SparsePrior, limits: Limits) -> Self:
        """Without the rows of least contribution: ``G_D += A D^-1 A'``, likewise ``c_D`` (step 4).

        The contribution is ``|w| sqrt(k(x, x) - |A|^2)``, the norm of the part of the mean that the
        inducing points cannot represent.
        """
        own, points = self.window, self.points
        missed = (diagonal(prior.kernel, own.rows.X) - own.A.square().sum(0)).clamp_min(0.0)
        order = (own.w.abs() * missed.sqrt()).argsort(stable=True)
        surplus = own.size - limits.window
        go, stay = own.at(order[:surplus]), own.at(order[surplus:].sort().values)
        d = prior.scale * go.rows.r
        G = points.G + _gram(go.A, d)
        c = points.c + go.A @ ((go.rows.y - points.mean) / d)
        # conditioning the rows that stay on the inducing points' part of those that go
        half = solve(self.L_D, go.A)
        L = torch.linalg.cholesky(half.mT @ half + torch.diag(d))
        less = solve(L, half.mT @ solve(self.L_D, stay.A))
        return replace(
            self,
            points=replace(points, G=G, c=c, kappa=factor_B(G, c)[2]),
            L_D=_factor(G),
            window=replace(stay, K=stay.K - less.mT @ less),
            folded=self.folded + surplus,
        )

    def _solved(self, prior: SparsePrior, limits: Limits) -> Self:
        """With coefficients for the window as it is (step 3)."""
        own = self.window
        if not own.size:
            return self
        system = System(own.K, own.A, prior.scale * own.rows.r, self.L_B)
        target = own.rows.y - prior.mean - own.A.mT @ self.folded_mean()
        return replace(self, window=replace(own, w=system.solved(target, own.w, limits.tolerance)))

    # -- other inducing points or hyperparameters ------------------------------------------------

    def sparse_posterior(self, prior: SparsePrior) -> SGPRState:
        """The posterior of an online sparse GP with the same inducing points, for policies."""
        own = self.window
        c = self.points.c + own.A @ ((own.rows.y - prior.mean) / (prior.scale * own.rows.r))
        kappa = 0.5 * solve(self.L_B, c).square().sum() - self.L_B.diagonal().log().sum()
        return replace(self.points, G=self.G, c=c, kappa=kappa)

    def on_points(self, Z: Tensor, old_index: Tensor, prior: SparsePrior) -> Self:
        """The state on other inducing points; the mean is not solved for again.

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
        state = self._crossed(_moved(self.points, Z, old_index, prior), prior)
        return state if added or not int(self.folded) else state._with_kernel(prior)

    def renewed(self, prior: SparsePrior, limits: Limits) -> Self:
        """The state under other hyperparameters, if they are others: O(r^2 d + r M^2 + M^3) and the
        solve.
        """
        if torch.equal(self.made_with, prior.numbers):
            return self
        return self._remade(rebase(self.points, prior.kernel, prior.mean)[0], prior, limits)

    def folded_posterior(self, prior: SparsePrior) -> SGPRState:
        """The posterior given the folded rows alone, from which points are chosen again."""
        if int(self.folded):
            return rebase(self.points, prior.kernel, prior.mean)[0]
        return empty_state(self.points.Z, prior.mean, self.points.jitter)

    def rebuilt(
        self,
        before: SGPRState,
        Z: Tensor,
        old_index: Tensor,
        prior: SparsePrior,
        limits: Limits,
    ) -> Self:
        """As `renewed`, on inducing points chosen from `folded_posterior` (``before``)."""
        return self._remade(_moved(before, Z, old_index, prior), prior, limits)

    def _remade(self, points: SGPRState, prior: SparsePrior, limits: Limits) -> Self:
        """With this posterior given the folded rows, and everything else recomputed."""
        state = replace(self, made_with=prior.numbers)._crossed(points, prior)
        return state._with_kernel(prior)._solved(prior, limits)

    def _crossed(self, points: SGPRState, prior: SparsePrior) -> Self:
        """With other inducing points, their ``A``, ``G`` and factors: O(r M^2 + M^3)."""
        A = solve(points.L, dense(prior.kernel, points.Z, self.window.rows.X))
        window = replace(self.window, A=A)
        state = replace(self, points=points, window=window, L_D=_factor(points.G))
        return state._weighed(points.G, A, prior.scale * window.rows.r)

    def _with_kernel(self, prior: SparsePrior) -> Self:
        """With covariances of the window's rows computed again: O(r^2 (d + M))."""
        own = self.window
        K = dense(prior.kernel, own.rows.X) + self._folded_part(own.A, own.A)
        return replace(self, window=replace(own, K=K))

    # -- parts -----------------------------------------------------------------------------------

    def _weighed(self, G: Tensor, A: Tensor, d: Tensor) -> Self:
        """With ``G + A D^-1 A'`` as the precision of all data."""
        G = G + _gram(A, d)
        return replace(self, G=G, L_B=_factor(G))

    def _folded_part(self, A: Tensor, other: Tensor) -> Tensor:
        """``k_D - k = A'(B_D^-1 - I) A`` between rows; zero before any row is folded."""
        if not int(self.folded):
            return A.new_zeros(())
        return (torch.cholesky_solve(A, self.L_D) - A).mT @ other

    def folded_mean(self) -> Tensor:
        """``B_D^-1 c_D``: mean of the whitened values at Z given the folded rows, ``M``."""
        return torch.cholesky_solve(self.points.c[:, None], self.L_D)[:, 0]


def _moved(points: SGPRState, Z: Tensor, old_index: Tensor, prior: SparsePrior) -> SGPRState:
    """A posterior under the current hyperparameters on other inducing points (MATHS 3.3)."""
    nothing = Batch(points.Z[:0], points.c[:0], points.c[:0])
    return update(points, nothing, prior.kernel, points.mean, Z, old_index, same_kernel=True).state


def _factor(G: Tensor) -> Tensor:
    """``chol(I + G)``."""
    return torch.linalg.cholesky(G + eye(G, len(G)))


def _gram(A: Tensor, d: Tensor) -> Tensor:
    """``A D^-1 A'``."""
    root = A / d.sqrt()
    return root @ root.mT


# -- the mean ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class System:
    """The system ``(K + D) w = b``, by conjugate gradients from the previous coefficients.

    The preconditioner is the inverse of the system without the variance that the inducing points
    leave unexplained, ``(A'B_D^-1 A + D)^-1 = D^-1 - D^-1 A'(I + G)^-1 A D^-1``. It needs only the
    factor of the covariance. If the noise is far below the unexplained variance, hundreds of
    iterations would be needed, and the whole system is factorised instead.

    Attributes:
        K: ``k_D(R, R)``, ``r x r``.
        A: ``M x r``.
        d: Noise variances, ``r``.
        L_B: ``chol(I + G)``, ``M x M``.
    """

    K: Tensor
    A: Tensor
    d: Tensor
    L_B: Tensor

    def times(self, v: Tensor) -> Tensor:
        """``(k_D + D) v``: O(r^2)."""
        return self.K @ v + self.d * v

    def preconditioned(self, v: Tensor) -> Tensor:
        """``(A'B_D^-1 A + D)^-1 v``: O(r M + M^2)."""
        u = v / self.d
        a = torch.cholesky_solve((self.A @ u)[:, None], self.L_B)[:, 0]
        return u - (self.A.mT @ a) / self.d

    def solved(self, b: Tensor, start: Tensor, tolerance: float, direct: int = DIRECT) -> Tensor:
        """``w`` whose residual is at most so many noise standard deviations in any row.

        Args:
            b: Right-hand side, ``r``.
            start: Coefficients to start from, ``r``.
            tolerance: Largest residual of a row, in noise standard deviations.
            direct: Rows up to which the system is factorised.
        """
        found, w = False, start
        if len(b) > direct:
            w, found = self._iterated(b, start, tolerance, FEWEST + len(b) // ROWS_EACH)
        if not found:
            L = chol_psd(self.K + torch.diag(self.d))
            for _ in range(2):  # refined once
                w = w + torch.cholesky_solve((b - self.times(w))[:, None], L)[:, 0]
        return w

    def _iterated(self, b: Tensor, w: Tensor, tolerance: float, most: int) -> tuple[Tensor, bool]:
        """Conjugate gradients, and whether they converged."""
        limit = tolerance * self.d.sqrt()
        r = b - self.times(w)
        p, old = torch.zeros_like(r), r.new_ones(())
        for _ in range(most):
            if bool((r.abs() <= limit).all()):
                # the recursion drifts from the residual: compute it
                r = b - self.times(w)
                if bool((r.abs() <= limit).all()):
                    return w, True
                p = torch.zeros_like(r)
            z = self.preconditioned(r)
            new = r @ z
            p = z + (new / old) * p
            q = self.times(p)
            step = new / (p @ q)
            w, r, old = w + step * p, r - step * q, new
        return w, False


def decoupled_process(state: DecoupledState, prior: SparsePrior) -> Process:
    """Mean ``c + a_x'h + k(x, X) w``, covariance ``k - a_x'a_z + V_x'V_z``; X are those of the
    window.

    From a state under these hyperparameters: O(r M + M^2).
    """
    points, own = state.points, state.window
    a = own.A @ own.w
    h = state.folded_mean() + torch.cholesky_solve(a[:, None], state.L_D)[:, 0] - a
    nugget = torch.cat([points.nugget, torch.zeros_like(own.w)])
    basis = KernelBasis(prior.kernel, torch.cat([points.Z, own.rows.X]), nugget[None])
    u = torch.cat([h, own.w])[None]
    return Process(prior.kernel, basis, points.L[None], state.L_B[None], u, prior.mean.reshape(1))
