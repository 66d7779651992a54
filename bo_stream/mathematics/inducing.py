"""The online sparse GP, in a stable information form (MATHS 3, 4.1) [Bui, VIPS], and SVDGP's state.

The old posterior over ``a = f(Z_o)`` is a Gaussian likelihood ``l(a)`` times the prior. The
likelihood is kept, not the posterior: it is additive over batches, and a function of function
*values*, hence unchanged when hyperparameters, the inducing points or the prior mean change. In
whitened coordinates ``v = L^-1 (a - m)``

    l(a) = exp(-1/2 v'G v + c'v),   B = I + G,
    kappa = log int N(v; 0, I) l dv = 1/2 c'B^-1 c - 1/2 log|B|.

``B >= I``, so its Cholesky factorisation needs no jitter, and no inverses are subtracted: the
``(S^-1 - K^-1)^-1`` of the published algorithms fails, or has errors of 1e-3 to 1e+1 (MATHS 3.8).

Letters: ``a``, ``o`` the old inducing points and state, ``b``, ``n`` the new ones, ``f`` the batch;
``N`` batch size, ``M`` inducing points; ``d`` noise variances. Everything is float64, in
transformed space, and differentiable in the new hyperparameters, the new mean, the noise and the
new points; the old state is a constant.

The bounds of a batch are ``L-hat(Z) <= L* <= U-hat(Z)``. ``L*`` is its log predictive density under
the old posterior, which no choice of inducing points can exceed; ``L* - L-hat = KL[q_n || q*_n]``
exactly when the hyperparameters stay the same.

A `DecoupledState` has a sparse covariance from all data, and a mean that is exact on a window of
rows (MATHS 6.8). With ``L L' = K(Z, Z)`` (and a nugget) and ``A = L^-1 K(Z, X)``,
all data are in the covariance as

    cov(x, z) = k(x, z) - A_x'A_z + A_x'(I + G)^-1 A_z,    G = G_D + A_R D_R^-1 A_R',

where ``G_D`` holds the data that have left the window, and the window's rows R have coefficients w
in the mean. In the letters of MATHS 6.1: ``alpha = Z u R``, ``beta = Z``, ``B = L^-T G L^-1``.

Rows are added to the window and to the covariance. Then rows beyond the window's size are folded
into the inducing points, those of least contribution first, as in online SGPR (MATHS 3.3). The
coefficients solve

    (k_D(R, R) + D) w = y - m_D,    k_D = K + A'(B_D^-1 - I) A,    B_D = I + G_D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.evidence import log_evidence
from bo_stream.mathematics.joint import Joint
from bo_stream.mathematics.kernels import Prior, values_between
from bo_stream.mathematics.linalg import bordered, chol_psd, inverse_factor, lower_factor
from bo_stream.mathematics.process import KernelBasis, Process
from bo_stream.mathematics.shapes import Rows, nested, shaped

__all__ = [
    "Batch",
    "DecoupledState",
    "GreedyVariance",
    "InducingState",
    "SGPRState",
    "SparsePrior",
    "Update",
    "dense",
    "diagonal",
    "empty_state",
    "factor_B",
    "log_gaussian_terms",
    "log_noise_model",
    "lowest",
    "merged_moments",
    "noisy_kernel",
    "optimal_bound",
    "predict",
    "rebase",
    "solve",
    "sparse_process",
    "update",
]

GOLDEN = 0.6180339887498949
WHOLE_KERNEL = 4096
"""Pools up to this size have their kernel matrix computed once; larger ones row by row."""
BLOCK = 256
"""Rows of a covariance that are computed at a time."""
TIE = 1e-12
"""Conditional variances closer than this share of the prior variance are ties."""


@dataclass(frozen=True)
class SparsePrior(Prior):
    """Frozen hyperparameters of one output.

    Attributes:
        numbers: All of them as numbers, for comparison.
    """

    numbers: Tensor


@dataclass(frozen=True)
class SGPRState:
    """State of an online sparse GP: O(M^2) numbers, whatever n is (MATHS 3.2).

    Attributes:
        Z: Inducing points, ``M x d``.
        L: ``chol(K(Z, Z) + diag(nugget))`` under the last update's kernel, ``M x M``.
        G: Whitened precision of the likelihood of ``f(Z)``, ``M x M``, positive semi-definite.
        c: Whitened linear term, ``M``.
        mean: The constant prior mean ``m_o``, 0-dim.
        kappa: Log normaliser, 0-dim.
        jitter: The nugget, which makes K positive definite in floating point: the variance of
            independent noise of the values at Z, relative to the prior variances.
    """

    Z: Tensor = shaped("M d")
    L: Tensor = shaped("M M")
    G: Tensor = shaped("M M")
    c: Tensor = shaped("M")
    mean: Tensor = shaped("")
    kappa: Tensor = shaped("")
    jitter: float = 1e-8

    @property
    def size(self) -> int:
        """The number of inducing points ``M``."""
        return self.Z.shape[0]

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> SGPRState:
        """The likelihood of values ``(f - shift) / factor`` (0-dim), and known noise to match."""
        precision = factor.square() if known_noise else 1.0
        G, c = precision * self.G, precision / factor * self.c
        mean = (self.mean - shift) / factor
        return replace(self, G=G, c=c, mean=mean, kappa=factor_B(G, c)[2])


@dataclass(frozen=True)
class Batch:
    """A batch of data in transformed space, with context for growth policies.

    Attributes:
        X: Points, ``N x d``.
        y: Targets, ``N`` (the prior mean not subtracted).
        noise: Noise variances ``d``, ``N``.
        moments: ``(n, mean, sum of squared deviations)`` of all targets so far, this batch
            included; None for those of this batch.
        index: Number of batches before this one.
    """

    X: Tensor = shaped("N d")
    y: Tensor = shaped("N")
    noise: Tensor = shaped("N", "positive")
    moments: Tensor | None = None
    index: int = 0

    @property
    def size(self) -> int:
        """The number of points ``N``."""
        return self.X.shape[0]


@dataclass(frozen=True)
class InducingState:
    """What the states of families with inducing points have in common.

    Attributes:
        points: Inducing points, and a likelihood of their values.
        sample: Rows that hyperparameters are learned from: an even sample of all.
        rank: Their ranks, between 0 and 1 (`lowest`).
        moments: Number, mean and squared deviations of all targets absorbed.
        batches: Number of batches absorbed, 0-dim.
        made_with: The hyperparameters that the state is computed with, ``p``.
    """

    points: SGPRState = nested()
    sample: Rows = nested(n="s")
    rank: Tensor = shaped("s", "not negative")
    moments: Tensor = shaped("3")
    batches: Tensor = shaped("", "not negative")
    made_with: Tensor = shaped("p")

    @classmethod
    def empty(cls, dim: int, jitter: float, prior: SparsePrior, **more: Any) -> Self:
        """Before any data; ``more`` are a family's fields."""
        rows, batches = Rows.empty(dim), torch.zeros((), dtype=torch.int64)
        points, none = empty_state(rows.X, prior.mean[0], jitter), rows.X.new_zeros(0)
        return cls(points, rows, none, rows.X.new_zeros(3), batches, prior.numbers, **more)

    def with_counted(self, rows: Rows, most: int) -> Self:
        """With one more batch in sample and counts; the sample has at most so many rows."""
        number = self.moments[0] + torch.arange(len(rows), device=rows.X.device)
        rank = torch.cat([self.rank, (number * GOLDEN) % 1.0])
        keep = lowest(rank, most)
        return replace(
            self,
            sample=self.sample.joined(rows)[keep],
            rank=rank[keep],
            moments=merged_moments(self.moments, rows.y),
            batches=self.batches + 1,
        )

    def last_batch(self, rows: Rows, prior: SparsePrior) -> Batch:
        """Rows as the last batch counted, for growth policies."""
        noise = prior.s2 * rows.r
        return Batch(rows.X, rows.y, noise, self.moments, int(self.batches) - 1)

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """For targets ``(y - shift) / factor``, and known noise to match; shift, factor ``1``."""
        n, mean, squares = self.moments
        s, f = shift[0], factor[0]
        return replace(
            self,
            points=self.points.rescaled(s, f, known_noise),
            sample=self.sample.rescaled(shift, factor, known_noise),
            moments=torch.stack([n, (mean - s) / f, squares / f.square()]),
            made_with=torch.zeros_like(self.made_with),
        )


def lowest(rank: Tensor, most: int) -> Tensor:
    """Indices of the rows of lowest rank, at most so many, in order of arrival.

    Row i of a stream has the rank ``i phi mod 1``, with phi the golden ratio. The ranks of any
    stretch of rows are evenly spread, and so are the rows of lowest rank.
    """
    return rank.argsort()[:most].sort().values


def dense(kernel: Kernel, X: Tensor, Z: Tensor | None = None) -> Tensor:
    """Kernel matrix ``K(X, Z)`` (``K(X, X)`` without Z), float64."""
    return values_between(kernel, X, X if Z is None else Z).to(torch.float64)


def diagonal(kernel: Kernel, X: Tensor) -> Tensor:
    """Prior variances at X, ``N``, float64."""
    return kernel(X, diag=True).to(torch.float64)


def noisy_kernel(kernel: Kernel, Z: Tensor, jitter: float) -> Tensor:
    """Covariance of the values at inducing points, with their nugget: ``M x M``."""
    return dense(kernel, Z) + torch.diag(jitter * diagonal(kernel, Z))


def empty_state(X: Tensor, mean: Tensor, jitter: float = 1e-8) -> SGPRState:
    """The state before any data; X (``n x d``) gives dimension and device only."""
    square, none = X.new_zeros(0, 0), X.new_zeros(0)
    return SGPRState(X[:0], square, square, none, mean.to(X), X.new_zeros(()), jitter)


def solve(L: Tensor, B: Tensor) -> Tensor:
    """``L^-1 B`` for a lower triangular L; B is a matrix or a vector."""
    if B.ndim == 1:
        return solve(L, B.unsqueeze(-1)).squeeze(-1)
    return torch.linalg.solve_triangular(L, B, upper=False)


def factor_B(G: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``L_B = chol(I + G)``, ``beta = L_B^-1 c`` and ``kappa`` (MATHS 3.2), O(M^3)."""
    L_B = torch.linalg.cholesky(G.diagonal_scatter(G.diagonal() + 1.0))
    beta = solve(L_B, c)
    return L_B, beta, 0.5 * beta.square().sum() - L_B.diagonal().log().sum()


def log_gaussian_terms(e: Tensor, d: Tensor) -> Tensor:
    """``sum_i -1/2 [log(2 pi d_i) + e_i^2 / d_i]``."""
    return -0.5 * ((2.0 * math.pi * d).log() + e.square() / d).sum()


# -- update ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Update:
    """The new state, and bounds of the batch (MATHS 4.1); all 0-dim.

    Attributes:
        state: State after the batch.
        bound: Collapsed online bound ``L-hat`` (MATHS 3.3, step 5).
        upper: ``U-hat``; infinite if an inducing point was dropped, or the kernel changed.
    """

    state: SGPRState
    bound: Tensor
    upper: Tensor


def update(
    state: SGPRState,
    batch: Batch,
    kernel: Kernel,
    mean: Tensor,
    Z: Tensor,
    old_index: Tensor,
    *,
    same_kernel: bool = False,
) -> Update:
    """Absorb a batch with new inducing points, hyperparameters and mean (MATHS 3.3).

    Args:
        state: State before the batch; a constant.
        batch: The data; N = 0 re-expresses the state (`rebase`).
        kernel: The kernel under the new hyperparameters.
        mean: The new constant prior mean, 0-dim.
        Z: New inducing points, ``M_b x d``.
        old_index: ``M_a`` integers: the row of Z at which each old inducing point is kept, -1 where
            it is dropped.
        same_kernel: The kernel is that of ``state.L``. If also Z starts with all old points, the
            factor is extended.

    Returns:
        The update. O(N M^2 + M^3) time; N and M^2 memory.

    Source: VIPS eqs. 5-9 and App. E, OIPS App. A, with the errata of MATHS 7.
    """
    M_a, M_b = state.size, Z.shape[0]
    in_place = torch.equal(old_index, torch.arange(M_a, device=old_index.device))

    # 1. factors of the new prior
    extended = same_kernel and in_place
    if extended:
        corner = noisy_kernel(kernel, Z[M_a:], state.jitter)
        L_b = bordered(state.L, dense(kernel, state.Z, Z[M_a:]), corner)
    else:
        L_b = chol_psd(noisy_kernel(kernel, Z, state.jitter))
    A = solve(L_b, dense(kernel, Z, batch.X))
    e = batch.y - mean
    d = batch.noise

    # 3. mean shift
    u = solve(state.L, torch.ones_like(state.c)) * (mean - state.mean)
    c_o = state.c - state.G @ u
    offset = u @ state.c - 0.5 * u @ state.G @ u - state.kappa

    # 2. the old likelihood seen from the new points
    if extended:
        pad = M_b - M_a
        prior_G = F.pad(state.G, (0, pad, 0, pad))
        prior_c = F.pad(c_o, (0, pad))
    else:
        A_a, dropped_trace = _old_columns(state, kernel, Z, L_b, old_index)
        J = solve(state.L, A_a.mT)
        prior_G = J.mT @ state.G @ J
        prior_c = J.mT @ c_o
        offset = offset - 0.5 * dropped_trace

    # 4. and 5.
    A_d = A / d
    G = A_d @ A.mT + prior_G
    G = 0.5 * (G + G.mT)
    c = A_d @ e + prior_c
    L_B, _, kappa = factor_B(G, c)
    residual = diagonal(kernel, batch.X) - A.square().sum(0)
    bound = log_gaussian_terms(e, d) + kappa - 0.5 * (residual / d).sum() + offset
    upper = torch.full_like(bound, torch.inf)
    if same_kernel and bool((old_index >= 0).all()):
        # The Nystroem error of the old points is zero, so only the noise of the new data is
        # inflated, by the trace t: the log-determinant has D, the quadratic form D~ = D + t I.
        # (The paper's display omits the former.)
        D = d + residual.sum().clamp_min(0.0)
        _, beta, _ = factor_B((A / D) @ A.mT + prior_G, (A / D) @ e + prior_c)
        log_det = 2.0 * L_B.diagonal().log().sum() + (2.0 * math.pi * d).log().sum()
        upper = offset - 0.5 * (log_det + (e.square() / D).sum() - beta.square().sum())
    return Update(SGPRState(Z, L_b, G, c, mean, kappa, state.jitter), bound, upper)


def rebase(
    state: SGPRState,
    kernel: Kernel,
    mean: Tensor,
    Z: Tensor | None = None,
    old_index: Tensor | None = None,
    *,
    same_kernel: bool = False,
) -> Update:
    """An update with no data: the state under other hyperparameters or on other inducing points (by
    default the same), and the bound of that change. O(M^3).
    """
    nothing = Batch(state.Z[:0], state.c[:0], state.c[:0])
    if Z is None or old_index is None:
        Z, old_index = state.Z, torch.arange(state.size, device=state.Z.device)
    return update(state, nothing, kernel, mean, Z, old_index, same_kernel=same_kernel)


def _old_columns(
    state: SGPRState, kernel: Kernel, Z: Tensor, L_b: Tensor, old_index: Tensor
) -> tuple[Tensor, Tensor]:
    """``A_a`` (``M_b x M_a``) and ``tr(G C~)`` (MATHS 3.3, steps 2 and 5).

    A kept point's column is a row of ``L_b``, so that its jitter is counted once. The trace needs
    only the dropped points, since ``K_aa - A_a'A_a`` vanishes on kept ones.
    """
    kept = old_index >= 0
    A_a = L_b.mT[:, old_index.clamp_min(0)] if L_b.shape[0] else L_b.new_zeros(0, state.size)
    if bool(kept.all()):
        return A_a, state.kappa.new_zeros(())
    dropped = (~kept).nonzero().squeeze(-1)
    z = state.Z[dropped]
    A_z = solve(L_b, dense(kernel, Z, z))
    A_a = A_a.index_copy(1, dropped, A_z)
    W = inverse_factor(state.L)[:, dropped]
    return A_a, ((W.mT @ state.G @ W) * (dense(kernel, z) - A_z.mT @ A_z)).sum()


# -- posterior and bounds --------------------------------------------------------------------------


def sparse_process(kernel: Kernel, state: SGPRState) -> Process:
    """The posterior from a state under this kernel: O(M^3)."""
    L_B, beta, _ = factor_B(state.G, state.c)
    u = torch.linalg.solve_triangular(L_B.mT, beta.unsqueeze(-1), upper=True)
    basis = KernelBasis(kernel, state.Z, state.jitter * diagonal(kernel, state.Z)[None])
    return Process(kernel, basis, state.L[None], L_B[None], u.mT, state.mean.reshape(1))


def predict(state: SGPRState, kernel: Kernel, X: Tensor) -> Joint:
    """The posterior of the latent at points ``q x d``, of one output (MATHS 3.4).

    O(M^3) once and O(q M^2). Its ``mean`` and ``variance()`` are ``1 x q``.

    Args:
        state: The state.
        kernel: The kernel of that state.
        X: The points, in transformed space.
    """
    return sparse_process(kernel, state).at(X)


def optimal_bound(state: SGPRState, batch: Batch, kernel: Kernel) -> Tensor:
    """``L* = log N(y; m_o(X), k_o(X, X) + D)``, O(N^3 + N M^2).

    Args:
        state: State before the batch, rebased to the current hyperparameters.
        batch: The data.
        kernel: The kernel of the state.
    """
    joint = predict(state, kernel, batch.X)
    L = chol_psd(joint.covariance(joint) + torch.diag(batch.noise))
    return log_evidence(L, batch.y - joint.mean, batch.y.new_zeros(1))[0]


def log_noise_model(batch: Batch, fallback: float) -> float:
    """``L_noise`` of MATHS 4.2: the batch under one Gaussian fitted to all targets so far.

    Args:
        batch: The batch, with its ``moments``.
        fallback: The variance to use if the targets so far are one, or all equal.
    """
    moments = batch.moments
    if moments is None:
        moments = merged_moments(batch.y.new_zeros(3), batch.y)
    count, mu, M2 = moments.tolist()
    variance = M2 / (count - 1.0) if count > 1.0 and M2 > 0.0 else fallback
    e = batch.y - mu
    return float(-0.5 * (math.log(2.0 * math.pi * variance) + e.square() / variance).sum())


def merged_moments(before: Tensor, y: Tensor) -> Tensor:
    """``(n, mean, sum of squared deviations)``, with more targets: Chan et al. 1983, free of
    cancellation.
    """
    if not len(y):
        return before
    (n, mean, squares), centre = before, y.mean()
    total, shift = n + len(y), centre - mean
    within = (y - centre).square().sum() + shift.square() * n * len(y) / total
    return torch.stack([total, mean + shift * len(y) / total, squares + within])


# -- greedy choice -----------------------------------------------------------------------------


class GreedyVariance:
    """Choice by largest conditional variance: a partial Cholesky factorisation (MATHS 4.2, 4.3).

    ``r_i = k(x_i, x_i) - k_b(x_i)' K_bb^-1 k_b(x_i)`` is the variance at pool point i given the
    chosen points. Adding a point costs O(N M) with N pool points. Ties, up to rounding, go to the
    lowest index.

    Args:
        kernel: The kernel.
        X: The pool, ``N x d``.
        jitter: Relative jitter on the pivots.
        Z: Points already chosen, ``M x d``.
        L: ``chol(K(Z, Z) + jitter)``.

    Attributes:
        size: Number of points: those chosen before and those added.
        A: Rows ``L_b^-1 K(Z_b, X)``, ``M x N``, a view of a buffer that doubles as needed.
        prior, r: Prior and conditional variances, ``N``.
        chosen: Pool indices added so far.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Tensor,
        jitter: float,
        Z: Tensor,
        L: Tensor,
    ) -> None:
        self._kernel, self._X, self._jitter = kernel, X, jitter
        self._K = dense(kernel, X) if len(X) <= WHOLE_KERNEL else None
        self.prior = diagonal(kernel, X)
        self.chosen: list[int] = []
        self._free = torch.ones(X.shape[0], dtype=torch.bool, device=X.device)
        self._rows, self.size = solve(L, dense(kernel, Z, X)), len(Z)
        self.r = self.prior - self._rows.square().sum(0)

    @property
    def A(self) -> Tensor:
        """Rows so far, ``M x N``."""
        return self._rows[: self.size]

    def best(self) -> int | None:
        """The candidate of largest conditional variance; None if none exceeds 10 jitters."""
        if not bool(self._free.any()):
            return None
        r = self.r.masked_fill(~self._free, -torch.inf)
        j = int((r >= r.max() - TIE * self.prior.max()).nonzero()[0])
        return j if float(r[j]) > 10.0 * self._jitter * float(self.prior[j]) else None

    def grow(self, count: float, trace: float = -torch.inf) -> bool:
        """Add points until there are ``count``, or the conditional variances sum to ``trace``;
        whether any was added.
        """
        before, X = self.size, self._X
        while self.size < count and float(self.r.sum()) > trace and (j := self.best()) is not None:
            k_j = dense(self._kernel, X[j : j + 1], X)[0] if self._K is None else self._K[j]
            pivot = (self.r[j].clamp_min(0.0) + self._jitter * self.prior[j]).sqrt()
            a = (k_j - self.A[:, j] @ self.A) / pivot
            if self.size == len(self._rows):
                room = max(16, self.size)
                self._rows = torch.cat([self._rows, a.new_zeros(room, len(a))])
            self._rows[self.size] = a
            self.size += 1
            self.r = self.r - a.square()
            self._free[j] = False
            self.chosen.append(j)
        return self.size > before


# -- all data in the covariance, some in the mean ------------------------------------------------


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

        def covariance() -> Tensor:  # of which the lower triangle is used
            K = A.new_zeros(len(X), len(X))
            for i in range(0, len(X), BLOCK):
                j = i + BLOCK
                K[i:j, :j] = self._covariance(prior, X[i:j], X[:j], A[:, i:j], A[:, :j])
            K.diagonal().add_(prior.s2 * self.window.r)
            return K

        return replace(self, C=lower_factor(covariance))

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
