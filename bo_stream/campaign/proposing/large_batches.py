"""Batches that are too large for a joint search of all their points.

A joint search over q points has q d variables, and its joint posteriors need memory that grows with
the square of q.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.history import Decision
from bo_stream.campaign.proposing.proposals import AcquisitionSearch, ProposalContext
from bo_stream.campaign.space import Pool

__all__ = ["InParts"]

TOGETHER = 16
"""Number of trials that are searched for jointly."""

IN_TURN = 64
"""Number of trials, running ones included, up to which each 16 are searched for with those before
pending."""

GREEDY, CANDIDATES = 128, 4096
"""Number of trials that are chosen for the variance, one by one among this number of points."""


@dataclass
class InParts:
    """Maximises an acquisition function; large batches are chosen in parts, or by samples.

    Up to 16 trials are searched for jointly, and up to 64 are in parts of 16, with those before
    pending. More, running ones included, are maximisers of samples of the posterior. Where the
    variance is to be reduced, they are instead chosen one by one among points of a Sobol sequence,
    at most 128, and the others are further points of it. Memory then grows in proportion to q.

    Attributes:
        search: Maximises it.
        name: Its name.
        sampled: Chooses by samples of the posterior; None where the variance is to be reduced.
        several: Searches for several trials, running ones included, if the first one cannot.
        together: Number of trials that are searched for jointly.
        in_turn: Number of trials up to which parts are searched for with those before pending.
        decision: How the latest trials were chosen, if not by one search.
    """

    search: AcquisitionSearch
    name: str
    sampled: AcquisitionSearch | None = None
    several: AcquisitionSearch | None = None
    together: int = TOGETHER
    in_turn: int = IN_TURN
    decision: Decision | None = None

    def __call__(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        """The points, or indices into the available rows of the pool."""
        self.decision, pool = None, isinstance(self.search.feasible.space, Pool)
        joint = q + len(context.pending)
        if self.several is not None and joint > 1:
            name, why = "qlogei", "Its logarithm, of several trials asked for or running."
            made = replace(self, search=self.several, name=name, several=None)
            chosen = made(model, q, context)
            self.decision = made.decision or Decision(name, why)
            return chosen
        few = joint <= self.in_turn
        if (few and (pool or q <= self.together)) or (pool and self.sampled is None):
            return self.search(model, q, context)
        if self.sampled is None:
            first = f"{min(q, GREEDY)} trials are chosen one by one"
            rest = ", and the others are spread over the space" if q > GREEDY else ""
            self.decision = Decision(self.name, f"{first}{rest}.")
            return self._greedy(model, q, context)
        if few:
            why = f"Each {self.together} trials are chosen with those before pending."
            self.decision = Decision(self.name, why)
            return self._in_turn(model, q, context)
        why = f"More than {self.in_turn} trials are asked for or running."
        self.decision = Decision("thompson", why)
        return self.sampled(model, q, context)[:q]

    @property
    def samples(self) -> bool:
        """Whether trials are usually chosen by samples of the posterior."""
        return self.search.samples

    def _in_turn(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        chosen = context.pending[:0]
        for first in range(0, q, self.together):
            given = replace(context, pending=torch.cat([context.pending, chosen]))
            chosen = torch.cat([chosen, self.search(model, min(self.together, q - first), given)])
        return chosen

    def _greedy(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        from acquisitions import select_from_pool  # not at the top: it imports bo_stream

        feasible, number = self.search.feasible, max(CANDIDATES, 2 * q)
        if feasible.is_box:
            bounds = feasible.space.tensor_bounds
            points = draw_sobol_samples(bounds, n=number, q=1, seed=context.num_observed)[:, 0]
        else:
            points = feasible.domain.sequence(context.num_observed, 0, number)
        points = points.to(context.observed)
        acqf = cast(AcquisitionFunction, self.search.built(model, context))
        most = len(points[:CANDIDATES].unique(dim=0))  # of few settings: then some are repeated
        first = select_from_pool(acqf, points[:CANDIDATES], min(q, GREEDY, most))[0]
        others = torch.ones(len(points), dtype=torch.bool)
        others[first] = False
        return torch.cat([points[first], points[others][: q - len(first)]])
