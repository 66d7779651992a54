"""What a campaign uses from a number of outcomes on."""

from collections.abc import Callable
from dataclasses import dataclass

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.proposing.fit_policy import FitPolicy
from bo_stream.campaign.proposing.proposals import ProposalRule

__all__ = ["Stage"]


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
