"""Training and test rows in standardised units: of tables, of a toy in one dimension."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.cohort import cohort
from problems.tables import load_table

__all__ = ["Split", "toy"]


@dataclass(frozen=True, eq=False)
class Split:
    """Random training and test rows, in units of the training rows' mean and deviation.

    Attributes:
        X, Y: Training rows, ``n x d`` and ``n x 1``, in random order.
        X_test, Y_test: Test rows.
    """

    X: Tensor
    Y: Tensor
    X_test: Tensor
    Y_test: Tensor

    @classmethod
    def of(cls, name: str, train: int, test: int, seed: int) -> Split:
        """At most so many rows of a table of `problems.tables`, or of ``cohort``.

        A table of fewer rows is shared in the same proportion. Constant columns go.
        """
        if name == "cohort":
            X, Y = cohort()
        else:
            table = load_table(name)
            X, Y = table.X, table.Y
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
        cut = min(train, len(X) * train // (train + test))
        rows, held_out = order[:cut], order[cut : cut + test]
        X = X[:, X[rows].std(0) > 0.0]
        x, y = X[rows], Y[rows]
        mean, scale = (x.mean(0), y.mean(0)), (x.std(0), y.std(0))
        parts = (x, y, X[held_out], Y[held_out])
        return cls(*((part - mean[k % 2]) / scale[k % 2] for k, part in enumerate(parts)))


def toy() -> tuple[Split, Tensor, Tensor]:
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
    return Split(X, noisy(X), X_test, noisy(X_test)), grid, wave(grid)[:, 0]
