"""Rows that studies learn from, of tables or made up, and scores at the rows held out."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor
from torch.distributions import Normal

Rows = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class TableSplit:
    """Training rows ``X``, ``Y``, ``n x d`` and ``n x 1``, and test rows ``X_test``, ``Y_test``."""

    X: Tensor
    Y: Tensor
    X_test: Tensor
    Y_test: Tensor

    @classmethod
    def standardised(
        cls, X: Tensor, Y: Tensor, train: int, test: int, seed: int | None
    ) -> TableSplit:
        """At most so many rows, in units of the training rows' mean and deviation.

        A table of fewer rows is shared in the same proportion. Constant columns go. Without a seed
        rows stay in their order, those for training first.
        """
        order = torch.arange(len(X)) if seed is None else _shuffled(X, seed)
        cut = min(train, len(X) * train // (train + test))
        rows, held_out = order[:cut], order[cut : cut + test]
        X = X[:, X[rows].std(0) > 0.0]
        x, y = X[rows], Y[rows]
        mean, scale = (x.mean(0), y.mean(0)), (x.std(0), y.std(0))
        parts = (x, y, X[held_out], Y[held_out])
        return cls(*((part - mean[k % 2]) / scale[k % 2] for k, part in enumerate(parts)))

    @classmethod
    def sorted(cls, X: Tensor, Y: Tensor, share: float, seed: int) -> TableSplit:
        """All rows, raw, without constant columns; a share of them for training, sorted by the
        first input.
        """
        X = X[:, X.std(0) > 0.0]
        order = _shuffled(X, seed)
        train, test = order[: int(share * len(X))], order[int(share * len(X)) :]
        train = train[X[train, 0].argsort(stable=True)]
        return cls(X[train], Y[train], X[test], Y[test])


def waves(n: int, dim: int, seed: int = 0, noise: float = 0.2) -> Rows:
    """Points of the unit cube, and a sum of waves seen there with noise of this deviation."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, dim, generator=generator, dtype=torch.float64)
    draw = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X, (6.0 * X).sin().sum(-1, keepdim=True) + noise * draw


def negative_log_densities(mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
    """Negative log density of each observation, in nats; all arguments have ``n`` numbers."""
    return -Normal(mean, variance.sqrt(), validate_args=False).log_prob(y)


def coverage(mean: Tensor, variance: Tensor, y: Tensor, level: float) -> float:
    """Share of the observations inside the central interval of this level."""
    half = NormalDist().inv_cdf(0.5 + 0.5 * level) * variance.sqrt()
    return float(((y - mean).abs() <= half).double().mean())


def scores(mean: Tensor, variance: Tensor, y: Tensor) -> dict[str, float]:
    """``rmse``, ``nlpd`` (nats) and ``coverage`` of 95 % intervals."""
    return {
        "rmse": float((y - mean).square().mean().sqrt()),
        "nlpd": float(negative_log_densities(mean, variance, y).mean()),
        "coverage": coverage(mean, variance, y, 0.95),
    }


def _shuffled(X: Tensor, seed: int) -> Tensor:
    return torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
