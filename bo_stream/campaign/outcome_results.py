"""Predictions and recommendations of a campaign with several outcomes, as frames."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from botorch.utils.multi_objective.box_decompositions.non_dominated import (
    FastNondominatedPartitioning,
)
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

from bo_stream.campaign.outcomes.front import (
    OutcomePredictions,
    reference_of,
    searched,
    spread_out,
)
from bo_stream.campaign.outcomes.named_outcomes import NamedOutcomes
from bo_stream.campaign.outcomes.observations import PartlyObserved
from bo_stream.campaign.proposing.recommendation import APART, Candidates, told_at
from bo_stream.campaign.space import Pool
from bo_stream.campaign.space.feasible import FeasibleSet

__all__ = ["OutcomeGains", "front_of", "front_points", "predictions_of", "recommended_points"]

SHOWN = 100
"""Largest number of settings of a model's front."""

BOXES = 256
"""Number of boxes of hypervolume that are integrated at once."""


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
    outcomes, here = predictions.outcomes, predictions.at(X)
    made: dict[str, np.ndarray] = {}
    for j, (column, sign) in enumerate(zip(outcomes.columns, outcomes.signs, strict=True)):
        start, found = "" if outcomes.objectives == [column] else f"{column}_", here.distribution(j)
        made |= {f"{start}mean": (sign * found.mean).numpy(), f"{start}sd": found.sd.numpy()}
        if interval is not None and column in outcomes.goals:
            lower, upper = (sign * found.quantiles(interval)).sort(0).values.numpy()
            made |= {f"{start}lower": lower, f"{start}upper": upper}
    if outcomes.constraints or outcomes.completes:
        made["feasible"] = here.feasible.numpy()
    return pd.DataFrame(made, index)


@torch.no_grad()
def recommended_points(
    predictions: OutcomePredictions,
    where: FeasibleSet,
    data: PartlyObserved,
    least: float,
    count: int,
) -> Tensor:
    """Points of a box, or indices of rows of a pool, in order of preference by `Candidates`.

    Of several objectives they are those points of the front that are spread best. The front is one
    of measured points, and of others that almost surely no measured one dominates.

    Args:
        predictions: Predictions of all outcomes.
        where: Where to look.
        data: All outcomes.
        least: The least probability of feasibility.
        count: Number of points at most. Of one objective, those of a box are apart.
    """
    X, rows = _candidates(predictions, where, data, least)
    here = predictions.at(X)
    enough = (here.feasible >= least).nonzero()[:, 0]
    if not len(enough):
        enough = here.feasible.argmax().unsqueeze(0)
    values = here.objectives[enough]
    told = told_at(X[enough], *data.complete)
    made = Candidates(X[enough], told, values, predictions.higher)
    if values.shape[-1] == 1:
        bounds = where.space.tensor_bounds.to(X)
        pool = isinstance(where.space, Pool)
        chosen = made.best(count, None if pool else APART * (bounds[1] - bounds[0]))
    else:
        front = made.front()
        chosen = front[spread_out(values[front], count)]
    return rows[enough[chosen]] if isinstance(where.space, Pool) else X[enough[chosen]]


@torch.no_grad()
def front_points(
    predictions: OutcomePredictions, where: FeasibleSet, data: PartlyObserved, least: float
) -> Tensor:
    """The front of the model by expected outcomes, at most `SHOWN` of it; as above."""
    X, rows = _candidates(predictions, where, data, least)
    best = predictions.best(X, least)
    values = predictions.at(X[best]).objectives
    chosen = _apart(values, SHOWN)
    chosen = best[chosen[values[chosen, 0].argsort(descending=True, stable=True)]]
    return rows[chosen] if isinstance(where.space, Pool) else X[chosen]


def _candidates(
    predictions: OutcomePredictions, where: FeasibleSet, data: PartlyObserved, least: float
) -> tuple[Tensor, Tensor]:
    """Feasible points of a pool, and their rows; or the measured and the best points of a box."""
    space = where.space
    if isinstance(space, Pool):
        rows = torch.from_numpy(where.holds(space.place_values)).nonzero()[:, 0]
        return space.points.to(data.X)[rows], rows
    measured, _ = data.complete
    measured = measured[where.domain.contains(measured)]
    found = searched(partial(predictions.best, least=least), where, data.candidates())
    X = torch.cat([measured, found.to(measured)]).unique(dim=0)
    return X, torch.arange(len(X))


class OutcomeGains:
    """Expected gains at points, times the probability of feasibility.

    The expected gain of hypervolume is a sum over boxes that fill what the front does not dominate:
    objectives are independent, and each adds to a box the expected length of its side that is
    gained.

    Args:
        predictions: Predictions of all outcomes.
        against: ``k x m`` expected objectives, over which a gain is: of one objective each of them,
            of several their front, in hypervolume from the reference point.
    """

    def __init__(self, predictions: OutcomePredictions, against: Tensor) -> None:
        self.predictions, self.against = predictions, against
        self._boxes: Tensor | None = None
        if against.shape[-1] > 1:
            reference = reference_of(against, predictions.outcomes)
            self._boxes = FastNondominatedPartitioning(reference, against).get_hypercell_bounds()

    def __call__(self, X: Tensor) -> Tensor:
        """Gains at points ``n x d``: ``k x n``, or ``1 x n`` of several objectives."""
        here = self.predictions.at(X)
        if self._boxes is None:
            gains = here.distribution(0).expected_improvement(self.against[:, 0])
            return gains * here.feasible
        total = torch.zeros_like(here.feasible)
        for boxes in self._boxes.split(BOXES, 1):
            volume = torch.ones(())
            for j, ends in enumerate(boxes.unbind(-1)):
                levels, places = ends.unique(return_inverse=True)
                above = here.distribution(j).expected_improvement(levels)[places]
                volume = volume * (above[0] - above[1]).clamp_min(0.0)
            total = total + volume.sum(0)
        return (total * here.feasible).unsqueeze(0)


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
