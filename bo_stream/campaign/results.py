"""What a surrogate tells: recommendations, predictions, the front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from botorch.models.model import ModelList
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.campaign_state import CampaignState
from bo_stream.campaign.constraints import FeasibleSet
from bo_stream.campaign.found import check_optimises
from bo_stream.campaign.learner import latent_surrogate
from bo_stream.campaign.outcomes.outcome import Observations
from bo_stream.campaign.recommendation import (
    APART,
    STARTS,
    Candidates,
    OutcomePredictions,
    PredictedOutcomes,
    gains_ahead,
    recommended,
    searched,
    told_at,
)
from bo_stream.campaign.space import Pool
from bo_stream.errors import InputError, StateError, UnsupportedError, whole_number

__all__ = ["front", "predict", "recommend", "winsorised"]

INTERVAL = (0.05, 0.95)
"""Levels of the interval of a recommendation."""

SHOWN = 100
"""Largest number of settings of a model's front."""


def front(state: CampaignState, of: str, feasible: float = 0.95) -> pd.DataFrame:
    """The model's front; see `bo_stream.Campaign.front`."""
    if len(state.engine.outcomes.goals) < 2:
        raise UnsupportedError("several objectives", "one", "Use best() or recommend().")
    if of != "model":
        raise InputError("'trials' or 'model'", repr(of), "Choose one.")
    return _recommended(state, None, feasible)


def recommend(state: CampaignState, n: int = 1, feasible: float = 0.95) -> pd.DataFrame:
    """The settings to use by what is known now; see `bo_stream.Campaign.recommend`."""
    n = whole_number("n", n, 1)
    check_optimises(state.settings)
    if state.engine.only is None:
        return _recommended(state, n, feasible)
    predictions, learner, where = _predictions(state), state.engine.only, state.engine.feasible
    latent, data = latent_surrogate(learner.model), learner.data
    kernels = learner.ensemble, predictions.kernels

    def means(X: Tensor) -> Tensor:
        return predictions.at(X).distribution(0).mean

    frame, X = _settings_at(state, recommended(latent, where, data, means, kernels, n))
    here = predictions.at(X)
    outcome = here.distribution(0).outcome
    found = gains_ahead(latent, where, data, predictions.kernels, outcome, X)
    return frame.join(_shown(here, frame.index, interval=True)).assign(gain=found.numpy())


def predict(
    state: CampaignState, frame: pd.DataFrame | Mapping[str, Any], *, noise: bool = False
) -> pd.DataFrame:
    """Predictions at settings; see `bo_stream.Campaign.predict`."""
    if isinstance(frame, Mapping):
        frame = pd.DataFrame([frame])
    X = _encoded(state, state.settings.space.values(frame))
    predictions, counts = _predictions(state), state.settings.counts is not None
    if noise and (counts or state.engine.only is None):
        raise UnsupportedError(
            "one outcome that is no count", "counts or several outcomes", "Leave `noise` out."
        )
    return _shown(predictions.at(X, noise), frame.index, interval=noise or counts)


def winsorised(state: CampaignState) -> dict[str, tuple[float, int]]:
    """For every outcome, the worst one that its surrogate learns and the number of told ones
    beyond.

    These are learned as if they were the limit, which is 20 spreads below the median, and set
    again by every fit; `trials` keeps them as told. The limit is infinite without a spread, for
    counts, and for the goal ``learn``.
    """
    found = {}
    for outcome in state.engine.outcomes.measured:
        one = state.engine.learners[outcome.column]
        beyond = int((one.least > one.data.Y).sum())
        found[outcome.column] = outcome.sign * one.least, beyond
    return found


# -- pieces --------------------------------------------------------------------------------------


def _current_model(state: CampaignState) -> StreamingGP:
    """The surrogate of all outcomes, built if it was not yet, or for fewer or equal ones."""
    if state.engine.unfitted:
        state.update()
    if state.engine.model is None:
        raise StateError(
            f"{state.settings.initial} outcomes, to build a surrogate from",
            f"{state.history.num_told}",
            "Tell more first.",
        )
    return state.engine.model


def _predictions(state: CampaignState) -> OutcomePredictions:
    model, only = _current_model(state), state.engine.only
    models = [model] if only else cast(ModelList, model).models
    kernels = only.kernels() if only else None
    return OutcomePredictions(cast(Any, models), state.engine.outcomes, kernels)


@torch.no_grad()
def _recommended(state: CampaignState, n: int | None, least: float) -> pd.DataFrame:
    """Recommended settings by several outcomes; for None the model's front."""
    if not 0.0 <= least <= 1.0:
        raise InputError("feasible, a probability", repr(least), "For example 0.95.")
    predictions, data, engine = _predictions(state), state.observations, state.engine
    where, space = engine.feasible, engine.feasible.space
    X, rows = _candidates(predictions, where, data, least)
    known = predictions.at(X)
    if n is None:
        chosen = _ordered_front(known, least)
    else:
        enough = known.enough(least)
        X_enough, values = X[enough], known.objectives[enough]
        told = told_at(X_enough, *data.complete)
        candidates = Candidates(X_enough, told, values, predictions.higher)
        apart = None if isinstance(space, Pool) else APART * where.domain.width
        chosen = enough[candidates.preferred(n, apart)]
    frame, X = _settings_at(state, X[chosen] if rows is None else rows[chosen])
    here = predictions.at(X)
    frame = frame.join(_shown(here, frame.index, interval=True))
    if n is None or len(engine.outcomes.goals) > 1:
        return frame
    held = here.objectives[:, 0]

    def gains(X: Tensor) -> Tensor:
        there = predictions.at(X)
        return there.distribution(0).expected_improvement(held) * there.feasible

    def largest(X: Tensor) -> Tensor:
        return gains(X).topk(min(STARTS, len(X)), -1).indices.T.flatten()

    found = gains(searched(largest, where, data.candidates())).amax(-1)
    return frame.assign(gain=found.numpy())


def _settings_at(state: CampaignState, chosen: Tensor) -> tuple[pd.DataFrame, Tensor]:
    """Settings at points of a box or rows of a pool: as a frame, and encoded."""
    space = state.settings.space
    shared = [name for name in space.names if name in state.engine.outcomes.results]
    if shared:  # a campaign of an earlier release
        raise StateError(
            "inputs whose names no column of results has",
            ", ".join(shared),
            "Use predict(frame), or tell the trials to a new campaign with other names.",
        )
    if isinstance(space, Pool):
        values = space.decode(space.points[chosen])
        frame = space.labelled(values)
        frame.insert(0, "place", space.table.index[chosen.tolist()])
        return frame, _encoded(state, values)
    values = space.decode(chosen)
    known = [trial for trial in state.history.trials if trial.status == "told"]
    points = state.points(known).to(chosen)
    for row, point in enumerate(chosen):  # a measured setting is the one of the trial
        same = (points == point).all(-1)
        if bool(same.any()):
            values[row] = known[int(same.nonzero()[0])].inputs
    return space.labelled(values), _encoded(state, values)


def _encoded(state: CampaignState, values: np.ndarray) -> Tensor:
    return state.settings.space.encode(values).to(state.engine.like)


def _shown(here: PredictedOutcomes, index: Any, interval: bool = False) -> pd.DataFrame:
    """Means, standard deviations and probability of feasibility at points, in the user's units.

    Args:
        here: Predictions at the points.
        index: Index of the frame.
        interval: Whether to add intervals of the objectives.
    """
    outcomes, columns = here.outcomes, dict[str, np.ndarray]()
    for j, one in enumerate(outcomes.measured):
        found = here.distribution(j)
        start = "" if list(outcomes.goals) == [one.column] else f"{one.column}_"
        columns[f"{start}mean"] = (one.sign * found.mean).numpy()
        columns[f"{start}sd"] = found.sd.numpy()
        if interval and one.column in outcomes.goals:
            ends = (one.sign * found.quantiles(INTERVAL)).sort(0).values
            columns[f"{start}lower"], columns[f"{start}upper"] = ends.numpy()
    if outcomes.constraints or outcomes.completed:
        columns["feasible"] = here.feasible.numpy()
    return pd.DataFrame(columns, index)


def _candidates(
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


def _ordered_front(known: PredictedOutcomes, least: float) -> Tensor:
    """Rows of the front by expected outcomes, by the first objective, at most `SHOWN` of them."""
    best = known.best(least)
    first = known.objectives[best, 0]
    ordered = best[first.argsort(descending=True, stable=True)]
    spread = torch.linspace(0, len(ordered) - 1, min(SHOWN, len(ordered)))
    return ordered[spread.round().long()]
