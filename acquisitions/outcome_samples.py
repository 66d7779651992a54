"""Large batches of trials with several outcomes: the best points of samples of the posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from botorch.models.model import Model
from torch import Tensor

from acquisitions.domain import Domain
from acquisitions.outcomes import Weights, log_completion

__all__ = ["SampledOutcomes"]

CANDIDATES, TOGETHER = 1024, 64
"""Points that samples are compared at, and number of trials that are chosen among them."""

STEPS = (0.2, 0.05, 0.01)
"""Standard deviations of the steps of half of the candidates from observed points, in widths."""


class SampledOutcomes:
    """The best point of a sample of all outcomes, with random weights, for each trial.

    Of several objectives the weighted minimum counts, each in units of its range in the sample;
    what breaks constraints comes last. Costs O(c^3) for every 64 trials, with c = 1,024.

    Args:
        model: A model with an output for every outcome, and perhaps one of completion.
        observed: ``n x d`` points, about which half of the candidates are.
        bounds: ``2 x d``.
        domain: The feasible set, if it is not all between the bounds.
        objectives: Number of objectives, which are the first outcomes, to be maximised.
        constraints: Constraints on the outcomes.
        outcomes: Number of outcomes.
    """

    ahead: ClassVar[float] = 0.0

    def __init__(
        self,
        model: Model,
        *,
        observed: Tensor,
        bounds: Tensor,
        domain: Domain | None = None,
        objectives: int,
        constraints: Sequence[Weights],
        outcomes: int,
    ) -> None:
        parts: Any = model
        self.models: list[Any] = list(parts.models)
        self.objectives, self.constraints, self.outcomes = objectives, constraints, outcomes
        self.domain = domain or Domain.of(bounds)
        self.observed = self.domain.snapped(observed)

    @torch.no_grad()
    def propose(self, q: int) -> Tensor:
        """``q x d`` points of the feasible set, which repeat once no further one is left."""
        found: list[Tensor] = []
        for first in range(0, q, TOGETHER):
            points = self._candidates()
            if found:
                again = (points.unsqueeze(1) == torch.cat(found)).all(-1).any(-1)
                points = points if bool(again.all()) else points[~again]
            found.append(points[self._chosen(points, min(TOGETHER, q - first))])
        return torch.cat(found)

    @torch.no_grad()
    def select(self, points: Tensor, q: int) -> Tensor:
        """Indices of ``q`` different rows of the points of a pool, ``P x d``."""
        parts = torch.randperm(len(points)).tensor_split(q)
        return torch.cat([rows[self._chosen(points[rows], 1)] for rows in parts])

    def _candidates(self) -> Tensor:
        spread = self.domain.spread(CANDIDATES // 2)
        inside = self.observed[self.domain.contains(self.observed)]
        if not len(inside):
            return spread
        centres = inside[torch.randint(len(inside), (CANDIDATES // 2,))]
        sd = torch.tensor(STEPS).to(centres)[torch.randint(len(STEPS), (len(centres), 1))]
        near = self.domain.perturbed(centres, sd, torch.ones_like(centres, dtype=torch.bool))
        return torch.cat([spread, near]).unique(dim=0)

    def _chosen(self, points: Tensor, q: int) -> Tensor:
        """Rows of the best points of ``q`` samples, each of them once before any is repeated."""
        draws = [m.posterior(points).rsample(torch.Size([q]))[..., 0] for m in self.models]
        samples = torch.stack(draws[: self.outcomes], -1)  # q x n x m
        values = samples[..., : self.objectives]
        low, high = values.amin(1, keepdim=True), values.amax(1, keepdim=True)
        scaled = (values - low) / (high - low).clamp_min(1e-300)
        weights = torch.distributions.Dirichlet(torch.ones(self.objectives)).sample((q, 1))
        score = (scaled / weights.to(scaled).clamp_min(1e-3)).amin(-1)
        score = score / score.amax(-1, keepdim=True).clamp_min(1e-300)
        for of, bound in self.constraints:
            excess = (samples @ samples.new_tensor(of) - bound).clamp_min(0.0)
            score = score - torch.where(excess > 0.0, 1.0 + excess / excess.amax(), excess)
        if len(self.models) > self.outcomes:
            completed = log_completion(self.models[self.outcomes], points.unsqueeze(-2))[:, 0]
            score = torch.where(torch.rand(q, 1).to(score) < completed.exp(), score, score - 2.0)
        rows: list[int] = []
        for one in score:
            one[rows[len(rows) // len(points) * len(points) :]] = -torch.inf
            rows.append(int(one.argmax()))
        return torch.tensor(rows)
