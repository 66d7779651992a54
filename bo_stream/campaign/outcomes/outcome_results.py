"""Predictions and recommendations of a campaign with several outcomes, as frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from botorch.acquisition.multi_objective.analytic import ExpectedHypervolumeImprovement
from botorch.utils.multi_objective.box_decompositions.non_dominated import (
    FastNondominatedPartitioning,
)
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

from bo_stream.base.conditioned import shift_and_scale, standardised
from bo_stream.campaign.outcomes.front import (
    OutcomePredictions,
    best_rows,
    reference_of,
    searched,
    spread_out,
)
from bo_stream.campaign.outcomes.named_outcomes import NamedOutcomes
from bo_stream.campaign.outcomes.outcome_states import OutcomeModels
from bo_stream.campaign.proposing.recommendation import improvements
from bo_stream.campaign.space import Pool
from bo_stream.campaign.space.feasible import FeasibleSet
from bo_stream.scores import quantiles

__all__ = ["OutcomeGains", "front_of", "predictions_of", "recommended_points"]

SHOWN = 100
"""Largest number of settings of a model's front."""

APART = 0.05
"""Least distance of two recommendations for one objective in some input, in widths of the box."""


def front_of(told: pd.DataFrame, outcomes: NamedOutcomes) -> pd.DataFrame:
    """Rows of told trials that are feasible and not dominated, by the first objective."""
    frame = told[outcomes.feasible(told)]
    values = torch.from_numpy(outcomes.signed(frame))
    kept = frame[is_non_dominated(values).numpy()] if len(frame) else frame
    return kept.sort_values(outcomes.objectives, kind="stable")


def predictions_of(
    predictions: OutcomePredictions,
    X: Tensor,
    index: Any,
    interval: tuple[float, float] | None = None,
) -> pd.DataFrame:
    """Means, standard deviations and probability of feasibility at points, in the user's units.

    Args:
        predictions: Predictions of all outcomes.
        X: ``n x d``.
        index: Index of the frame.
        interval: Levels of the ends of an interval, if it is asked for.
    """
    outcomes = predictions.outcomes
    means, sds = predictions.moments(X)
    made: dict[str, np.ndarray] = {}
    for j, (column, sign) in enumerate(zip(outcomes.columns, outcomes.signs, strict=True)):
        start = "" if outcomes.objectives == [column] else f"{column}_"
        made[f"{start}mean"] = sign * means[:, j].numpy()
        made[f"{start}sd"] = sds[:, j].numpy()
        if interval is not None and column in outcomes.goals:
            levels = quantiles(predictions.models[j], X, interval)
            lower, upper = (sign * levels).sort(0).values.numpy()
            made |= {f"{start}lower": lower, f"{start}upper": upper}
    if outcomes.constraints or outcomes.completes:
        made["feasible"] = predictions.feasible(X).numpy()
    return pd.DataFrame(made, index)


def recommended_points(
    predictions: OutcomePredictions,
    where: FeasibleSet,
    observed: Tensor,
    least: float,
    count: int | None,
) -> Tensor:
    """Points of a box, or indices of rows of a pool.

    Args:
        predictions: Predictions of all outcomes.
        where: Where to look.
        observed: Points with outcomes.
        least: The least probability of feasibility.
        count: Number of points: of one objective those of the highest means, apart from each other;
            of several those of the front that are spread best. None: the whole front.
    """
    space = where.space
    if isinstance(space, Pool):
        held = torch.from_numpy(where.holds(space.place_values)).nonzero()[:, 0]
        points = space.points.to(observed)[held]
        rows = best_rows(predictions.objectives(points), predictions.feasible(points), least)
        return held[rows][_chosen(predictions, points[rows], 0.0, count)]
    bounds = space.tensor_bounds.to(observed)
    points = searched(predictions, where, observed, least)
    return points[_chosen(predictions, points, APART * (bounds[1] - bounds[0]), count)]


class OutcomeGains:
    """Expected gains at points, times the probability of feasibility.

    Args:
        predictions: Predictions of all outcomes.
        against: ``k x m`` expected objectives, over which a gain is: of one objective each of them,
            of several their front, in hypervolume from the reference point.
    """

    def __init__(self, predictions: OutcomePredictions, against: Tensor) -> None:
        self.predictions, self.against = predictions, against
        self._volume: ExpectedHypervolumeImprovement | None = None
        self._unit = 1.0
        if against.shape[-1] > 1:
            models = predictions.models[: against.shape[-1]]
            shifts, scales = against.new_tensor([shift_and_scale(one) for one in models]).T
            reference = (reference_of(against, predictions.outcomes) - shifts) / scales
            cells: Any = FastNondominatedPartitioning(reference, (against - shifts) / scales)
            model = OutcomeModels(*map(standardised, models))
            self._volume = ExpectedHypervolumeImprovement(model, reference.tolist(), cells)
            self._unit = float(scales.prod())

    def __call__(self, X: Tensor) -> Tensor:
        """Gains at points ``n x d``: ``k x n``, or ``1 x n`` of several objectives."""
        probability = self.predictions.feasible(X)
        if self._volume is not None:
            return (self._unit * self._volume(X.unsqueeze(-2)) * probability).unsqueeze(0)
        mean, sd = (moment[:, 0] for moment in self.predictions.moments(X))
        return improvements(mean, sd, self.against[:, 0]) * probability


def _chosen(
    predictions: OutcomePredictions, points: Tensor, apart: Tensor | float, count: int | None
) -> Tensor:
    """Rows of the best points."""
    values = predictions.objectives(points)
    if count is None:
        rows = _apart(values, SHOWN)
        return rows[values[rows, 0].argsort(descending=True, stable=True)]
    if values.shape[-1] > 1:
        return spread_out(values, count)
    chosen: list[int] = []
    for i in range(len(points)):
        far = all(bool(((points[i] - points[j]).abs() > apart).any()) for j in chosen)
        chosen += [i] if far else []
        if len(chosen) == count:
            break
    return torch.tensor(chosen)


def _apart(values: Tensor, count: int) -> Tensor:
    """Rows of a front, ``n x k``: its ends, then always the one farthest from the others."""
    if len(values) <= count:
        return torch.arange(len(values))
    scaled = (values - values.mean(0)) / values.std(0).clamp_min(1e-300)
    chosen = scaled.argmax(0).unique().tolist()
    nearest = torch.cdist(scaled, scaled[chosen]).min(1).values
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        nearest = torch.minimum(nearest, (scaled - scaled[chosen[-1]]).norm(dim=-1))
    return torch.tensor(chosen)
