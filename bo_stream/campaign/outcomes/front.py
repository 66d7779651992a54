"""The front of several objectives, feasible settings, and what is recommended of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import torch
from botorch.models.model import ModelList
from botorch.utils.multi_objective.hypervolume import Hypervolume, infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.campaign.constraints import FeasibleSet
from bo_stream.campaign.effort import seeded
from bo_stream.campaign.outcomes.outcomes import OutcomeSet
from bo_stream.scores import OutcomeDistribution, outcome_distribution, probability_higher

__all__ = [
    "OutcomePredictions",
    "PredictedOutcomes",
    "hypervolume",
    "reference_of",
    "searched",
    "spread_out",
]

LEVELS = 512
"""Quasi-random samples from which the probability of feasibility is computed."""

COMPLETE = 0.5
"""Value of a surrogate of 1 for completed evaluations and 0 for failed ones that divides them."""

OVERVIEW = 2048
"""Points over a box that a search for the best ones begins with."""

RADII = (0.1, 0.03, 0.01, 0.003, 0.001)
"""Standard deviations of the steps about the best points so far, in widths of the box."""

STEPS, KEPT = 512, 64
"""Number of such steps at each radius, and largest number of points that they start from."""


class OutcomePredictions:
    """Predictions of all outcomes.

    Args:
        model: A model of an output for every outcome, objectives to be maximised.
        outcomes: The outcomes.
    """

    def __init__(self, model: ModelList, outcomes: OutcomeSet) -> None:
        self.models = [cast(GaussianModel, one) for one in model.models]
        self.outcomes = outcomes

    def at(self, X: Tensor) -> PredictedOutcomes:
        """Those at ``n x d`` points."""
        return PredictedOutcomes(self.models, self.outcomes, X)

    @torch.no_grad()
    def higher(self, X: Tensor, others: Tensor) -> Tensor:
        """Probabilities that each of ``k`` objectives is higher at points, ``k x n x len(others)``.

        Args:
            X: ``n x d``.
            others: The points that these are compared with.
        """
        objectives = self.models[: len(self.outcomes.goals)]
        return torch.stack([probability_higher(one, X, others) for one in objectives])


@dataclass(frozen=True)
class PredictedOutcomes:
    """Distributions of all outcomes at some points, computed when they are first needed.

    Attributes:
        models: A model for every outcome, objectives to be maximised, and perhaps one of whether
            evaluations are completed.
        outcomes: The outcomes.
        X: The points, ``n x d``.
    """

    models: Sequence[GaussianModel]
    outcomes: OutcomeSet
    X: Tensor
    _found: dict[int, OutcomeDistribution] = field(default_factory=dict, repr=False)

    def distribution(self, j: int) -> OutcomeDistribution:
        """That of one outcome, to be maximised."""
        if j not in self._found:
            self._found[j] = outcome_distribution(self.models[j], self.X)
        return self._found[j]

    def enough(self, least: float) -> Tensor:
        """Rows that are feasible enough; the most probable one if none is.

        Args:
            least: The least probability of feasibility.
        """
        rows = (self.feasible >= least).nonzero()[:, 0]
        return rows if len(rows) else self.feasible.argmax().unsqueeze(0)

    def best(self, least: float) -> Tensor:
        """Of `enough`, by expected outcomes: with one objective all rows, best first; with several
        those that are not dominated.
        """
        rows = self.enough(least)
        values = self.objectives[rows]
        if values.shape[-1] == 1:
            return rows[values[:, 0].argsort(descending=True, stable=True)]
        return rows[is_non_dominated(values, deduplicate=True)]

    @property
    def objectives(self) -> Tensor:
        """Means of the objectives, to be maximised, ``n x k``."""
        return torch.stack([self.distribution(j).mean for j in range(len(self.outcomes.goals))], -1)

    @cached_property
    def feasible(self) -> Tensor:
        """Probability that all constraints hold, and that the evaluation does not fail, ``n``.

        Constraints hold jointly: their probability is from the same samples everywhere.
        """
        count = len(self.outcomes.columns)
        completed = torch.ones(len(self.X), dtype=torch.float64)
        if len(self.models) > count:
            completed = self.distribution(count).probability_above(COMPLETE)
        weights = self.outcomes.weights()
        named = [j for j in range(count) if any(w[j] for w, _ in weights)]
        if not named:
            return completed
        engine = torch.quasirandom.SobolEngine(len(named), scramble=True, seed=0)
        levels = engine.draw(LEVELS, dtype=torch.float64).clamp(1e-6, 1.0 - 1e-6).T
        drawn = [self.distribution(j).quantiles(p) for j, p in zip(named, levels, strict=True)]
        samples = torch.stack(drawn, -1)  # LEVELS x n x named
        holds = torch.ones(samples.shape[:-1], dtype=torch.bool)
        for of, bound in weights:
            holds &= samples @ samples.new_tensor([of[j] for j in named]) <= bound
        return completed * holds.double().mean(0)


@torch.no_grad()
def searched(best: Callable[[Tensor], Tensor], where: FeasibleSet, observed: Tensor) -> Tensor:
    """The best points, ``k x d``, the best one first.

    Candidates are all places of a pool; in a box the observed points and a sequence over it, then
    steps about the best of them. It leaves torch's generator alone.

    Args:
        best: Rows of the best of some points ``n x d``, the best one first.
        where: Where to look.
        observed: ``n x d`` points with outcomes.
    """
    if where.places is not None:
        X = where.places[0].to(observed)
        return X[best(X)]
    domain = where.domain
    with seeded(0, observed.device):
        X = torch.cat([domain.snapped(observed.to(domain.bounds)), domain.sequence(0, 0, OVERVIEW)])
        X = X[domain.contains(X)]
        found = X[best(X.to(observed)).to(X.device)]
        for radius in RADII:
            centres = found[:KEPT][torch.randint(min(len(found), KEPT), (STEPS,))]
            moved = domain.perturbed(centres, torch.full_like(centres[:, :1], radius))
            X = torch.cat([found, moved])
            found = X[best(X.to(observed)).to(X.device)]
    return found.to(observed)


def spread_out(values: Tensor, count: int) -> Tensor:
    """Rows of a front, ``n x k``, that together have a large hypervolume; the best one first."""
    if len(values) <= 1:
        return torch.arange(len(values))
    span = (values.max(0).values - values.min(0).values).clamp_min(1e-300)
    scaled = (values - values.min(0).values) / span
    volume, chosen = Hypervolume(infer_reference_point(scaled)), list[int]()
    for _ in range(min(count, len(values))):
        others = [i for i in range(len(values)) if i not in chosen]
        chosen.append(max(others, key=lambda i: volume.compute(scaled[[*chosen, i]])))
    return torch.tensor(chosen)


def reference_of(values: Tensor, outcomes: OutcomeSet) -> Tensor:
    """The reference point that was given, or is inferred from a front, ``n x k``: ``k``."""
    reference = outcomes.reference_point
    if reference is not None:
        return values.new_tensor(reference)
    size = values.abs().amax(0)
    size = torch.where(size > 0.0, size, torch.ones_like(size))
    return infer_reference_point(values / size) * size  # which takes no range to be below 1e-7


def hypervolume(values: Tensor, outcomes: OutcomeSet) -> tuple[float, Tensor]:
    """Hypervolume of a front, ``n x k``, and its reference point."""
    reference = reference_of(values, outcomes)
    return Hypervolume(reference).compute(values), reference
