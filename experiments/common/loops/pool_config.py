"""Configuration of an active-learning run, its data and their split."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from bo_stream.campaign.effort import FitPolicy
from bo_stream.errors import InputError

__all__ = ["OBSERVATIONS", "PoolConfig", "PoolData", "Split"]

OBSERVATIONS = ("raster", "known noise")


class PoolData(Protocol):
    """Cells that can be measured.

    Attributes:
        X: ``N x d`` positions in the unit cube.
        Y: ``N x 1`` values.
        Yvar: ``N x 1`` variances of the values, or None.
    """

    @property
    def X(self) -> Tensor:
        """``N x d`` positions in the unit cube."""
        ...

    @property
    def Y(self) -> Tensor:
        """``N x 1`` values."""
        ...

    @property
    def Yvar(self) -> Tensor | None:
        """``N x 1`` variances, or None."""
        ...


@dataclass(frozen=True)
class PoolConfig:
    """Sizes, seed and budget of a run, the same for every surrogate and policy compared.

    Attributes:
        steps: Number of batches after the initial cells.
        q: Number of cells in a batch.
        num_initial: Number of random initial cells.
        num_test: Number of test cells, which are disjoint from the pool.
        seed: Seed of the split, of the noise for known noise, and of a policy's own draws.
        observation: ``raster``: a query returns the cell's value, and the noise is learned.
            ``known noise``: it returns the value plus a draw with the published standard deviation
            (one draw per cell and seed), and the variance.
        fit: When hyperparameters are fitted; outcomes are standardised again before each fit.
        level: Level of the interval whose coverage is recorded.
        clip: Readings are clipped to this many predictive standard deviations around their
            predictive mean; infinity for no clipping. A raster has isolated faulty cells, and one
            of them 25 standard deviations off raises the learned noise of the whole map: on Senegal
            2017 the error at 1,210 cells was 12 % larger, under any policy.
        clip_from: Number of cells from which predictions are used for clipping.

    Raises:
        InputError: for invalid sizes or an unknown observation model.
    """

    steps: int = 200
    q: int = 6
    num_initial: int = 10
    num_test: int = 10_000
    seed: int = 0
    observation: str = "raster"
    fit: FitPolicy = field(default_factory=lambda: FitPolicy(every_step_until=50, then_every=10))
    level: float = 0.95
    clip: float = 5.0
    clip_from: int = 100

    def __post_init__(self) -> None:
        if self.steps < 0 or min(self.q, self.num_test) < 1 or self.num_initial < 2:
            raise InputError(
                "steps >= 0, q and num_test >= 1, num_initial >= 2",
                f"{self}",
                "Two initial cells are needed to standardise the outcomes.",
            )
        if self.observation not in OBSERVATIONS:
            raise InputError(
                f"an observation model, one of {', '.join(OBSERVATIONS)}",
                repr(self.observation),
                "Choose one of these.",
            )


@dataclass(frozen=True)
class Split:
    """Indices of the cells of one run, and the reading of every cell.

    Attributes:
        initial: Initial cells.
        test: Test cells.
        pool: Cells that can be queried.
        observed: Readings of all cells, ``N x 1``.
        noise: Known variances of the readings, ``N x 1``, or None if the noise is learned.
    """

    initial: Tensor
    test: Tensor
    pool: Tensor
    observed: Tensor
    noise: Tensor | None

    @classmethod
    def of(cls, cells: PoolData, config: PoolConfig) -> Split:
        """The split of a seed, the same for every surrogate and policy.

        Raises:
            InputError: if there are too few cells, or no variances for known noise.
        """
        N, c = len(cells.X), config
        need = c.num_initial + c.num_test + c.steps * c.q
        if need > N:
            raise InputError(
                f"at least {need} cells (initial, test and queried ones)",
                f"{N}",
                "Take fewer steps or test cells.",
            )
        generator = torch.Generator().manual_seed(c.seed)
        order = torch.randperm(N, generator=generator).to(cells.X.device)
        initial, test, pool = order.tensor_split([c.num_initial, c.num_initial + c.num_test])
        if c.observation == "raster":
            return cls(initial, test, pool, cells.Y, None)
        if cells.Yvar is None:
            raise InputError(
                "cells with variances, for known noise",
                "none",
                "Use the observation model 'raster', or a source with a standard deviation.",
            )
        draw = torch.randn(N, 1, generator=generator, dtype=torch.float64).to(cells.Y)
        return cls(initial, test, pool, cells.Y + cells.Yvar.sqrt() * draw, cells.Yvar)
