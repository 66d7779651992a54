"""When hyperparameters are fitted in a campaign or a simulated run, and at what cost."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FitPolicy"]


@dataclass(frozen=True)
class FitPolicy:
    """When hyperparameters are fitted, warm-started, and how much a fit may cost.

    Attributes:
        every_step_until: Fit after every step up to this one.
        then_every: Fit after every so many steps from there on; 0 for never.
        on_request: Fit also whenever the surrogate reports that a fit is due
            (`StreamingGP.refit_due`); with ``then_every=0``, only then.
        max_evals: Maximum number of objective evaluations of a fit; None: until convergence.
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
            requested: Whether the surrogate reports that a fit is due.
        """
        after = step - self.every_step_until
        planned = after <= 0 or (self.then_every > 0 and after % self.then_every == 0)
        return planned or (self.on_request and requested)
