"""What a run of Bayesian optimisation is, but for its problem, surrogate and acquisition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bo_stream.campaign.fit_policy import FitPolicy
from bo_stream.errors import InputError

__all__ = ["LoopConfig"]


@dataclass(frozen=True)
class LoopConfig:
    """Sizes, seeds and budgets, the same for every surrogate compared.

    Attributes:
        steps: Batches asked for after the initial design.
        q: Points of a batch.
        num_initial: Points of the Sobol design.
        seed: Of the design, the optimiser's starting points, the samplers, and of the problem's
            noise where that comes from torch's global generator.
        num_restarts: Starting points that `optimize_acqf` climbs from.
        raw_samples: Random points out of which it chooses them.
        acqf_options: Its further ``options``.
        fit: When to fit.
        baseline_size: Points kept, by posterior mean, as ``X_baseline`` of the acquisition and as
            candidates for the recommendation. Bounds their cost whatever has been observed.
        recommend_every: Steps between searches for the posterior-mean maximiser; 0 for none.
        dtype: ``float64`` or ``float32``, of inputs and surrogate.

    Raises:
        InputError: for sizes or a dtype that no run can have.
    """

    steps: int = 50
    q: int = 3
    num_initial: int = 10
    seed: int = 0
    num_restarts: int = 10
    raw_samples: int = 512
    acqf_options: dict[str, Any] = field(default_factory=dict)
    fit: FitPolicy = field(default_factory=FitPolicy)
    baseline_size: int = 64
    recommend_every: int = 1
    dtype: str = "float64"

    def __post_init__(self) -> None:
        sizes = (self.q, self.num_initial, self.num_restarts, self.raw_samples, self.baseline_size)
        if self.steps < 0 or self.recommend_every < 0 or min(sizes) < 1 or self.num_initial < 2:
            raise InputError(
                "steps and recommend_every >= 0, num_initial >= 2, other sizes >= 1",
                f"{self}",
                "Outcomes are standardised by the initial design: it needs two points.",
            )
        if self.dtype not in ("float64", "float32"):
            raise InputError("dtype float64 or float32", repr(self.dtype), "Choose one of these.")
