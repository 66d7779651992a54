"""The posterior process of an online sparse GP (MATHS 3.4)."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.inducing.state import SGPRState, dense, factor_B, solve
from bo_stream.mathematics.process import KernelBasis, Process

__all__ = ["predict", "process_on", "sparse_process"]


def predict(state: SGPRState, kernel: Kernel, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and covariance factors of the latent at X, ``... x q x d`` (MATHS 3.4).

    Args:
        state: The state.
        kernel: The kernel of that state.
        X: The points.

    Returns:
        ``mean (... x q)``, ``A (... x M x q)``, ``V (... x M x q)``: the covariance is ``K(X, X) -
        A'A + V'V``. O(M^3) once and O(q M^2).
    """
    L_B, beta, _ = factor_B(state.G, state.c)
    A = solve(state.L, dense(kernel, state.Z, X))
    V = solve(L_B, A)
    mean = state.mean + (V.mT @ beta.unsqueeze(-1)).squeeze(-1)
    return mean, A, V


def sparse_process(kernel: Kernel, state: SGPRState) -> Process:
    """The posterior from a state under this kernel: O(M^3)."""
    L_B, beta, _ = factor_B(state.G, state.c)
    u = torch.linalg.solve_triangular(L_B.mT, beta.unsqueeze(-1), upper=True)
    return process_on(kernel, state, L_B, u[:, 0])


def process_on(kernel: Kernel, points: SGPRState, L_B: Tensor, u: Tensor) -> Process:
    """The posterior of whitened values ``N(u, (L_B L_B')^-1)`` at the inducing points of a state.

    Args:
        kernel: The kernel, frozen.
        points: Inducing points, their factor and nugget, and the prior mean.
        L_B: ``M x M``.
        u: ``M``.
    """
    basis = KernelBasis(kernel, points.Z, points.nugget[None])
    return Process(kernel, basis, points.L[None], L_B[None], u[None], points.mean.reshape(1))
