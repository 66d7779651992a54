"""Configuration of a simulated run of Bayesian optimisation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bo_stream.campaign.effort import FitPolicy
from bo_stream.errors import InputError

__all__ = ["LoopConfig"]


@dataclass(frozen=True)
class LoopConfig:
    """Sizes, seed and budget of a run, the same for every surrogate compared.

    Attributes:
        steps: Number of batches after the initial design.
        q: Number of points in a batch.
        num_initial: Number of points of the Sobol design.
        seed: Seed of the design, the optimiser's starting points, the samplers, and the problem's
            noise if that uses torch's global generator.
        num_restarts: Number of starting points of `optimize_acqf`.
        raw_samples: Number of random points that the starting points are chosen from.
        acqf_options: Further ``options`` of `optimize_acqf`.
        fit: When hyperparameters are fitted.
        baseline_size: Number of observed points, those of the highest posterior mean, that are the
            ``X_baseline`` of the acquisition function and candidates for the recommendation.
        recommend_every: Steps between maximisations of the posterior mean; 0 for none.
        dtype: ``float64`` or ``float32``, the dtype of inputs and surrogate.

    Raises:
        InputError: for invalid sizes or another dtype.
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
                "Two initial points are needed to standardise the outcomes.",
            )
        if self.dtype not in ("float64", "float32"):
            raise InputError("dtype float64 or float32", repr(self.dtype), "Choose one of these.")
