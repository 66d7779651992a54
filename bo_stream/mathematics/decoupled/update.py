"""How a decoupled state absorbs data (MATHS 6.8, steps 1 to 5).

Rows are added to the window and to the covariance, and the mean is solved for. Then rows beyond the
window's size are folded into the inducing points, those of least contribution first, as in online
SGPR (MATHS 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bo_stream.mathematics.decoupled.solve import System
from bo_stream.mathematics.decoupled.state import DecoupledState, Hyperparameters, Window
from bo_stream.mathematics.inducing.state import (
    Batch,
    SGPRState,
    dense,
    diagonal,
    empty_state,
    eye,
    factor_B,
    solve,
)
from bo_stream.mathematics.inducing.update import rebase, update

__all__ = [
    "Limits",
    "absorbed",
    "folded_mean",
    "on_points",
    "rebuilt",
    "renewed",
    "restarted",
    "sparse_posterior",
]


@dataclass(frozen=True)
class Limits:
    """Limits of what a stream keeps, and the tolerance of the mean.

    Attributes:
        window: Rows kept after folding.
        slack: Rows beyond these before some are folded.
        sample: Rows kept for hyperparameters.
        tolerance: In noise standard deviations.
    """

    window: int
    slack: int
    sample: int
    tolerance: float

    def room(self, rows: int) -> int:
        """Rows to allocate: constant once the window is full."""
        return rows if rows < self.window else max(rows, self.window + self.slack)


def absorbed(
    state: DecoupledState, rows: Batch, prior: Hyperparameters, limits: Limits
) -> DecoupledState:
    """The state after a batch, with the same inducing points.

    O(r^2 + r M) for each iteration of the solves, and O(q M^2 + M^3 + r^2) in addition. A batch
    larger than the window is absorbed in parts.

    Args:
        state: The state, under the current hyperparameters.
        rows: The batch, its noise before any learned scale.
        prior: The current hyperparameters.
        limits: What is kept.
    """
    X, y, noise = rows.X, rows.y, rows.noise
    before = int(state.target_moments[0])
    sample = state.sample.given(X, y, noise, before, limits.sample)
    state = replace(state.counted(y), sample=sample)
    first, most = 0, limits.window + limits.slack
    while first < len(y):
        room = most - state.window.size
        last = first + (room if room >= len(y) - first else max(room, limits.window // 2, 1))
        part = X[first:last], y[first:last], noise[first:last]
        state = _solved(_joined(state, *part, prior, limits), prior, limits)
        first = last
        if state.window.size > most:
            state = _solved(_folded(state, prior, limits), prior, limits)
    return state


def sparse_posterior(state: DecoupledState, prior: Hyperparameters) -> SGPRState:
    """The posterior of an online sparse GP with the same inducing points, for growth policies."""
    own = state.window.rows()
    c = state.past.c + own.A @ ((own.y - prior.mean) / (prior.scale * own.noise))
    kappa = 0.5 * solve(state.L_B, c).square().sum() - state.L_B.diagonal().log().sum()
    return replace(state.past, G=state.G, c=c, kappa=kappa)


def folded_mean(state: DecoupledState) -> Tensor:
    """``B_D^-1 c_D``: posterior mean of the whitened values at Z given the folded rows, ``M``."""
    return torch.cholesky_solve(state.past.c[:, None], state.L_D)[:, 0]


def on_points(
    state: DecoupledState, Z: Tensor, old_index: Tensor, prior: Hyperparameters
) -> DecoupledState:
    """The state on other inducing points; the mean is not solved for again.

    Points that are added do not change the posterior given the folded rows; information at points
    that are dropped is projected on the others (MATHS 3.3).

    Args:
        state: The state, under the current hyperparameters.
        Z: Inducing points, ``M x d``.
        old_index: Row in Z of each old inducing point, -1 if dropped.
        prior: The current hyperparameters.
    """
    size = len(old_index)
    added = torch.equal(old_index, torch.arange(size, device=Z.device))
    if added and len(Z) == size:
        return state
    state = _crossed(replace(state, past=_moved(state.past, Z, old_index, prior)), prior)
    return state if added or not int(state.folded) else _with_kernel(state, prior)


def renewed(state: DecoupledState, prior: Hyperparameters, limits: Limits) -> DecoupledState:
    """The state under other hyperparameters: factors are computed again, folded rows
    kept, and coefficients solved for.

    O(r^2 d + r M^2 + M^3) and the solve.
    """
    if torch.equal(state.made_with, prior.numbers):
        return state
    return _remade(state, rebase(state.past, prior.kernel, prior.mean)[0], prior, limits)


def rebuilt(
    state: DecoupledState,
    before: SGPRState,
    Z: Tensor,
    old_index: Tensor,
    prior: Hyperparameters,
    limits: Limits,
) -> DecoupledState:
    """The same on other inducing points, chosen from `restarted` (``before``)."""
    return _remade(state, _moved(before, Z, old_index, prior), prior, limits)


def restarted(state: DecoupledState, prior: Hyperparameters) -> SGPRState:
    """The posterior given the folded rows alone, from which inducing points are chosen again."""
    if int(state.folded):
        return rebase(state.past, prior.kernel, prior.mean)[0]
    return empty_state(state.past.Z, prior.mean, state.past.jitter)


def _moved(past: SGPRState, Z: Tensor, old_index: Tensor, prior: Hyperparameters) -> SGPRState:
    """A posterior under the current hyperparameters on other inducing points (MATHS 3.3)."""
    nothing = Batch(past.Z[:0], past.c[:0], past.c[:0])
    return update(past, nothing, prior.kernel, past.mean, Z, old_index, same_kernel=True).state


def _remade(
    state: DecoupledState, past: SGPRState, prior: Hyperparameters, limits: Limits
) -> DecoupledState:
    """With this posterior given the folded rows, and everything else recomputed."""
    state = _crossed(replace(state, past=past, made_with=prior.numbers), prior)
    return _solved(_with_kernel(state, prior), prior, limits)


def _crossed(state: DecoupledState, prior: Hyperparameters) -> DecoupledState:
    """With ``A``, ``G`` and factors of the current inducing points: O(r M^2 + M^3)."""
    past, n = state.past, state.window.size
    window = replace(state.window, A=past.c.new_zeros(past.size, len(state.window.y)))
    own = window.rows()
    if n and past.size:
        window.A[:, :n] = solve(past.L, dense(prior.kernel, past.Z, own.X))
    state = replace(state, window=window, L_D=_factor(past.G))
    return _weighed(state, past.G, own.A, prior.scale * own.noise)


def _with_kernel(state: DecoupledState, prior: Hyperparameters) -> DecoupledState:
    """With covariances of the window's rows computed again: O(r^2 (d + M))."""
    window, n = state.window.with_room(len(state.window.y)), state.window.size
    if n:
        own = window.rows()
        window.K[:n, :n] = dense(prior.kernel, own.X) + _folded_part(state, own.A, own.A)
    return replace(state, window=window)


def _folded_part(state: DecoupledState, A: Tensor, other: Tensor) -> Tensor:
    """``k_D - k = A'(B_D^-1 - I) A`` between rows; zero before any row is folded."""
    if not int(state.folded):
        return A.new_zeros(())
    return (torch.cholesky_solve(A, state.L_D) - A).mT @ other


def _factor(G: Tensor) -> Tensor:
    """``chol(I + G)``."""
    return torch.linalg.cholesky(G + eye(G, len(G)))


def _weighed(state: DecoupledState, G: Tensor, A: Tensor, d: Tensor) -> DecoupledState:
    """With ``G + A D^-1 A'`` as the precision of all data."""
    root = A / d.sqrt()
    G = G + root @ root.mT
    return replace(state, G=G, L_B=_factor(G))


def _joined(
    state: DecoupledState,
    X: Tensor,
    y: Tensor,
    noise: Tensor,
    prior: Hyperparameters,
    limits: Limits,
) -> DecoupledState:
    """Rows at the end of the window, with coefficients of zero: O(q M^2 + r^2)."""
    n, past = state.window.size, state.past
    m = n + len(y)
    window = state.window.with_room(limits.room(m))
    A = past.c.new_zeros(past.size, len(y))
    if past.size:
        A = solve(past.L, dense(prior.kernel, past.Z, X))
    window.X[n:m], window.y[n:m], window.noise[n:m], window.A[:, n:m] = X, y, noise, A
    cross = dense(prior.kernel, X, window.X[:m]) + _folded_part(state, A, window.A[:, :m])
    window.K[n:m, :m], window.K[:n, n:m] = cross, cross[:, :n].mT
    window = replace(window, held=torch.full_like(window.held, m))
    return _weighed(replace(state, window=window), state.G, A, prior.scale * noise)


def least(own: Window, variances: Tensor) -> Tensor:
    """Rows in the order in which they are folded: of least ``|w| sqrt(k(x, x) - |A|^2)`` first.

    This is the norm of the part of the mean that the inducing points cannot represent.

    Args:
        own: The rows.
        variances: Prior variances ``k(x, x)`` at them, ``r``.
    """
    missed = (variances - own.A.square().sum(0)).clamp_min(0.0)
    return (own.w.abs() * missed.sqrt()).argsort(stable=True)


def _folded(state: DecoupledState, prior: Hyperparameters, limits: Limits) -> DecoupledState:
    """Without the rows of least contribution: ``G_D += A D^-1 A'``, likewise ``c_D`` (step 4)."""
    own = state.window.rows()
    order = least(own, diagonal(prior.kernel, own.X))
    go, stay = order[: len(order) - limits.window], order[len(order) - limits.window :]
    d, past, A = prior.scale * own.noise[go], state.past, own.A[:, go]
    root = A / d.sqrt()
    G, c = past.G + root @ root.mT, past.c + A @ ((own.y[go] - past.mean) / d)
    past = replace(past, G=G, c=c, kappa=factor_B(G, c)[2])
    stay = stay.sort().values
    window = state.window.kept(stay, limits.room(len(stay)))
    # conditioning the rows that stay on the inducing points' part of those that go
    half = solve(state.L_D, A)
    seen = half.mT @ half + torch.diag(d)
    less = solve(torch.linalg.cholesky(seen), half.mT @ solve(state.L_D, own.A[:, stay]))
    window.K[: len(stay), : len(stay)] -= less.mT @ less
    folded = state.folded + len(go)
    return replace(state, past=past, L_D=_factor(G), window=window, folded=folded)


def _solved(state: DecoupledState, prior: Hyperparameters, limits: Limits) -> DecoupledState:
    """With coefficients for the window as it is (step 3)."""
    own = state.window.rows()
    if not len(own.y):
        return state
    system = System(own.K, own.A, prior.scale * own.noise, state.L_B)
    target = own.y - prior.mean - own.A.mT @ folded_mean(state)
    w = torch.zeros_like(state.window.w)
    w[: len(own.y)] = system.solved(target, own.w, limits.tolerance)
    return replace(state, window=replace(state.window, w=w))
