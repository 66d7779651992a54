"""When hyperparameters are fitted in a campaign or a simulated run, at what cost, and what a
campaign does where that fails: it warns, and goes on in a simpler way.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from linear_operator.utils.errors import NotPSDError

from bo_stream.base.fitting import FitReport
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.proposing.proposals import ProposalRule
from bo_stream.errors import BoStreamError, FallbackWarning, InputError, StateError
from bo_stream.surrogates.counts import CountGP

__all__ = ["FitPolicy", "Stage", "falling_back", "fitted_or_kept", "least_growth"]

FAILURES = (ArithmeticError, MemoryError, NotPSDError, RuntimeError, ValueError)
REFUSALS = (InputError, StateError)
BUGS = (NotImplementedError, RecursionError)

FRESH_BELOW = 1000
"""Number of counts below which they are also fitted from first hyperparameters: few counts may be
explained by the nugget alone, and a fit that starts there may stay there."""

FEW = 300
"""Number of outcomes at the last fit from which on the late settings hold."""

LEAST_GROWTH, LATE_LEAST_GROWTH = 1.1, 1.3
"""Smallest growth of the number of outcomes after which poor predictions lead to another fit, and
that from 300 outcomes on."""


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
class Stage:
    """What a campaign uses from a number of outcomes on.

    Attributes:
        make: Builds the surrogate: ``(X, Y, Yvar, bounds=..., outcome_transform=...)``.
        policy: When hyperparameters are fitted; a step is a batch told since the surrogate was
            built.
        rule: Chooses trials.
        start: Number of outcomes from which it is used.
        named: Whether none of this is a user's callable, whose errors are raised.
    """

    make: Callable[..., StreamingGP]
    policy: FitPolicy
    rule: ProposalRule
    start: int = 0
    named: bool = True

    @property
    def samples(self) -> bool:
        """Whether trials may be chosen by samples of the posterior."""
        return bool(getattr(self.rule, "samples", False))


@contextmanager
def falling_back(
    consequence: str, *, allowed: bool = True, checked: bool = False
) -> Iterator[None]:
    """End the block with a warning if its arithmetic fails or memory is exhausted.

    Refusals of arguments are raised, and so is everything if the block calls a user's code.

    Args:
        consequence: What happens instead, a sentence.
        allowed: Whether to fall back at all.
        checked: Whether outcomes were checked before, so that refusing their values or a state is
            a failure of arithmetic, too.
    """
    try:
        yield
    except FAILURES as error:
        refused = isinstance(error, BoStreamError) and not (checked and type(error) in REFUSALS)
        if not allowed or refused or isinstance(error, BUGS):
            raise
        reason = f"{type(error).__name__}: {str(error).strip()[:200]}"
        warnings.warn(f"{consequence} ({reason})", FallbackWarning, stacklevel=3)


def fitted_or_kept(
    model: StreamingGP,
    fresh: Callable[[], StreamingGP],
    limits: tuple[int | None, int | None],
    later: bool,
    named: bool,
) -> tuple[StreamingGP, FitReport | None]:
    """The surrogate after a fit; one fitted from first hyperparameters if that fails, or as it was.

    Args:
        model: The surrogate.
        fresh: Builds a new one of the same outcomes.
        limits: Maximum numbers of evaluations: of this fit, and of one from first hyperparameters.
        later: Whether the surrogate was fitted before.
        named: Whether it is none of a user's callable, whose errors are raised.

    Returns:
        The surrogate, and the report of the fit, None if both failed.
    """
    again = "A fit starts again from first hyperparameters."
    with falling_back(again, allowed=named, checked=True):
        report = model.fit(limits[0])
        counts = isinstance(model, CountGP) and model.informative
        if later and counts and model.num_observed < FRESH_BELOW:
            other = fresh()
            anew = other.fit(limits[1])
            spent = report.evaluations + anew.evaluations
            if anew.value > report.value:
                model, report = other, anew
            report = replace(report, evaluations=spent)
        return model, report
    with falling_back("Hyperparameters stay.", allowed=named, checked=True):
        other = fresh()
        return other, other.fit(limits[1])
    return model, None
