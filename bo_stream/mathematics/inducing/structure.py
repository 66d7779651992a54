"""A score test for structure in the residuals of a batch that the model attributes to noise.

With predictive covariance C and residuals e, let the data have another component of covariance
``a S``. The slope of the log density in a, at a = 0, is

    s = 1/2 (p'S p - tr(C^-1 S)),    p = C^-1 e,    Var s = 1/2 tr((C^-1 S)^2) = I

if the model is right. A wrong noise level would also change s, so the part explained by the slope
in the noise level is projected out (Rao's efficient score). Sums of s and I over batches give a
test, ``s / sqrt(I)`` standard deviations, and an estimate ``a = s / I`` of the share of the noise
that is structure.
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
        state: State before the batch, under the current hyperparameters.
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
        quick: The kernel of S; only its correlations are used.
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
