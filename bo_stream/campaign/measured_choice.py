"""A choice between acquisition functions by measured seconds.

A joint expected improvement uses each observation better, and takes longer to maximise than a
sample of the posterior. It pays while a decision takes less time than what is decided about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.proposals import AcquisitionSearch, ProposalContext
from bo_stream.campaign.trials import Decision

__all__ = ["MeasuredChoice", "TrialClock"]

LARGE = 16
"""Batch size above which points are sampled: a joint search has too many variables."""

RECENT = 0.3
"""Weight of the latest measurement in a running mean of seconds."""


@dataclass
class TrialClock:
    """Seconds from asking for trials to being told their outcomes.

    Attributes:
        seconds: Running mean; None before the first outcome.
    """

    seconds: float | None = None
    now: Callable[[], float] = time.perf_counter
    _asked: dict[int, float] = field(default_factory=dict)

    def asked(self, ids: Iterable[int]) -> None:
        """Note that trials were asked for."""
        self._asked.update(dict.fromkeys(ids, self.now()))

    def told(self, ids: Iterable[int]) -> None:
        """Note that trials have an outcome, or have failed."""
        since = [self._asked.pop(id) for id in ids if id in self._asked]
        if since:
            self.seconds = _mean(self.seconds, self.now() - min(since))


@dataclass
class MeasuredChoice:
    """Maximises a joint expected improvement, or samples the posterior where that is too slow.

    Attributes:
        careful: Maximises ``qlogei``.
        fast: Chooses by ``thompson``.
        clock: Measures what an evaluation takes.
        decision: The latest choice, and why.
    """

    careful: AcquisitionSearch
    fast: AcquisitionSearch
    clock: TrialClock = field(default_factory=TrialClock)
    decision: Decision | None = None
    _careful_seconds: float | None = None

    def __call__(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        """Points of one of the two rules."""
        self.decision = self._decide(q)
        if self.decision.acquisition == "thompson":
            return self.fast(model, q, context)
        begin = self.clock.now()
        chosen = self.careful(model, q, context)
        self._careful_seconds = _mean(self._careful_seconds, self.clock.now() - begin)
        return chosen

    @property
    def samples(self) -> bool:
        """Whether it may take samples of the posterior."""
        return self.fast.samples

    def _decide(self, q: int) -> Decision:
        waited, needed = self.clock.seconds, self._careful_seconds
        if q > LARGE:
            return Decision("thompson", f"Batches have more than {LARGE} trials.")
        if waited is None or needed is None:
            return Decision("qlogei", "The seconds of an evaluation are not measured yet.")
        if needed > waited:
            return Decision("thompson", "A decision by qlogei takes longer than an evaluation.")
        return Decision("qlogei", "A decision takes less time than an evaluation.")


def _mean(before: float | None, seconds: float) -> float:
    return seconds if before is None else (1.0 - RECENT) * before + RECENT * seconds
