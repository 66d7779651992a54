"""A choice between acquisition functions by measured seconds.

A joint expected improvement takes longer to maximise than a sample of the posterior. It pays while
a decision takes less time than the evaluations between two decisions.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.history import Decision
from bo_stream.campaign.proposing.proposals import AcquisitionSearch, ProposalContext

__all__ = ["MeasuredChoice"]

CAREFUL, FAST = "qlogei", "thompson"

LARGE = 16
"""Batch size above which points are sampled: a joint search has too many variables."""


@dataclass
class MeasuredChoice:
    """Maximises a joint expected improvement, or samples the posterior where that is too slow.

    The choice follows from the seconds in a campaign's events, so that a resumed campaign chooses
    as an undisturbed one.

    Attributes:
        careful: Maximises ``qlogei``.
        fast: Chooses by ``thompson``.
        decision: The latest choice, and why.
    """

    careful: AcquisitionSearch
    fast: AcquisitionSearch
    decision: Decision | None = None

    def __call__(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        """Points of one of the two rules."""
        self.decision = self.decide(q, context)
        rule = self.careful if self.maximised else self.fast
        return rule(model, q, context)

    @property
    def maximised(self) -> bool:
        """Whether the latest choice was the search whose seconds count."""
        return self.decision is not None and self.decision.acquisition == CAREFUL

    @property
    def samples(self) -> bool:
        """Whether it may take samples of the posterior."""
        return self.fast.samples

    @staticmethod
    def decide(q: int, context: ProposalContext) -> Decision:
        """The choice for a batch, given the seconds measured so far."""
        waited, needed = context.evaluation_seconds, context.decision_seconds
        if q > LARGE:
            return Decision(FAST, f"Batches have more than {LARGE} trials.")
        if waited is None or needed is None:
            return Decision(CAREFUL, "The seconds of an evaluation are not measured yet.")
        at_once = 1.0 + len(context.pending) / q
        if needed > waited / at_once:
            return Decision(FAST, f"A decision by {CAREFUL} takes longer than an evaluation.")
        return Decision(CAREFUL, "A decision takes less time than an evaluation.")
