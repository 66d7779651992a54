"""The settings that a campaign recommends, by one outcome or by several.

The best outcome told is an optimistic choice under noise, and so is the highest posterior mean
where little is known. A setting that was not measured is recommended only if it is almost surely
better than the best measured ones, by the joint posterior of the two. Otherwise it is the measured
one of the highest posterior mean, if that is probably better than the one of the best outcome.

In 30 runs of `experiments/configs/tuning.toml`, told of 30 and of 60 outcomes, 42 % of the
maximisers of the mean were in truth no worse than the best trial, 57 % of the measured settings of
the highest mean, and 95 % of those by this rule, whose losses are as small on average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from botorch.utils.multi_objective.hypervolume import Hypervolume, infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

from bo_stream.base.ensemble import KernelEnsemble
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.constraints import FeasibleSet
from bo_stream.campaign.effort import seeded
from bo_stream.campaign.learner import latent_surrogate
from bo_stream.campaign.outcomes.outcome import Observations
from bo_stream.campaign.outcomes.outcomes import OutcomeSet
from bo_stream.scores import OutcomeDistribution, outcome_distribution, probability_higher
from bo_stream.surrogates.counts import CountGP
from bo_stream.surrogates.trust_region import TrustRegionGP

__all__ = [
    "Candidates",
    "OutcomePredictions",
    "PredictedOutcomes",
    "considered",
    "gains_ahead",
    "hypervolume",
    "improvements",
    "recommended",
    "region_of_best",
    "searched",
    "spread_out",
    "told_at",
]

SURE = 0.9
"""Probability with which a point that was not measured must be better than the measured ones."""

LIKELY = 0.7
"""Probability with which a measured point must be better than the one of the best outcome, to be
preferred for its mean."""

COMPARED = 256
"""Number of points of the highest means, measured ones and others, that are compared."""

OVERVIEW, SHORTLIST, PART = 4096, 512, 512
"""Points over a box, and how many of the highest means by the surrogate's own kernel may be
recommended for each setting, beside the maximiser of the mean. Those less than `APART` from a
setting are at most 410. Means are computed for so many points at a time."""

STARTS = 16
"""Points about which each of several expected gains is maximised."""

MANY = 200
"""Number of outcomes from which on polynomials are fitted about the best point."""

PLACES, SAMPLES = 64, 1024
"""Maximisers of functions among which the best outcome is, and joint samples of outcomes there.

In 65 runs of `experiments/configs/classics.toml`, the improvement at one point was on average .29,
.23 and .11 of what was left after 30, 60 and 100 trials. The maximum of each function over the
whole space was 4, 9 and 3 times what was left: it has a heavy tail where the best is well known.
"""

APART = 0.05
"""Least distance of two recommendations in some input, in widths of the box."""

LEVELS = 512
"""Quasi-random samples from which the probability of feasibility is computed."""

COMPLETE = 0.5
"""Value of a surrogate of 1 for completed evaluations and 0 for failed ones that divides them."""

FIRST = 2048
"""Points over a box that a search for the best ones begins with."""

RADII = (0.1, 0.03, 0.01, 0.003, 0.001)
"""Standard deviations of the steps about the best points so far, in widths of the box."""

STEPS, KEPT = 512, 64
"""Number of such steps at each radius, and largest number of points that they start from."""


@dataclass(frozen=True)
class Candidates:
    """Points of which some are recommended.

    Attributes:
        X: ``n x d``.
        told: Outcomes at the points, to be maximised, ``n``; minus infinity where there is none.
        values: Posterior means of the objectives, to be maximised, ``n x m``.
        higher: From points ``n x d`` and others ``k x d`` to the probability that each objective is
            higher at the points, ``m x n x k``.
    """

    X: Tensor
    told: Tensor
    values: Tensor
    higher: Callable[[Tensor, Tensor], Tensor]

    @property
    def measured(self) -> Tensor:
        """Which points have outcomes, ``n``."""
        return self.told > -torch.inf

    def surely_better(self, rows: Tensor, than: Tensor) -> Tensor:
        """Which of ``n`` rows are better in some objective than each of ``k`` others, ``n``."""
        as_good = (1.0 - self.higher(self.X[rows], self.X[than])).prod(0)
        return (as_good <= 1.0 - SURE).all(-1)

    def preferred(self, count: int, apart: Tensor | None, first: Iterable[int] = ()) -> Tensor:
        """Rows of the best points by one objective, in order of preference.

        Of several objectives they are those of the front that are spread best: of measured points,
        and of others that almost surely no measured one dominates.

        Args:
            count: Their number at most.
            apart: How far each differs from those before in some input, ``d``; None for other rows.
            first: Rows that are chosen already.
        """
        if self.values.shape[-1] > 1:
            front = self.front()
            return front[spread_out(self.values[front], count)]
        chosen, left = list(first), torch.ones_like(self.measured)
        while len(chosen) < count:
            if chosen and apart is not None:
                left &= ((self.X - self.X[chosen[-1]]).abs() > apart).any(-1)
            left[chosen] = False
            if not bool(left.any()):
                break
            chosen.append(self._preferred(left))
        return torch.tensor(chosen, dtype=torch.long)

    def front(self) -> Tensor:
        """Rows that are not dominated: measured ones, and those `surely_better` than these."""
        rows = is_non_dominated(self.values, deduplicate=True).nonzero()[:, 0]
        known = self.measured.nonzero()[:, 0]
        known = known[is_non_dominated(self.values[known], deduplicate=True)]
        others = rows[~self.measured[rows]]
        rows = torch.cat([known, others[self.surely_better(others, known)]])
        return rows[is_non_dominated(self.values[rows])]

    def _preferred(self, left: Tensor) -> int:
        """The best row among those that are left."""
        mean = self.values[:, 0]
        known, others = ((left & part).nonzero()[:, 0] for part in (self.measured, ~self.measured))
        if len(known):
            known = torch.stack([known[of[known].argmax()] for of in (mean, self.told)])
            others = others[mean[others] > mean[known[0]]]
        others = others[mean[others].argsort(descending=True)[:COMPARED]]
        others = others[self.surely_better(others, known)]
        if len(others):
            return int(others[0])
        likely = self.higher(self.X[known[:1]], self.X[known[1:]])[0, 0, 0]
        return int(known[0 if likely >= LIKELY else 1])


def told_at(X: Tensor, observed: Tensor, Y: Tensor) -> Tensor:
    """The mean outcome told at each of ``n x d`` points; minus infinity where there is none.

    Args:
        X: The points.
        observed: ``k x d``.
        Y: The outcomes there, ``k``.
    """
    _, places = torch.cat([observed, X]).unique(dim=0, return_inverse=True)
    there, here = places[: len(observed)], places[len(observed) :]
    counts = there.bincount(minlength=len(places))
    sums = Y.new_zeros(len(places)).index_add(0, there, Y)
    return torch.where(counts > 0, sums / counts, -torch.inf)[here]


@torch.no_grad()
def recommended(
    predictions: OutcomePredictions,
    where: FeasibleSet,
    data: Observations,
    ensemble: KernelEnsemble | None,
    count: int,
    least: float,
) -> Tensor:
    """Points of a box, ``k x d`` for some ``k`` up to the count, or indices of rows of a pool.

    In order of preference, by `Candidates`. Of the only outcome in a box, with many outcomes, that
    of a polynomial fitted about the maximiser of the mean is the first, where it is known better
    than what the surrogate finds.

    Args:
        predictions: Those of all outcomes.
        where: Where to look; points of a box differ in some input.
        data: All outcomes.
        ensemble: Kernels by which the mean is maximised, beside the surrogate's.
        count: Number of points.
        least: The least probability of feasibility.
    """
    joint, first, rows = predictions.outcomes.joint, list[int](), None
    if joint or where.places is not None:
        X, rows = considered(predictions, where, data, least)
    else:
        X, first = _about_best(predictions.latent, where, data, ensemble, count)
        if count == len(first):
            return X[first]
    known = predictions.at(X)
    enough = known.enough(least)
    values, told = known.objectives[enough], told_at(X[enough], *data.complete)
    if not joint and (data.counts or len(data.X) >= MANY):
        # expectations of counts, whose rates may be any, and of many: the best one is lucky
        told = torch.where(told > -torch.inf, values[:, 0], told)
    apart = None if rows is not None else (APART * where.domain.width).to(X)
    candidates = Candidates(X[enough], told, values, predictions.higher)
    chosen = enough[candidates.preferred(count, apart, first)]
    return X[chosen] if rows is None else rows[chosen]


@torch.no_grad()
def considered(
    predictions: OutcomePredictions, where: FeasibleSet, data: Observations, least: float
) -> tuple[Tensor, Tensor | None]:
    """Feasible points of a pool, and their rows; or the measured and the best points of a box."""
    if where.places is not None:
        return where.places[0].to(data.X), where.places[1]

    def best(X: Tensor) -> Tensor:
        return predictions.at(X).best(least)

    measured, _ = data.complete
    measured = measured[where.domain.contains(measured)]
    found = searched(best, where, data.candidates())
    return torch.cat([measured, found.to(measured)]).unique(dim=0), None


def _about_best(
    model: StreamingGP,
    where: FeasibleSet,
    data: Observations,
    ensemble: KernelEnsemble | None,
    count: int,
) -> tuple[Tensor, list[int]]:
    """Points of a box by the only outcome, and the rows of those that are recommended anyway.

    They are the maximiser of the mean, or what a polynomial about it finds, the measured points of
    the highest means, and points over the box.
    """
    best, region = _best(model, where, data, ensemble)
    domain, process = where.domain, model.process()

    def highest(X: Tensor, most: int) -> Tensor:
        X = X.unique(dim=0)
        means = [process.at(part).mean[0] for part in model.transformed(X).split(PART)]
        return X[torch.cat(means).topk(min(most, len(X))).indices.sort().values]

    measured = data.X[domain.contains(data.X.to(domain.bounds)).to(data.X.device)]
    others = domain.sequence(0, 0, OVERVIEW).to(best)
    X = torch.cat([best, highest(measured, COMPARED), highest(others, SHORTLIST * count)])
    return X, [0] if region is not None or isinstance(model, TrustRegionGP) else []


def region_of_best(model: StreamingGP, feasible: FeasibleSet, data: Observations) -> Tensor | None:
    """The recommended point and the radii of the window of the polynomial that found it, ``2 x d``.

    None where the recommendation is no polynomial's.
    """
    few = len(data.X) < MANY or data.counts
    if few or feasible.places is not None or not feasible.is_box:
        return None
    return _best(model, feasible, data, None)[1]


def _best(
    model: StreamingGP, feasible: FeasibleSet, data: Observations, ensemble: KernelEnsemble | None
) -> tuple[Tensor, Tensor | None]:
    """The recommended point of a box, ``1 x d``, and its region if a polynomial found it."""
    if isinstance(model, TrustRegionGP):
        return model.recommendation[0].to(data.X).unsqueeze(0), None
    from acquisitions import ThompsonSampling  # not at the top: it imports bo_stream
    from acquisitions.refinement import refined

    domain = feasible.domain
    sampling = ThompsonSampling(model, near=data.best(), ensemble=ensemble, domain=domain)
    best, region = sampling.recommend().to(data.X), None
    if len(data.X) >= MANY and feasible.is_box and not data.counts:
        region = refined(model, best, domain.bounds.to(best), data.X, data.Y[:, 0])
    return (best if region is None else region[0]).unsqueeze(0), region


@torch.no_grad()
def gains_ahead(
    model: StreamingGP,
    feasible: FeasibleSet,
    data: Observations,
    ensemble: KernelEnsemble | None,
    outcome: Callable[[Tensor], Tensor],
    X: Tensor,
) -> Tensor:
    """Expected differences between the best outcome and those at points, ``k``.

    The best one is that of each joint sample at the places where the optimum may be: maximisers of
    functions drawn from the posterior, and the best points so far. A difference counts as at most
    the range of the outcomes: what lies beyond is the prior's. It leaves torch's generator alone.

    Args:
        model: The surrogate of values that increase with the outcome, to be maximised.
        feasible: Where to look.
        data: All outcomes.
        ensemble: Kernels to average over.
        outcome: Outcomes from latent values ``... x k``, increasing.
        X: Points, ``k x d``.
    """
    from acquisitions import ThompsonSampling  # not at the top: it imports bo_stream
    from acquisitions.thompson import drawn_at

    near = data.best()
    options: dict[str, Any] = {"samples": PLACES, "explore": 0.0, "ensemble": ensemble}
    processes = [model.process()] if ensemble is None else ensemble.processes(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if feasible.places is not None:
            pool = feasible.places[0].to(X)
            sampling = ThompsonSampling(model, **options)
            places = pool[sampling.select(pool, min(PLACES, len(pool)))]
        else:
            sampling = ThompsonSampling(model, domain=feasible.domain, near=near, **options)
            places = sampling.propose(PLACES)
            near = near[feasible.domain.contains(near)]
        counts = [SAMPLES] if ensemble is None else ensemble.counts(SAMPLES)
        points, back = torch.cat([X, near, places]).unique(dim=0, return_inverse=True)
        values = drawn_at(points, model, processes, counts)
    here = values[:, back[: len(X)]]
    gains = outcome(values.amax(-1, keepdim=True).expand_as(here)) - outcome(here)
    return gains.minimum(data.range.to(gains)).mean(0)


# -- several outcomes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutcomePredictions:
    """Predictions of all outcomes.

    Attributes:
        models: A model for every outcome, objectives to be maximised, and perhaps one of whether
            evaluations are completed.
        outcomes: The outcomes.
        kernels: What predictions of the only outcome average over.
    """

    models: Sequence[StreamingGP]
    outcomes: OutcomeSet
    kernels: KernelEnsemble | None = None

    @property
    def latent(self) -> StreamingGP:
        """The surrogate of values that increase with the first outcome, to be maximised."""
        return latent_surrogate(self.models[0])

    def at(self, X: Tensor, noise: bool = False) -> PredictedOutcomes:
        """Those at ``n x d`` points, perhaps with the typical noise."""
        return PredictedOutcomes(self, X, noise)

    def higher(self, X: Tensor, others: Tensor) -> Tensor:
        """Probabilities that each of ``k`` objectives is higher at points, ``k x n x len(others)``.

        Args:
            X: ``n x d``.
            others: The points that these are compared with.
        """
        objectives = map(latent_surrogate, self.models[: len(self.outcomes.goals)])
        return torch.stack([probability_higher(one, X, others, self.kernels) for one in objectives])


@dataclass(frozen=True)
class PredictedOutcomes:
    """Distributions of all outcomes at some points.

    Attributes:
        predictions: Predictions anywhere.
        X: The points, ``n x d``.
        noise: Whether outcomes are those that would be measured.
    """

    predictions: OutcomePredictions
    X: Tensor
    noise: bool = False

    @cached_property
    def distributions(self) -> list[OutcomeDistribution]:
        """That of every outcome, to be maximised; of counts the response."""
        X, kernels = self.X, self.predictions.kernels
        return [
            one.response(X, nugget=False)
            if isinstance(one, CountGP)
            else outcome_distribution(one, X, kernels, noise=self.noise)
            for one in self.predictions.models
        ]

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
        objectives = self.distributions[: len(self.predictions.outcomes.goals)]
        return torch.stack([one.mean for one in objectives], -1)

    @cached_property
    def feasible(self) -> Tensor:
        """Probability that all constraints hold, and that the evaluation does not fail, ``n``.

        Constraints hold jointly: their probability is from the same samples everywhere.
        """
        outcomes, completed = self.predictions.outcomes, torch.ones(len(self.X)).double()
        if len(self.distributions) > len(outcomes.columns):
            completed = self.distributions[-1].probability_above(COMPLETE)
        weights = outcomes.weights()
        named = [j for j in range(len(outcomes.columns)) if any(w[j] for w, _ in weights)]
        if not named:
            return completed
        engine = torch.quasirandom.SobolEngine(len(named), scramble=True, seed=0)
        levels = engine.draw(LEVELS, dtype=torch.float64).clamp(1e-6, 1.0 - 1e-6).T
        drawn = [self.distributions[j].quantiles(p) for j, p in zip(named, levels, strict=True)]
        samples = torch.stack(drawn, -1)  # LEVELS x n x named
        holds = torch.ones(samples.shape[:-1], dtype=torch.bool)
        for of, bound in weights:
            holds &= samples @ samples.new_tensor([of[j] for j in named]) <= bound
        return completed * holds.double().mean(0)


@torch.no_grad()
def improvements(
    predictions: OutcomePredictions, where: FeasibleSet, data: Observations, X: Tensor
) -> Tensor:
    """Largest expected improvements over the means at points, if feasible, ``k``.

    Args:
        predictions: Those of all outcomes.
        where: Where to look.
        data: All outcomes.
        X: Points, ``k x d``.
    """
    held = predictions.at(X).objectives[:, 0]

    def gains(X: Tensor) -> Tensor:
        there = predictions.at(X)
        return there.distributions[0].expected_improvement(held) * there.feasible

    def largest(X: Tensor) -> Tensor:
        return gains(X).topk(min(STARTS, len(X)), -1).indices.T.flatten()

    return gains(searched(largest, where, data.candidates())).amax(-1)


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
        X = torch.cat([domain.snapped(observed.to(domain.bounds)), domain.sequence(0, 0, FIRST)])
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


def hypervolume(values: Tensor, outcomes: OutcomeSet) -> tuple[float, Tensor]:
    """Hypervolume of a front, ``n x k``, and its reference point: given, or inferred from it."""
    if outcomes.reference_point is not None:
        reference = values.new_tensor(outcomes.reference_point)
    else:
        size = values.abs().amax(0)
        size = torch.where(size > 0.0, size, torch.ones_like(size))
        reference = infer_reference_point(values / size) * size  # it takes no range below 1e-7
    return Hypervolume(reference).compute(values), reference
