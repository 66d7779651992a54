"""How far apart two subspaces are: actions against the top eigenspace of a kernel matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bo_stream import CaGP
from bo_stream.actions import TopEigenvectors

__all__ = ["grassmann", "to_top_eigenspace"]


def grassmann(A: Tensor, B: Tensor) -> float:
    """Grassmann distance of the column spans of A and B (``n x i`` each, full column rank).

    The root of the sum of squared principal angles, as a share of the largest possible, sqrt(i)
    pi/2: 0 for equal spans, 1 for orthogonal ones. O(n i^2).
    """
    A, B = torch.linalg.qr(A)[0], torch.linalg.qr(B)[0]
    cosine = torch.linalg.svdvals(A.mT @ B)
    # an angle near 0 from its sine: acos loses half the digits there
    sine = torch.linalg.svdvals(B - A @ (A.mT @ B)).flip(0)
    angles = torch.atan2(sine.clamp(0.0, 1.0), cosine.clamp(0.0, 1.0))
    return float(angles.norm()) / (math.sqrt(angles.numel()) * 0.5 * math.pi)


def to_top_eigenspace(model: CaGP) -> float:
    """`grassmann` of a surrogate's actions and the top eigenvectors of its kernel matrix.

    As many eigenvectors as actions. O(n^3) time and O(n^2) memory: for a few thousand data.
    """
    noise = torch.ones_like(model.state.Y)
    with torch.no_grad():
        top = TopEigenvectors(model.num_actions).build(
            model.state.X, model.state.Y, noise, model.covar_module
        )
        return grassmann(model.S.dense(), top.dense())
