"""Acquisition functions for several outcomes: constraints on some, several objectives.

They are BoTorch's, over outcomes in units of their spread: its smoothing of constraints and maxima
has a fixed width, which then means the same for a purity and for a volume. Large batches are the
best points of samples of the posterior.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.logei import qLogProbabilityOfFeasibility
from botorch.acquisition.multi_objective.objective import GenericMCMultiOutputObjective
from botorch.acquisition.objective import GenericMCObjective
from botorch.models.model import Model, ModelList
from botorch.sampling.get_sampler import get_sampler
from botorch.utils.multi_objective.hypervolume import infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from acquisitions.build import build, sampler_for
from acquisitions.domain import Domain
from acquisitions.thompson import LOCAL, SPREAD, candidates, distinct_winners

__all__ = ["WithCompletion", "OutcomeAcquisition", "SampledOutcomes", "log_completion"]

CAUTION = 3.0
"""Power of the probability that an evaluation is completed; see `WithCompletion`."""

TOGETHER = 64
"""Number of trials of large batches that are chosen among the same candidates."""

STEPS = (0.2, 0.05, 0.01)
"""Standard deviations of the steps of half of the candidates from observed ones, in widths."""

SAMPLES = 128
"""Number of samples of the posterior, unless it is given."""

Weights = tuple[Sequence[float], float]
"""Coefficients of all outcomes and a bound: their sum is to be at most the bound."""


@dataclass(frozen=True)
class OutcomeAcquisition:
    """Builds the acquisition function of several outcomes; a builder of campaigns.

    Where no observed point is expected to be feasible, it is the probability of feasibility. The
    reference point of a hypervolume, unless given, is a tenth of the range of the expected front
    below its worst: outcomes that others dominate say nothing about what is wanted.

    Attributes:
        name: ``qlognei`` for one objective, ``qlognehvi`` for several.
        objectives: Number of objectives, which are the first outcomes, to be maximised.
        constraints: Constraints on the outcomes.
        options: ``num_samples`` and ``seed``.
        outcomes: Number of outcomes. If the model has an output more, it is 1 where evaluations are
            completed and 0 where they fail; values are then also those of `WithCompletion`.
        reference: Objectives that a hypervolume is measured from.
    """

    name: str
    objectives: int
    constraints: Sequence[Weights] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    outcomes: int | None = None
    reference: Sequence[float] | None = None

    def __call__(
        self, model: ModelList, *, observed: Tensor, X_pending: Tensor | None = None
    ) -> AcquisitionFunction:
        """The acquisition function.

        Args:
            model: A list of models with an output for every outcome.
            observed: ``n x d`` points with outcomes, those that may be on the front among them.
            X_pending: ``n' x d`` points under evaluation.
        """
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)  # jitter among repeated points
            parts: Any = model.models
            measured = parts[: self.outcomes]
            built = self._built(type(model)(*measured), observed, X_pending)
            return built if len(parts) == len(measured) else WithCompletion(built, parts[-1])

    def _built(
        self, model: Model, observed: Tensor, X_pending: Tensor | None
    ) -> AcquisitionFunction:
        posterior: Any = model.posterior(observed)
        samples = torch.Size([self.options.get("num_samples", SAMPLES)])
        seed = self.options.get("seed")
        sampler = (
            get_sampler(posterior, samples) if seed is None else sampler_for(model, samples, seed)
        )
        means, count = posterior.mean, self.objectives
        scale = _spread(means[..., :count])
        limits = [_limit(*one, means) for one in self.constraints]
        broken = torch.stack([torch.zeros_like(means[:, 0]), *(limit(means) for limit in limits)])
        feasible = (broken <= 0.0).all(0)
        about: dict[str, Any] = {"sampler": sampler, "X_pending": X_pending}
        about["constraints"] = limits or None
        if not feasible.any():
            return qLogProbabilityOfFeasibility(model, **about)
        about["X_baseline"] = observed

        def each(Z: Tensor, X: Tensor | None = None) -> Tensor:
            return Z[..., 0] / scale[0] if count == 1 else Z[..., :count] / scale

        if count == 1:
            about["objective"] = GenericMCObjective(each)
            return cast(AcquisitionFunction, build(self.name, model, **about))
        about["objective"] = GenericMCMultiOutputObjective(each)
        values = means[feasible, :count] / scale
        if self.reference is None:
            reference = infer_reference_point(values[is_non_dominated(values)])
        else:
            reference = values.new_tensor(self.reference) / scale
        return cast(AcquisitionFunction, build(self.name, model, ref_point=reference, **about))


class WithCompletion(AcquisitionFunction):
    """The logarithm of an acquisition function times a power of the probabilities of completion.

    The first power alone is the expected value of an evaluation that may fail. But when little is
    left to gain, evaluations then go to wherever failures hide what might be gained.

    Args:
        acqf: The logarithm of an acquisition function of outcomes.
        completion: A model of one output, 1 where evaluations are completed and 0 where they fail.
    """

    def __init__(self, acqf: AcquisitionFunction, completion: Model) -> None:
        super().__init__(acqf.model)
        self.acqf, self.completion = acqf, completion
        self.X_pending = acqf.X_pending

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Use other points under evaluation."""
        self.acqf.set_X_pending(X_pending)
        self.X_pending = self.acqf.X_pending

    def forward(self, X: Tensor) -> Tensor:
        """Values at ``batch_shape x q x d`` points, ``batch_shape``."""
        value: Tensor = self.acqf(X)
        return value + CAUTION * log_completion(self.completion, X).sum(-1)


def log_completion(model: Model, X: Tensor) -> Tensor:
    """Logarithms of the probabilities that evaluations are completed, ``batch_shape x q``.

    Args:
        model: A model of one output, 1 where evaluations are completed and 0 where they fail.
        X: ``batch_shape x q x d`` points.
    """
    posterior: Any = model.posterior(X)
    u = (posterior.mean - 0.5) / posterior.variance.clamp_min(1e-12).sqrt()
    return torch.special.log_ndtr(u).squeeze(-1)


def _limit(weights: Sequence[float], bound: float, means: Tensor) -> Callable[[Tensor], Tensor]:
    """Negative where a constraint holds, in units of its spread over the observed points."""
    of = means.new_tensor(weights)
    scale = _spread((means @ of).unsqueeze(-1))[0]
    return lambda samples: (samples @ of - bound) / scale


def _spread(values: Tensor) -> Tensor:
    """Standard deviations of columns ``n x m``; 1 where there is none."""
    sd = values.std(0) if len(values) > 1 else torch.zeros_like(values[0])
    return torch.where(sd > 0.0, sd, torch.ones_like(sd))


class SampledOutcomes:
    """The best point of a sample of all outcomes, with random weights, for each trial.

    Of several objectives the weighted minimum counts, each in units of its range in the sample;
    what breaks constraints comes last. Costs O(c^3) for every 64 trials, with c = 1,000 candidates.

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
        model: ModelList,
        *,
        observed: Tensor,
        bounds: Tensor,
        domain: Domain | None = None,
        objectives: int,
        constraints: Sequence[Weights],
        outcomes: int,
    ) -> None:
        self.models = [cast(Model, one) for one in model.models]
        self.objectives, self.constraints, self.outcomes = objectives, constraints, outcomes
        self.domain = domain or Domain.of(bounds)
        X = self.domain.snapped(observed)
        self.near = X[self.domain.contains(X)]

    @torch.no_grad()
    def propose(self, q: int) -> Tensor:
        """``q x d`` points of the feasible set, which repeat once no further one is left."""
        found = self.domain.bounds[:0]
        while len(found) < q:
            points = candidates(self.domain, self.near, STEPS)[: SPREAD + LOCAL].unique(dim=0)
            count = min(TOGETHER, q - len(found), len(points))
            found = torch.cat([found, points[self._chosen(points, count)]])
        return self.domain.distinct(found, found[:0])

    @torch.no_grad()
    def select(self, points: Tensor, q: int) -> Tensor:
        """Indices of ``q`` different rows of the points of a pool, ``P x d``."""
        parts = torch.randperm(len(points)).tensor_split(q)
        return torch.cat([rows[self._chosen(points[rows], 1)] for rows in parts])

    def _chosen(self, points: Tensor, q: int) -> Tensor:
        """Rows of the best points of ``q`` samples, each of them once."""
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
        return torch.tensor(distinct_winners(score.mT, q))
