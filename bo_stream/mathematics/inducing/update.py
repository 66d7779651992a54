"""The update of the online sparse GP by a batch, in closed form (MATHS 3.3) [Bui, VIPS].

Letters: ``a``, ``o`` the old inducing points and state, ``b``, ``n`` the new ones, ``f`` the batch;
``N`` batch size, ``M`` inducing points; ``d`` noise variances. Everything is float64, in
transformed space, and differentiable in the new hyperparameters, the new mean, the noise and the
new points; the old state is a constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.inducing.nugget import factored
from bo_stream.mathematics.inducing.state import (
    Batch,
    SGPRState,
    dense,
    diagonal,
    eye,
    factor_B,
    log_gaussian_terms,
    solve,
)

__all__ = ["Update", "best_mean", "rebase", "update"]


@dataclass(frozen=True)
class Update:
    """The new state, the bound, and intermediate results for the bounds of MATHS 4.1.

    Attributes:
        state: State after the batch.
        bound: Collapsed online bound ``L-hat`` of the batch (MATHS 3.3, step 5), 0-dim.
        A: ``L_b^-1 K(Z_n, X)``, ``M x N``.
        e: Residuals ``y - m_n``, ``N``.
        residual: ``k(x, x) - |A[:, i]|^2``, ``N``.
        prior_G, prior_c: ``J'G J`` and ``J'c_o``, the contribution of the old state.
        offset: Terms of the bound without the batch: ``const - kappa_o - 1/2 tr(G C~)``.
        L_B, beta: ``chol(I + G)`` and ``L_B^-1 c`` of the new state.
        mean_c, mean_slope, mean_curvature: ``J'G w``, ``w'c_o`` and ``w'G w`` for ``w = L_o^-1 1``:
            the dependence of the old state on the mean.
        keeps_all: No old inducing point was dropped.
    """

    state: SGPRState
    bound: Tensor
    A: Tensor
    e: Tensor
    residual: Tensor
    prior_G: Tensor
    prior_c: Tensor
    offset: Tensor
    L_B: Tensor
    beta: Tensor
    mean_c: Tensor
    mean_slope: Tensor
    mean_curvature: Tensor
    keeps_all: bool


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
    keeps_all = bool((old_index >= 0).all())
    in_place = keeps_all and torch.equal(old_index, torch.arange(M_a, device=old_index.device))

    # 1. factors of the new prior
    extended = same_kernel and in_place
    nugget = _nuggets(state, kernel, Z, old_index, same_kernel=same_kernel)
    if extended:
        L_b = _extended(state, kernel, Z, nugget[M_a:])
    else:
        L_b, nugget = factored(kernel, Z, nugget, state.jitter)
    A = solve(L_b, dense(kernel, Z, batch.X))
    e = batch.y - mean
    d = batch.noise

    # 3. mean shift
    w = solve(state.L, torch.ones_like(state.c))
    u, G_w = w * (mean - state.mean), state.G @ w
    c_o = state.c - state.G @ u
    offset = u @ state.c - 0.5 * u @ state.G @ u - state.kappa

    # 2. the old likelihood seen from the new points
    if extended:
        pad = M_b - M_a
        prior_G = torch.nn.functional.pad(state.G, (0, pad, 0, pad))
        prior_c, mean_c = (torch.nn.functional.pad(v, (0, pad)) for v in (c_o, G_w))
    else:
        A_a, dropped_trace = _old_columns(state, kernel, Z, L_b, old_index)
        J = solve(state.L, A_a.mT)
        prior_G = J.mT @ state.G @ J
        prior_c, mean_c = J.mT @ c_o, J.mT @ G_w
        offset = offset - 0.5 * dropped_trace

    # 4. and 5.
    A_d = A / d
    G = A_d @ A.mT + prior_G
    G = 0.5 * (G + G.mT)
    c = A_d @ e + prior_c
    L_B, beta, kappa = factor_B(G, c)
    residual = diagonal(kernel, batch.X) - A.square().sum(0)
    bound = log_gaussian_terms(e, d) + kappa - 0.5 * (residual / d).sum() + offset
    new = SGPRState(Z, L_b, nugget, G, c, mean, kappa, state.jitter)
    return Update(
        new,
        bound,
        A,
        e,
        residual,
        prior_G,
        prior_c,
        offset,
        L_B,
        beta,
        mean_c,
        w @ c_o,
        w @ G_w,
        keeps_all,
    )


def best_mean(out: Update, batch: Batch) -> tuple[Tensor, Tensor]:
    """The constant mean that maximises the bound, and the bound there; both 0-dim, differentiable.

    The bound is quadratic in the mean, so one Newton step from any update is exact. O(M^2).
    """
    p = out.A @ (1.0 / batch.noise) + out.mean_c  # minus the slope of c_n
    q = solve(out.L_B, p)
    slope = (out.e / batch.noise).sum() - q @ out.beta + out.mean_slope
    curvature = (1.0 / batch.noise).sum() - q @ q + out.mean_curvature
    if bool(curvature <= 0.0):  # nothing observed: any mean is optimal
        return out.state.mean, out.bound
    return out.state.mean + slope / curvature, out.bound + 0.5 * slope.square() / curvature


def rebase(
    state: SGPRState, kernel: Kernel, mean: Tensor, *, same_kernel: bool = False
) -> tuple[SGPRState, Tensor]:
    """The state under other hyperparameters, and the bound of that change: an update with no data.
    O(M^3).
    """
    if same_kernel and torch.equal(mean, state.mean):
        return state, torch.zeros_like(state.kappa)
    nothing = Batch(state.Z[:0], state.c[:0], state.c[:0])
    index = torch.arange(state.size, device=state.Z.device)
    out = update(state, nothing, kernel, mean, state.Z, index, same_kernel=same_kernel)
    return out.state, out.bound


def _nuggets(
    state: SGPRState, kernel: Kernel, Z: Tensor, old_index: Tensor, *, same_kernel: bool
) -> Tensor:
    """The nuggets of new inducing points (``M_b``): unchanged shares of the mean prior variance for
    kept points, the jitter for new ones.
    """
    if not Z.shape[0]:
        return state.nugget[:0]
    nugget = state.jitter * diagonal(kernel, Z).mean().expand(Z.shape[0])
    kept = (old_index >= 0).nonzero().squeeze(-1)
    if not kept.numel():
        return nugget
    old = state.nugget
    if not same_kernel:
        before = state.L.square().sum(-1) - old
        old = old * (diagonal(kernel, state.Z).mean() / before.mean())
    return nugget.index_copy(0, old_index[kept], old[kept])


def _extended(state: SGPRState, kernel: Kernel, Z: Tensor, nugget: Tensor) -> Tensor:
    """``L_b = [[L_o, 0], [L_21, L_22]]`` for Z = [Z_o; new], O(M_a^2) for each new row.

    ``nugget`` is that of the new rows.
    """
    new = Z[state.size :]
    if not new.shape[0]:
        return state.L
    C = dense(kernel, new) + torch.diag(nugget)
    if not state.size:
        return torch.linalg.cholesky(C)
    L_21 = solve(state.L, dense(kernel, state.Z, new)).mT
    L_22 = torch.linalg.cholesky(C - L_21 @ L_21.mT)
    top = torch.nn.functional.pad(state.L, (0, new.shape[0]))
    return torch.cat([top, torch.cat([L_21, L_22], -1)])


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
    W = solve(state.L, eye(Z, state.size)[:, dropped])
    trace = ((W.mT @ state.G @ W) * (dense(kernel, z) - A_z.mT @ A_z)).sum()
    return A_a, trace
