"""Evidence on sine features, with closed-form gradients (MATHS 2.3, 2.4, 2.9)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bo_stream.mathematics.evidence import Factorisation, OutputStatistics, factorise

__all__ = ["evidence", "factorised"]

TINY = 1e-50
"""Relative size below which roots of variances are set to zero: subnormal numbers are slow."""


def factorised(
    stats: Sequence[OutputStatistics], logs: Tensor, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, list[Factorisation]]:
    """Roots of the prior variances, ``o x f``, and the factorisation of every output.

    Costs one Cholesky factor of an ``f x f`` matrix for each output.

    Args:
        stats: The statistics of each output.
        logs: Logarithms of the features' prior variances, ``o x f``.
        s2: Noise scales, ``o``.
        c: Constant means, counted from the statistics' origin, ``o``.
        profile_mean: Take the optimal constant means instead (MATHS 2.4).
    """
    r = (0.5 * logs).exp()
    r = torch.where(r < TINY * r.amax(-1, keepdim=True), 0.0, r)
    each = zip(stats, s2, c, r, strict=True)
    return r, [factorise(sums, s, mean, profile_mean, root) for sums, s, mean, root in each]


def evidence(factors: Sequence[Factorisation]) -> tuple[Tensor, list[Tensor], Tensor]:
    """Log evidence summed over outputs, its gradients, and the constant means, ``o``.

    Costs one triangular inverse for each output.

    Returns:
        Gradients in noise scales and means, ``o`` each, and in the logarithms of the prior
        variances, ``o x f``.
    """
    slopes = zip(*(f.diagonal_gradients() for f in factors), strict=True)
    d_s2, d_c, d_logs = map(torch.stack, slopes)
    value, means = sum(f.value() for f in factors), torch.stack([f.mean for f in factors])
    return torch.as_tensor(value), [d_s2, d_c, 0.5 * d_logs], means
