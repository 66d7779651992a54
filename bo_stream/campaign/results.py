"""What a surrogate tells: recommendations, predictions, the front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.campaign_state import CampaignState
from bo_stream.campaign.found import check_optimises
from bo_stream.campaign.recommendation import (
    OutcomePredictions,
    PredictedOutcomes,
    considered,
    gains_ahead,
    improvements,
    recommended,
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
    predictions = _predictions(state, feasible)
    X, rows = considered(predictions, state.engine.feasible, state.observations, feasible)
    known = predictions.at(X)
    best = known.best(feasible)
    ordered = best[known.objectives[best, 0].argsort(descending=True, stable=True)]
    shown = torch.linspace(0, len(ordered) - 1, min(SHOWN, len(ordered))).round().long()
    chosen = ordered[shown]
    return _settings_at(state, predictions, X[chosen] if rows is None else rows[chosen])[0]


def recommend(state: CampaignState, n: int = 1, feasible: float = 0.95) -> pd.DataFrame:
    """The settings to use by what is known now; see `bo_stream.Campaign.recommend`."""
    n = whole_number("n", n, 1)
    check_optimises(state.settings)
    predictions, engine, data = _predictions(state, feasible), state.engine, state.observations
    where, ensemble = engine.feasible, engine.only.ensemble if engine.only else None
    chosen = recommended(predictions, where, data, ensemble, n, feasible)
    frame, here = _settings_at(state, predictions, chosen)
    if len(engine.outcomes.goals) > 1:
        return frame
    if engine.only is None:
        found = improvements(predictions, where, data, here.X)
    else:
        outcome = here.distributions[0].outcome
        found = gains_ahead(predictions.latent, where, data, predictions.kernels, outcome, here.X)
    return frame.assign(gain=found.numpy())


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


def _predictions(state: CampaignState, least: float = 0.0) -> OutcomePredictions:
    """Predictions by current surrogates, built if they were not, or for fewer or equal outcomes.

    Args:
        state: That of a campaign.
        least: The least probability of feasibility that is asked for.
    """
    if not 0.0 <= least <= 1.0:
        raise InputError("feasible, a probability", repr(least), "For example 0.95.")
    engine = state.engine
    if engine.unfitted:
        state.update()
    if engine.model is None:
        raise StateError(
            f"{state.settings.initial} outcomes, to build a surrogate from",
            f"{state.history.num_told}",
            "Tell more first.",
        )
    models = [cast(StreamingGP, one.model) for one in engine.used]
    kernels = engine.only.kernels() if engine.only else None
    return OutcomePredictions(models, engine.outcomes, kernels)


def _settings_at(
    state: CampaignState, predictions: OutcomePredictions, chosen: Tensor
) -> tuple[pd.DataFrame, PredictedOutcomes]:
    """Settings at points of a box or rows of a pool, with what is predicted there."""
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
    else:
        values = space.decode(chosen)
        known = [trial for trial in state.history.trials if trial.status == "told"]
        same = (state.points(known).to(chosen) == chosen.unsqueeze(1)).all(-1)
        for row in same.any(-1).nonzero()[:, 0].tolist():  # the setting of that trial
            values[row] = known[int(same[row].nonzero()[0])].inputs
        frame = space.labelled(values)
    here = predictions.at(_encoded(state, values))
    return pd.concat([frame, _shown(here, frame.index, interval=True)], axis=1), here


def _encoded(state: CampaignState, values: np.ndarray) -> Tensor:
    return state.settings.space.encode(values).to(state.engine.like)


def _shown(here: PredictedOutcomes, index: Any, interval: bool = False) -> pd.DataFrame:
    """Means, standard deviations and probability of feasibility at points, in the user's units.

    Args:
        here: Predictions at the points.
        index: Index of the frame.
        interval: Whether to add intervals of the objectives.
    """
    outcomes, columns = here.predictions.outcomes, dict[str, np.ndarray]()
    for one, found in zip(outcomes.measured, here.distributions, strict=False):
        start = "" if list(outcomes.goals) == [one.column] else f"{one.column}_"
        columns[f"{start}mean"] = (one.sign * found.mean).numpy()
        columns[f"{start}sd"] = found.sd.numpy()
        if interval and one.column in outcomes.goals:
            ends = (one.sign * found.quantiles(INTERVAL)).sort(0).values
            columns[f"{start}lower"], columns[f"{start}upper"] = ends.numpy()
    if outcomes.constraints or outcomes.completed:
        columns["feasible"] = here.feasible.numpy()
    return pd.DataFrame(columns, index)
