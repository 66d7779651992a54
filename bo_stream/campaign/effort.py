"""What decisions may take and depend on: schedules of fits, effort of searches, seconds, and seeds.

Every step seeds torch's global generators for its randomness, and leaves them as they were.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict

from bo_stream.errors import InputError

if TYPE_CHECKING:
    import torch

__all__ = ["STRIDE", "FitPolicy", "Optimiser", "Row", "least_growth", "proposing", "seeded"]

FEW = 300
"""Number of outcomes at the last fit from which on the late settings hold."""

LEAST_GROWTH, LATE_LEAST_GROWTH = 1.1, 1.3
"""Smallest growth of the number of outcomes after which poor predictions lead to another fit, and
that from 300 outcomes on."""

STRIDE = 1_000_003
"""Distance between the numbers of two seeds: more than the steps of any run."""


@dataclass(frozen=True)
class FitPolicy:
    """When hyperparameters are fitted, warm-started, and how much a fit may cost.

    Attributes:
        every_step_until: Fit after every step up to this one.
        then_every: Fit after every so many steps from there on; 0 for never.
        growth: Fit also whenever the number of outcomes has grown by this factor since the last
            fit; None for never.
        late_growth: The same from 300 outcomes on; by default as before.
        on_surprise: Fit also when predictions are significantly worse than they promise, once the
            number of outcomes has grown by 1.1, from 300 outcomes on by 1.3.
        on_request: Fit also whenever the surrogate reports that a fit is due
            (`StreamingGP.refit_due`); with ``then_every=0``, only then.
        max_evals: Maximum number of objective evaluations of a fit; None: until convergence.
        first_max_evals: The same for the fit to the initial design.
        late_max_evals: The same from 300 outcomes on; by default as before.

    Example:
        >>> policy = FitPolicy(every_step_until=50, then_every=10)
        >>> [step for step in range(48, 75) if policy.due(step)]
        [48, 49, 50, 60, 70]
        >>> policy = FitPolicy(then_every=0, growth=1.3)
        >>> [n for n in range(100, 140, 10) if policy.due(1, n=n, fitted=100)]
        [130]
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=False)

    every_step_until: int = 0
    then_every: int = 1
    growth: float | None = None
    late_growth: float | None = None
    on_surprise: bool = False
    on_request: bool = False
    max_evals: int | None = None
    first_max_evals: int | None = None
    late_max_evals: int | None = None

    def __post_init__(self) -> None:
        for growth in (self.growth, self.late_growth):
            if growth is not None and not growth > 1.0:
                raise InputError("a growth above 1", f"{growth}", "For example growth=1.3.")

    def due(
        self,
        step: int,
        *,
        requested: bool = False,
        n: int = 0,
        fitted: int = 0,
        behind: bool = False,
    ) -> bool:
        """Whether a fit follows this step (the initial design is step 0).

        Args:
            step: Number of the step.
            requested: Whether the surrogate reports that a fit is due.
            n: Number of outcomes.
            fitted: Number of outcomes at the last fit.
            behind: Whether predictions are significantly worse than they promise.
        """
        after = step - self.every_step_until
        if after <= 0 or (self.then_every > 0 and after % self.then_every == 0):
            return True
        growth = self.late_growth if self.late_growth and fitted >= FEW else self.growth
        grown = growth is not None and n >= growth * fitted
        surprised = self.on_surprise and behind and n >= least_growth(fitted) * fitted
        return grown or surprised or (self.on_request and requested)

    def limit(self, step: int, fitted: int) -> int | None:
        """Maximum number of objective evaluations of a fit.

        Args:
            step: Number of the step.
            fitted: Number of outcomes at the last fit.
        """
        if not step:
            return self.first_max_evals
        late = fitted >= FEW and self.late_max_evals is not None
        return self.late_max_evals if late else self.max_evals


def least_growth(n: int) -> float:
    """Smallest growth after n outcomes that leads to a fit, or to a score of a large batch."""
    return LEAST_GROWTH if n < FEW else LATE_LEAST_GROWTH


@dataclass(frozen=True)
class Optimiser:
    """Effort of maximising an acquisition function over a box.

    Smaller settings were tried: eight searches each with qUCB and qLogEI on WISKI with 1,000 nodes,
    for three functions and two lengths of stream. With 6 starting points or with 25 iterations, the
    worst search with qUCB ended .1 standard deviations of the outcomes lower; with 256 raw samples
    .4 lower. With ``options={"maxiter": 50}`` no search with qUCB ended lower or took less time;
    those with qLogEI took 15 % less time, and the worst ended .3 lower in the logarithm.

    Attributes:
        num_restarts: Number of starting points of `optimize_acqf`.
        raw_samples: Number of random points that the starting points are chosen from.
        options: Further options of `optimize_acqf`.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=False)

    num_restarts: int = 10
    raw_samples: int = 512
    options: Mapping[str, Any] | None = None


class Row(dict[str, Any]):
    """Numbers by column: seconds and counts start at 0, all others at NaN."""

    def __init__(self, columns: Iterable[str]) -> None:
        counts = ("_seconds", "_evaluations")
        super().__init__({name: 0 if name.endswith(counts) else float("nan") for name in columns})

    @contextmanager
    def timed(self, column: str) -> Iterator[None]:
        """Add the seconds of the block to a column, unless it raises an error."""
        begin = time.perf_counter()
        yield
        self[column] = self.get(column, 0) + time.perf_counter() - begin


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators inside the block and restore them after it."""
    import torch  # not at the top: most commands of a campaign need no tensors

    on_gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed visits every backend
        if on_gpu:
            torch.cuda.manual_seed_all(seed)
        yield


def proposing(seed: int, number: int, device: torch.device) -> AbstractContextManager[None]:
    """Seed the generators for the proposals of a step, with an even number.

    Args:
        seed: Seed of the run.
        number: Number of the step, or of the call of `ask`.
        device: Device of the surrogate.
    """
    return seeded(2 * (STRIDE * seed + number), device)
