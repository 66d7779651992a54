"""The front of several objectives, feasible settings, and what is recommended of them."""

from __future__ import annotations

from typing import Any, cast

import torch
from botorch.models.model import ModelList
from botorch.utils.multi_objective.hypervolume import Hypervolume, infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

from bo_stream.campaign.outcomes.named_outcomes import NamedOutcomes
from bo_stream.campaign.randomness import seeded
from bo_stream.campaign.space.feasible import FeasibleSet
from bo_stream.errors import check_not_shadowed
from bo_stream.scores import marginals

__all__ = [
    "OutcomePredictions",
    "best_rows",
    "hypervolume",
    "reference_of",
    "searched",
    "spread_out",
]

LEVELS = 512
"""Quasi-random samples from which the probability of feasibility is computed."""

OVERVIEW = 2048
"""Points over a box that a search for the best ones begins with."""

RADII = (0.1, 0.03, 0.01, 0.003, 0.001)
"""Standard deviations of the steps about the best points so far, in widths of the box."""

STEPS, KEPT = 512, 64
"""Number of such steps at each radius, and largest number of points that they start from."""


class OutcomePredictions:
    """Predictions of all outcomes in the user's signs.

    Args:
        model: A model of an output for every outcome, objectives to be maximised.
        outcomes: The outcomes.
    """

    def __init__(self, model: ModelList, outcomes: NamedOutcomes) -> None:
        self.models: list[Any] = list(model.models)
        self.outcomes = outcomes

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and standard deviations of all outcomes, to be maximised, each ``n x m``."""
        pairs = [marginals(one, X) for one in self.models]
        means, variances = zip(*pairs, strict=True)
        return torch.stack(means, -1), torch.stack(variances, -1).clamp_min(0.0).sqrt()

    def objectives(self, X: Tensor) -> Tensor:
        """Means of the objectives, to be maximised, ``n x k``."""
        count = len(self.outcomes.goals)
        return torch.stack([marginals(one, X)[0] for one in self.models[:count]], -1)

    @torch.no_grad()
    def feasible(self, X: Tensor) -> Tensor:
        """Probability that all constraints hold, ``n``: from the same samples everywhere."""
        count = len(self.outcomes.columns)
        completed = torch.ones(len(X), dtype=torch.float64)
        if len(self.models) > count:
            check_not_shadowed("acquisitions")
            from acquisitions.outcomes import log_completion  # not at the top: it imports bo_stream

            completed = log_completion(self.models[count], X.unsqueeze(-2)).exp()[:, 0]
        weights = self.outcomes.weights()
        named = [j for j in range(count) if any(w[j] for w, _ in weights)]
        if not named:
            return completed
        engine = torch.quasirandom.SobolEngine(len(named), scramble=True, seed=0)
        levels = engine.draw(LEVELS, dtype=torch.float64).clamp(1e-6, 1.0 - 1e-6)
        normal = torch.special.ndtri(levels).T
        drawn = [_sampled(self.models[j], X, z) for j, z in zip(named, normal, strict=True)]
        samples = torch.stack(drawn, -1)  # LEVELS x n x named
        holds = torch.ones(samples.shape[:-1], dtype=torch.bool)
        for of, bound in weights:
            holds &= samples @ samples.new_tensor([of[j] for j in named]) <= bound
        return completed * holds.double().mean(0)


def _sampled(model: Any, X: Tensor, z: Tensor) -> Tensor:
    """Marginal samples of the noiseless outcome from standard normal ones, ``len(z) x n``."""
    point = model.process().at(model.transformed(X))
    sd = point.variance()[0].clamp_min(0.0).sqrt()
    samples, outcomes = point.mean[0] + sd * z.unsqueeze(-1), model.outcome_map()
    if outcomes is None:
        return cast(Tensor, samples)
    return cast(Tensor, outcomes.untransform(samples.unsqueeze(-1))[0].squeeze(-1))


def best_rows(values: Tensor, probabilities: Tensor, least: float) -> Tensor:
    """Rows of the best points, best first; the most probable one if none is feasible enough.

    Args:
        values: ``n x k`` objectives to be maximised; of several, rows that are not dominated.
        probabilities: ``n`` probabilities of feasibility.
        least: The least probability.
    """
    rows = (probabilities >= least).nonzero().squeeze(-1)
    if not len(rows):
        return probabilities.argmax().unsqueeze(0)
    if values.shape[-1] == 1:
        return rows[values[rows, 0].argsort(descending=True, stable=True)]
    return rows[is_non_dominated(values[rows], deduplicate=True)]


@torch.no_grad()
def searched(
    predictions: OutcomePredictions, where: FeasibleSet, observed: Tensor, least: float
) -> Tensor:
    """Points of a box of the best expected outcomes that are feasible enough, ``k x d``.

    Candidates are the observed points and a sequence over the box, then steps about the best of
    them. Of one objective, the best point comes first; of several, they are the front.

    Args:
        predictions: Predictions of all outcomes.
        where: Where to look.
        observed: ``n x d`` points with outcomes.
        least: The least probability of feasibility.
    """
    domain = where.domain
    with seeded(0, observed.device):
        points = torch.cat([domain.snapped(observed), domain.sequence(0, 0, OVERVIEW)])
        points = points[domain.contains(points)]
        best = _best(predictions, points, least)
        for radius in RADII:
            centres = best[:KEPT][torch.randint(min(len(best), KEPT), (STEPS,))]
            moving = torch.ones_like(centres, dtype=torch.bool)
            moved = domain.perturbed(centres, torch.full_like(centres[:, :1], radius), moving)
            best = _best(predictions, torch.cat([best, moved]), least)
    return best


def _best(predictions: OutcomePredictions, points: Tensor, least: float) -> Tensor:
    values, probabilities = predictions.objectives(points), predictions.feasible(points)
    return points[best_rows(values, probabilities, least)]


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


def reference_of(values: Tensor, outcomes: NamedOutcomes) -> Tensor:
    """The reference point that was given, or is inferred from a front, ``n x k``: ``k``."""
    given = outcomes.reference_point
    if given is not None:
        return values.new_tensor(given)
    size = values.abs().amax(0)
    size = torch.where(size > 0.0, size, torch.ones_like(size))
    return infer_reference_point(values / size) * size  # which takes no range to be below 1e-7


def hypervolume(values: Tensor, outcomes: NamedOutcomes) -> tuple[float, Tensor]:
    """Hypervolume of a front, ``n x k``, and its reference point."""
    reference = reference_of(values, outcomes)
    return Hypervolume(reference).compute(values), reference
