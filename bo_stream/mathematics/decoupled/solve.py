"""The coefficients of a window's rows in the mean: a positive definite system (MATHS 6.8, step 3).

    (k_D(R, R) + D) w = y - m_D,    k_D = K + A'(B_D^-1 - I) A,    B_D = I + G_D

by conjugate gradients from the previous coefficients. The preconditioner is the inverse of the
system without the variance that the inducing points leave unexplained, ``(A'B_D^-1 A + D)^-1 =
D^-1 - D^-1 A'(I + G)^-1 A D^-1``. It needs only the factor of the covariance. If the noise is far
below the unexplained variance, hundreds of iterations would be needed, and the whole system is
factorised instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_stream.mathematics.linalg import chol_psd

__all__ = ["System"]

DIRECT = 256
"""Rows up to which a factorisation is as fast as iterations."""
FEWEST, ROWS_EACH = 24, 64
"""Iterations before factorising: the first number, plus one for each so many rows."""


@dataclass(frozen=True)
class System:
    """The system ``(K + D) w = b``.

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
        if len(b) <= direct:
            return self._factored(b, start)
        w, found = self._iterated(b, start, tolerance, FEWEST + len(b) // ROWS_EACH)
        return w if found else self._factored(b, w)

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

    def _factored(self, b: Tensor, start: Tensor) -> Tensor:
        """By a factorisation, refined once: O(r^3)."""
        L, w = chol_psd(self.K + torch.diag(self.d)), start
        for _ in range(2):
            w = w + torch.cholesky_solve((b - self.times(w))[:, None], L)[:, 0]
        return w
