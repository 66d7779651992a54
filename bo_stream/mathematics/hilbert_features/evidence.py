"""Evidence on sine features for all outputs, with closed-form gradients (MATHS 2.3, 2.4, 2.9)."""

from __future__ import annotations

import torch
from torch import Tensor

from bo_stream.mathematics.hilbert_features.state import HilbertState
from bo_stream.mathematics.sufficient_statistics.evidence import Factorisation, attach, factorise

__all__ = ["DiagonalRoot", "hilbert_evidence"]

TINY = 1e-50
"""Relative size below which roots of variances are set to zero: subnormal numbers are slow."""


class DiagonalRoot:
    """Root of a diagonal prior covariance, with a zero for the column of ones.

    Args:
        logs: Logarithms of the features' prior variances, ``f``.
    """

    def __init__(self, logs: Tensor) -> None:
        r = (0.5 * logs).exp()
        r = torch.where(r < TINY * r.max(), 0.0, r)
        self.r = torch.cat([r, r.new_zeros(1)])

    def left(self, M: Tensor) -> Tensor:
        """``R M``."""
        return self.r.unsqueeze(-1) * M

    def left_t(self, M: Tensor) -> Tensor:
        """``R' M``."""
        return self.left(M)

    def project(self, A: Tensor) -> Tensor:
        """``R' A R``."""
        return (self.r.unsqueeze(-1) * A).mul_(self.r)

    def lift(self, Q_inv: Tensor) -> Tensor:
        """``R Q^-1 R'``."""
        return self.project(Q_inv)

    def gradient(self, Y: Tensor) -> list[Tensor]:
        """Gradient in the logarithms: half the diagonal of Y."""
        return [0.5 * Y.diagonal()[:-1]]


def hilbert_evidence(
    state: HilbertState, logs: Tensor, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, list[Factorisation]]:
    """Log evidence summed over outputs, differentiable (once), and the factorisations.

    Costs one Cholesky factor and one inverse of an ``f x f`` matrix for each output.

    Args:
        state: The state.
        logs: Logarithms of the features' prior variances, ``o x f``.
        s2: Noise scales, ``o``.
        c: Constant means, counted from the state's origin, ``o``.
        profile_mean: Take the optimal constant means instead.
    """
    values, made = [], []
    for i, log in enumerate(logs):
        with torch.no_grad():
            root, stats = DiagonalRoot(log.detach()), state.statistics(i)
            value, gradients, own = factorise(root, stats, s2[i], c[i], profile_mean)
        made.append(own)
        values.append(attach(value, [s2[i], c[i], log], gradients))
    return torch.stack(values).sum(), made
