"""VIPS: as many inducing points as the bound requires [VIPS, Alg. 1 and 4] (MATHS 4.2).

Points enter by largest conditional variance while the gap between an upper bound and the bound
reached exceeds a share ``delta`` of the gain over a model of noise alone. With the optimal bound
``L*`` as upper bound the gap *is* the divergence from the best possible update, so stopping at a
gap ``alpha`` guarantees ``KL[q_n || q*_n] <= alpha``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.growth.policy import (
    Selection,
    all_old,
    check_cap,
    check_positive,
    indices,
    selected_update,
)
from bo_stream.mathematics.inducing.bounds import log_noise_model, optimal_bound, upper_bound
from bo_stream.mathematics.inducing.greedy import GreedyVariance
from bo_stream.mathematics.inducing.state import (
    Batch,
    SGPRState,
    dense,
    diagonal,
    factor_B,
    log_gaussian_terms,
    solve,
)

__all__ = ["VIPS"]


@dataclass(frozen=True)
class VIPS:
    """Grow until the gap is at most ``delta`` of ``|U - L_noise|``; old points stay.

    Args:
        delta: Share of the gap allowed; the paper uses 0.005 to 0.2.
        upper: "optimal" measures the gap from ``L*``, computed once in O(N^3 + N M^2) (batches up
            to about 5,000); "collapsed" from ``U-hat`` at every step, O(N M^2 + M^3) each: the same
            order of choice, more points.
        max_points: Largest number of inducing points, None for no cap.

    Adding a point costs O(N M + M^2).
    """

    delta: float = 0.035
    upper: Literal["optimal", "collapsed"] = "optimal"
    max_points: int | None = None

    def __post_init__(self) -> None:
        check_positive("delta", self.delta)
        check_cap(self.max_points)
        if self.upper not in ("optimal", "collapsed"):
            remedy = "Leave it out for 'optimal'."
            raise InputError("upper of 'optimal' or 'collapsed'", f"{self.upper!r}", remedy)

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """All old points, and batch points until the bounds are close enough."""
        kept = all_old(state)
        cap = float("inf") if self.max_points is None else self.max_points
        optimal = self.upper == "optimal"
        K = dense(kernel, batch.X) if optimal else None
        L_star = float(optimal_bound(state, batch, kernel, K)) if optimal else None
        greedy = GreedyVariance(kernel, batch.X, state.jitter, state.Z, state.L, K)
        bound = GrowingBound(state, batch, greedy)
        typical = diagonal(kernel, batch.X).mean() + batch.noise.mean() if batch.size else 1.0
        L_noise = log_noise_model(batch, float(typical))
        while greedy.size < cap:
            chosen = Selection(kept, indices(greedy.chosen, kept))
            U = L_star if L_star is not None else self._collapsed(state, batch, kernel, chosen)
            j = greedy.best()
            if U - bound.value <= self.delta * abs(U - L_noise) or j is None:
                break
            bound.add(j)
        return Selection(kept, indices(greedy.chosen, kept), optimal_bound=L_star)

    @staticmethod
    def _collapsed(state: SGPRState, batch: Batch, kernel: Kernel, chosen: Selection) -> float:
        return float(upper_bound(selected_update(state, batch, kernel, chosen), batch))


class GrowingBound:
    """``L-hat`` as batch points are added to the inducing set, O(N M + M^2) per point."""

    def __init__(self, state: SGPRState, batch: Batch, greedy: GreedyVariance) -> None:
        self._greedy, self._d = greedy, batch.noise
        self._e = batch.y - state.mean
        A, A_d = greedy.A, greedy.A / self._d
        L_B, beta, kappa = factor_B(A_d @ A.mT + state.G, A_d @ self._e + state.c)
        self._L_B, self._beta, self._size = L_B, beta, state.size
        unexplained = 0.5 * (greedy.r / self._d).sum()
        terms = log_gaussian_terms(self._e, self._d)
        self.value = float(terms + kappa - unexplained - state.kappa)

    def add(self, j: int) -> None:
        """Add batch point j to the inducing points."""
        A, M = self._greedy.A, self._size
        a = self._greedy.add(j)
        a_d = a / self._d
        w = solve(self._L_B[:M, :M], A @ a_d)
        own = a @ a_d
        dd = (1.0 + own - w @ w).clamp_min(1.0).sqrt()  # B >= I: a Schur complement is at least 1
        bn = (a_d @ self._e - w @ self._beta[:M]) / dd
        self.value += float(0.5 * bn.square() - dd.log() + 0.5 * own)
        self._append(w, dd, bn)

    def _append(self, w: Tensor, dd: Tensor, bn: Tensor) -> None:
        M = self._size
        if self._beta.shape[0] == M:
            room = max(16, M)
            self._L_B = torch.nn.functional.pad(self._L_B, (0, room, 0, room))
            self._beta = torch.nn.functional.pad(self._beta, (0, room))
        self._L_B[M, :M], self._L_B[M, M], self._beta[M] = w, dd, bn
        self._size = M + 1
