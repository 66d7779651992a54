"""What an active-learning campaign is, but for its cells, surrogate and policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from bo_stream.campaign.fit_policy import FitPolicy
from bo_stream.errors import InputError

__all__ = ["OBSERVATIONS", "PoolConfig", "Cells", "Split"]

OBSERVATIONS = ("raster", "known noise")


class Cells(Protocol):
    """What can be measured: places, their values, and where known how uncertain these are.

    Attributes:
        X: ``N x d`` places in the unit cube.
        Y: ``N x 1`` values.
        Yvar: ``N x 1`` variances of the values, or None.
    """

    @property
    def X(self) -> Tensor:
        """``N x d`` places in the unit cube."""
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
    """Sizes, seeds and budgets, the same for every surrogate and policy compared.

    Attributes:
        steps: Batches asked for after the initial cells.
        q: Cells of a batch.
        num_initial: Random cells to start with.
        num_test: Cells set aside to be predicted, disjoint from the pool.
        seed: Of the split, of the noise of known noise, and of a policy's own draws.
        observation: ``raster``: a query gives the cell's value, and the noise is learned. ``known
            noise``: it gives the value plus a draw of its published standard deviation, one draw a
            cell and seed, and the variance with it.
        fit: When hyperparameters are fitted; targets are standardised anew just before.
        level: Of the interval whose coverage is recorded.
        clip: Readings are absorbed no further from their prediction than this many predictive
            standard deviations; infinity for as they are. A raster has isolated faulty cells, and
            one of them 25 standard deviations off raises the learned noise of the whole map:
            measured on Senegal 2017, an error 12 % larger at 1,210 cells, under any policy.
        clip_from: Cells that must have been queried before a prediction is trusted with that.

    Raises:
        InputError: for sizes or an observation model that no campaign can have.
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
                "Targets are standardised by the initial cells: it needs two.",
            )
        if self.observation not in OBSERVATIONS:
            raise InputError(
                f"an observation model, one of {', '.join(OBSERVATIONS)}",
                repr(self.observation),
                "Choose one of these.",
            )


@dataclass(frozen=True)
class Split:
    """Cells of one campaign, by index, and what a query of each would give.

    Attributes:
        initial: Cells to start with.
        test: Cells to be predicted.
        pool: Cells that can be queried.
        observed: ``N x 1``: what querying (or testing) each cell gives.
        noise: ``N x 1`` known variances of that, or None where the noise is learned.
    """

    initial: Tensor
    test: Tensor
    pool: Tensor
    observed: Tensor
    noise: Tensor | None

    @classmethod
    def of(cls, cells: Cells, config: PoolConfig) -> Split:
        """The split of a seed: the same for every surrogate and policy.

        Raises:
            InputError: if there are too few cells, or known noise is asked for and not there.
        """
        N, c = len(cells.X), config
        need = c.num_initial + c.num_test + c.steps * c.q
        if need > N:
            raise InputError(
                f"at least {need} cells (initial, test and all that are queried)",
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
                "cells with variances for known noise",
                "none",
                "Use the observation model 'raster', or a source with a standard deviation.",
            )
        draw = torch.randn(N, 1, generator=generator, dtype=torch.float64).to(cells.Y)
        return cls(initial, test, pool, cells.Y + cells.Yvar.sqrt() * draw, cells.Yvar)
