"""The posterior process of a decoupled stream (MATHS 6.8)."""

from __future__ import annotations

import torch

from bo_stream.mathematics.decoupled.state import DecoupledState, Hyperparameters
from bo_stream.mathematics.decoupled.update import folded_mean
from bo_stream.mathematics.process import KernelBasis, Process

__all__ = ["decoupled_process"]


def decoupled_process(state: DecoupledState, prior: Hyperparameters) -> Process:
    """Mean ``c + a_x'h + k(x, X) w``, covariance ``k - a_x'a_z + V_x'V_z``; X are those of the
    window.

    From a state under these hyperparameters: O(r M + M^2).
    """
    past, own = state.past, state.window.rows()
    a = own.A @ own.w
    h = folded_mean(state) + torch.cholesky_solve(a[:, None], state.L_D)[:, 0] - a
    nugget = torch.cat([past.nugget, torch.zeros_like(own.w)])
    basis = KernelBasis(prior.kernel, torch.cat([past.Z, own.X]), nugget[None])
    u = torch.cat([h, own.w])[None]
    return Process(prior.kernel, basis, past.L[None], state.L_B[None], u, prior.mean.reshape(1))
