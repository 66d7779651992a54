"""Rows that studies learn from, of tables or made up, and scores at the rows held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal

from experiments.common.command import BadParameter
from problems.tables import load_table

Rows = tuple[Tensor, Tensor]
MADE_UP = "made up"
DRIFTING = "drifting"


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


def rows_of(table: Mapping[str, Any]) -> Rows:
    """Inputs ``n x d`` and outcomes ``n x 1`` of a table of a configuration.

    Its ``name`` is one of `problems.tables`, the path of a CSV, ``made up``, or ``drifting``, a
    function that moves from row to row; ``target`` and ``inputs`` name columns, if others than its
    own are wanted, and ``leak`` keeps inputs that contain the target.
    """
    if table["name"] == MADE_UP:
        return waves(400, 2)
    if table["name"] == DRIFTING:
        return _drifting()
    columns = {key: table[key] for key in ("target", "inputs", "leak") if key in table}
    read = load_table(table["name"], **columns)
    if read.Y.shape[1] != 1:
        raise BadParameter(
            f"table {read.name} has several targets; give one of {', '.join(read.targets)} as "
            "target, or a list of them for a table each."
        )
    return read.X, read.Y


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


def _drifting() -> Rows:
    """Waves that run through the unit square, from a seed of their own."""
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(5000, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(5000, 1, generator=generator, dtype=torch.float64)
    moved = 6.0 * X + torch.linspace(0.0, 12.0, 5000, dtype=torch.float64).unsqueeze(-1)
    return X, moved.sin().sum(-1, keepdim=True) + 0.2 * noise


def _shuffled(X: Tensor, seed: int) -> Tensor:
    return torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
