"""The toy's data: a wave seen with noise, except in the middle."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.common.splits import TableSplit

__all__ = ["toy"]


def toy() -> tuple[TableSplit, Tensor, Tensor]:
    """120 noisy values of a wave that quickens to the right, none of them in the middle.

    Returns:
        The split, a grid ``400 x 1`` that reaches beyond the data, and the noiseless function
        there, ``400``.
    """
    generator = torch.Generator().manual_seed(0)
    X = torch.cat([torch.linspace(-1.0, -0.1, 60), torch.linspace(0.25, 1.0, 60)]).double()[:, None]
    X_test = 2.0 * torch.rand(200, 1, generator=generator, dtype=torch.float64) - 1.0

    def wave(x: Tensor) -> Tensor:
        return (4.0 * x + 5.0 * x.square()).sin()

    def noisy(x: Tensor) -> Tensor:
        return wave(x) + 0.1 * torch.randn(x.shape, generator=generator, dtype=torch.float64)

    grid = torch.linspace(-1.3, 1.3, 400, dtype=torch.float64)[:, None]
    return TableSplit(X, noisy(X), X_test, noisy(X_test)), grid, wave(grid)[:, 0]
