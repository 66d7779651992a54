"""What a run of Bayesian optimisation is, but for its problem, surrogate and acquisition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bo_stream.errors import InputError

__all__ = ["FitPolicy", "LoopConfig"]


@dataclass(frozen=True)
class FitPolicy:
    """When hyperparameters are fitted, warm-started, and how much a fit may cost.

    Attributes:
        every_step_until: Fit after every step up to this one.
        then_every: Fit after every so many steps from there on; 0 for never.
        on_request: Fit also whenever the surrogate says that a fit is due
            (`StreamingGP.refit_due`); with ``then_every=0``, only then.
        max_evals: Most objective evaluations of a fit; None: until it gains no more.
        first_max_evals: The same for the fit to the initial design.

    Example:
        >>> policy = FitPolicy(every_step_until=50, then_every=10)
        >>> [step for step in range(48, 75) if policy.due(step)]
        [48, 49, 50, 60, 70]
    """

    every_step_until: int = 0
    then_every: int = 1
    on_request: bool = False
    max_evals: int | None = None
    first_max_evals: int | None = None

    def due(self, step: int, requested: bool = False) -> bool:
        """Whether a fit follows this step (the initial design is step 0).

        Args:
            step: Number of the step.
            requested: Whether the surrogate says that a fit is due.
        """
        after = step - self.every_step_until
        planned = after <= 0 or (self.then_every > 0 and after % self.then_every == 0)
        return planned or (self.on_request and requested)


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
