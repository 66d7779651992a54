"""Whether the residuals of a batch hold a function that the model takes for noise.

With predictive covariance C and residuals e, let the data have a further component of covariance
``a S``. The slope of the log density in a, at a = 0, is

    s = 1/2 (p'S p - tr(C^-1 S)),    p = C^-1 e,    Var s = 1/2 tr((C^-1 S)^2) = I

if the model is right. A noise level that is wrong, too, would show in s; what the slope in the
noise level explains is taken out, so that only residuals that are alike where inputs are near
count. Sums over batches of s and I are a test (s / sqrt(I) standard deviations) and an estimate (a
= s / I) of how much of the noise is a function (Rao's efficient score).
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.inducing.posterior import predict
from bo_stream.mathematics.inducing.state import Batch, SGPRState, dense, solve

__all__ = ["hidden_structure", "whitened_residuals"]


def whitened_residuals(state: SGPRState, batch: Batch, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """``L^-1 (y - mean)`` (``N``) and ``L`` (``N x N``) of the predictive covariance ``L L'``.

    Args:
        state: State before the batch, under the present hyperparameters.
        batch: The data.
        kernel: The kernel of the state.
    """
    mean, A, V = predict(state, kernel, batch.X)
    C = dense(kernel, batch.X) - A.mT @ A + V.mT @ V + torch.diag(batch.noise)
    L = torch.linalg.cholesky(C)
    return solve(L, batch.y - mean), L


def hidden_structure(
    whitened: Tensor, L: Tensor, batch: Batch, quick: Kernel
) -> tuple[Tensor, Tensor]:
    """``s`` and ``I`` of a component that varies as quickly as this kernel, O(N^3).

    Args:
        whitened: ``L^-1 (y - mean)``, ``N``.
        L: Factor of the predictive covariance, ``N x N``.
        batch: The data.
        quick: The kernel; only its correlations count. An amplitude of 1 is the noise variance.
    """
    S = dense(quick, batch.X)
    sd = (batch.noise.mean() / S.diagonal()).sqrt()
    W = _inside(L, S * sd * sd.unsqueeze(-1))
    N = _inside(L, torch.diag(batch.noise))
    scores = [0.5 * (whitened @ M @ whitened - M.diagonal().sum()) for M in (W, N)]
    own, shared, level = (0.5 * (P * Q).sum() for P, Q in ((W, W), (W, N), (N, N)))
    slope = shared / level
    return scores[0] - slope * scores[1], (own - slope * shared).clamp_min(0.0)


def _inside(L: Tensor, S: Tensor) -> Tensor:
    """``L^-1 S L^-T``."""
    return solve(L, solve(L, S).mT)
