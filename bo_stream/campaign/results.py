"""What a campaign has found: the best trial, recommendations, predictions."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
import torch
from botorch.utils.multi_objective.box_decompositions.non_dominated import (
    FastNondominatedPartitioning,
)
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.ask_tell import AskTell
from bo_stream.campaign.history import Decision
from bo_stream.campaign.outcomes.count import latent_surrogate
from bo_stream.campaign.outcomes.front import (
    OutcomePredictions,
    hypervolume,
    reference_of,
    searched,
    spread_out,
)
from bo_stream.campaign.outcomes.observations import PartlyObserved
from bo_stream.campaign.outcomes.outcomes import OutcomeSet
from bo_stream.campaign.recommendation import (
    APART,
    Candidates,
    gains_ahead,
    largest_gains,
    recommended,
    told_at,
)
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Pool
from bo_stream.campaign.space.feasible import FeasibleSet
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.scores import OutcomeDistribution, outcome_distribution
from bo_stream.surrogates.counts import CountGP

__all__ = ["CampaignResults"]

INTERVAL = (0.05, 0.95)
"""Levels of the interval of a recommendation."""

SHOWN = 100
"""Largest number of settings of a model's front."""

BOXES = 256
"""Number of boxes of hypervolume that are integrated at once."""


class CampaignResults(AskTell):
    """A campaign and what follows from its outcomes; see `bo_stream.Campaign`."""

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate of outcomes to be maximised, over inputs as the space encodes them.

        Of counts it is a `CountGP`, of several outcomes a model list of BoTorch with an output for
        each, of which larger ones are better. None before it is built.
        """
        return self._state.model

    @property
    def behind(self) -> bool:
        """Whether outcomes are further from the predictions than the predictions promise."""
        return self._state.behind

    @property
    def decision(self) -> Decision:
        """The acquisition function of the latest trials, and why it was chosen."""
        return self.history.decision or self.current.usual_decision

    @property
    def current(self) -> Settings:
        """The settings in use now: a campaign without a budget begins as a small one."""
        return self.settings.at(self._state.stage.start)

    def observations(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y (to be maximised) and Yvar of all outcomes, in the order they were told.

        Of counts: X, counts, and trials or exposures. Of several outcomes: those of trials that
        have some, NaN where one is missing, and no variances.
        """
        self._sync()
        data = self._state.observations
        if isinstance(data, PartlyObserved):
            return data.X, data.Y, None
        return data.X, data.Y, data.Yvar

    def told(self) -> pd.DataFrame:
        """Trials with all of their outcomes, as `trials` lists them."""
        told = self.trials().query("status == 'told'")
        return told.drop(columns=["status", "ask", "reason"])

    def best(self) -> pd.Series[Any]:
        """The best outcome so far with its inputs; the Series' name is the trial's id.

        With constraints on outcomes, it is the best one that satisfies them.

        Raises:
            StateError: before the first outcome, or the first that satisfies the constraints.
            UnsupportedError: if the goal is ``learn``, or for several objectives.
        """
        self._check_optimises("Use predict(frame).")
        if len(self._outcomes.goals) > 1:
            raise UnsupportedError("one objective", ", ".join(self._outcomes.goals), "Use front().")
        told = self.told()
        if not len(told):
            raise StateError("at least one outcome", "none", "Tell some first.")
        frame = told[self._outcomes.feasible(told)]
        if not self.space.is_continuous:
            frame = frame.astype(object)  # so that integers stay integers
        if not len(frame):
            raise StateError(
                "an outcome that satisfies the constraints",
                f"{len(told)} that do not",
                "Tell more first. See recommend() for the most probable setting.",
            )
        values = frame[self.settings.column].to_numpy(np.float64)
        return frame.iloc[int((self.settings.sign * values).argmax())]

    def front(self, of: Literal["trials", "model"] = "trials", feasible: float = 0.95) -> Any:
        """What is not dominated: no other is better in one objective and as good in all.

        Args:
            of: ``trials`` for the outcomes that were told, of those that satisfy all constraints;
                ``model`` for settings by their posterior means, over the whole space.
            feasible: For ``model``: the least probability that all constraints hold.

        Returns:
            Trials as `trials` lists them, with the id as index; or settings as `recommend` does.
            The first objective orders them.

        Raises:
            InputError: for an invalid argument.
            StateError: for ``model``, before there are enough outcomes for a surrogate.
            UnsupportedError: with one objective.
        """
        if len(self._outcomes.goals) < 2:
            raise UnsupportedError("several objectives", "one", "Use best() or recommend().")
        if of not in ("trials", "model"):
            raise InputError("'trials' or 'model'", repr(of), "Choose one.")
        if of == "model":
            return self._recommended(self._current_model(), None, feasible)
        return _front_of(self.told(), self._outcomes)

    def hypervolume(self) -> tuple[float, dict[str, float]] | None:
        """Hypervolume of `front`, and the outcomes that it is measured from.

        This point is the campaign's reference, or a tenth of the front's range worse than the worst
        of every objective on it.
        None before there is a trial on the front.

        Raises:
            UnsupportedError: with one objective.
        """
        front, outcomes = self.front(), self._outcomes
        if not len(front):
            return None
        volume, reference = hypervolume(torch.from_numpy(outcomes.signed(front)), outcomes)
        signs = [outcomes.sign(column) for column in outcomes.objectives]
        point = [sign * bound for sign, bound in zip(signs, reference.tolist(), strict=True)]
        return volume, dict(zip(outcomes.objectives, point, strict=True))

    def recommend(self, n: int = 1, feasible: float = 0.95) -> pd.DataFrame:
        """The settings to use by what is known now, in order of preference.

        One that was not measured is recommended only if its noiseless outcome is better than those
        of the best measured ones with probability .9, by their joint posterior. Otherwise it is
        the measured one of the best posterior mean; unlike `best`, one lucky outcome does not
        decide, but the best trial's setting stays unless the other is better with probability .7.
        In a box, from 200 outcomes on, the first is that of a polynomial fitted to them,
        where that is known better. Of several objectives they are settings on the front, spread by
        hypervolume: measured ones, and others that no measured one is as good as with probability
        .9.

        Args:
            n: Number of settings. In a box, they differ by a twentieth of the width in some input.
            feasible: With constraints on outcomes: the least probability that all of them hold. If
                no setting reaches it, the most probable one is recommended.

        Returns:
            Inputs in the user's units (and the place, in a pool), posterior ``mean`` and standard
            deviation ``sd`` of the noiseless outcome, and its 90 % interval, ``lower`` to
            ``upper``. ``gain`` is what may still be had: the expected difference between the best
            noiseless outcome and the one here, over joint samples at the best settings so far and
            at maximisers of functions drawn from the posterior; in each sample it counts as at most
            the range of the outcomes. With constraints on outcomes,
            ``gain`` is the expected improvement over this mean, times the probability of
            feasibility, at the one setting where it is largest; of several objectives, likewise
            the expected gain of hypervolume over the model's front. The columns of several outcomes
            have their names before them, as in ``purity_mean``; ``feasible`` is the probability
            that all constraints on outcomes hold, and that the trial does not fail.

        Raises:
            InputError: for an invalid argument.
            StateError: before there are enough outcomes for a surrogate.
            UnsupportedError: if the goal is ``learn``.
        """
        if type(n) is not int or n < 1:
            raise InputError("n, an integer of 1 or more", repr(n), "Give such a number.")
        self._check_optimises("Use predict(frame).")
        model, state = self._current_model(), self._state
        if state.only is None:
            return self._recommended(model, n, feasible)
        latent, data = latent_surrogate(model), state.only.data

        def means(X: Tensor) -> Tensor:
            return self._distribution(model, X).mean

        kernels = state.only.ensemble, state.only.kernels()
        given = self.feasible, data, means, kernels
        frame, X = self._settings_at(recommended(latent, *given, n))
        here = self._distribution(model, X)
        found = gains_ahead(latent, self.feasible, data, kernels[1], here.outcome, X)
        shown = self._summary(here, interval=True)
        return frame.assign(**shown, gain=found.numpy())

    def predict(self, frame: pd.DataFrame, *, noise: bool = False) -> pd.DataFrame:
        """Posterior ``mean`` and standard deviation ``sd`` of the noiseless outcome.

        Up to 200 outcomes they are averages over kernels that the outcomes leave possible. Of
        several outcomes, the columns are those of `recommend`. Of counts: those of the
        prevalence or rate of the smooth surface, without the variation between surveys of one
        place, and a 90 % interval, ``lower`` to ``upper``.

        Args:
            frame: Inputs in the user's units.
            noise: Whether of an outcome as it would be measured, with the typical noise; then also
                its 90 % interval, ``lower`` to ``upper``. What the surrogate cannot explain is
                noise to it: told outcomes are compared with this.

        Raises:
            StateError: before there are enough outcomes for a surrogate.
            InputError, BoundsError: for invalid inputs.
            UnsupportedError: for noise of counts or of several outcomes.
        """
        X = self._encoded(self.space.values(frame))
        model = self._current_model()
        several = self._state.only is None
        if noise and (self.counts is not None or several):
            raise UnsupportedError(
                "one outcome that is no count", "counts or several outcomes", "Leave `noise` out."
            )
        if several:
            return _predictions_of(self._predictions(model), X, frame.index)
        found = self._distribution(model, X, noise)
        interval = noise or self.counts is not None
        return pd.DataFrame(self._summary(found, interval), frame.index)

    # -- pieces ----------------------------------------------------------------------------------

    def _check_optimises(self, remedy: str) -> None:
        if self.goal == "learn":
            raise UnsupportedError("the goal maximise or minimise", "the goal learn", remedy)

    @property
    def _outcomes(self) -> OutcomeSet:
        return self._state.outcomes

    def _predictions(self, model: StreamingGP) -> OutcomePredictions:
        return OutcomePredictions(cast(Any, model), self._outcomes)

    def _recommended(self, model: StreamingGP, n: int | None, least: float) -> pd.DataFrame:
        """Recommended settings by several outcomes; for None the model's front."""
        if not 0.0 <= least <= 1.0:
            raise InputError("feasible, a probability", repr(least), "For example 0.95.")
        predictions = self._predictions(model)
        data = cast(PartlyObserved, self._state.observations)
        given = predictions, self.feasible, data, least
        if n is None:
            frame, X = self._settings_at(_front_points(*given))
        else:
            frame, X = self._settings_at(_recommended_points(*given, n))
        frame = pd.concat([frame, _predictions_of(predictions, X, frame.index, INTERVAL)], axis=1)
        if n is None:
            return frame
        several = len(self._outcomes.goals) > 1
        against = self._settings_at(_front_points(*given))[1] if several else X
        gains = _Gains(predictions, predictions.at(against).objectives)
        found = largest_gains(gains, self.feasible, data.candidates())
        return frame.assign(gain=found.expand(len(frame)).numpy())

    def _settings_at(self, chosen: Tensor) -> tuple[pd.DataFrame, Tensor]:
        """Settings at points of a box or rows of a pool: as a frame, and encoded."""
        space = self.space
        shared = [name for name in space.names if name in self._outcomes.results]
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
            return frame, self._encoded(values)
        values = space.decode(chosen)
        trials = [trial for trial in self._state.history.trials if trial.status == "told"]
        told = self._state.points(trials).to(chosen)
        for row, point in enumerate(chosen):  # a measured setting is the one of the trial
            same = (told == point).all(-1)
            if bool(same.any()):
                values[row] = trials[int(same.nonzero()[0])].inputs
        return space.labelled(values), self._encoded(values)

    def _encoded(self, values: np.ndarray) -> Tensor:
        return self.space.encode(values).to(self._state.like)

    def _distribution(
        self, model: StreamingGP, X: Tensor, noise: bool = False
    ) -> OutcomeDistribution:
        """The distribution of the only outcome, to be maximised; of counts the response."""
        if isinstance(model, CountGP):
            return model.response(X, nugget=False)
        kernels = None if self._state.only is None else self._state.only.kernels()
        return outcome_distribution(model, X, kernels, noise=noise)

    def _summary(self, found: OutcomeDistribution, interval: bool) -> dict[str, np.ndarray]:
        """Mean, standard deviation, and perhaps an interval of the only outcome."""
        sign = self.settings.sign
        made = {"mean": (sign * found.mean).numpy(), "sd": found.sd.numpy()}
        if interval:
            ends = (sign * found.quantiles(INTERVAL)).sort(0).values
            made["lower"], made["upper"] = ends.numpy()
        return made

    def _current_model(self) -> StreamingGP:
        """The surrogate of all outcomes, built if it was not yet, or for fewer or equal ones."""
        self._sync()
        if self._state.unfitted:
            self.update()
        if self.model is None:
            raise StateError(
                f"{self.settings.initial} outcomes, to build a surrogate from",
                f"{self._state.history.num_told}",
                "Tell more first.",
            )
        return self.model


def _front_of(told: pd.DataFrame, outcomes: OutcomeSet) -> pd.DataFrame:
    """Rows of told trials that are feasible and not dominated, by the first objective."""
    frame = told[outcomes.feasible(told)]
    values = torch.from_numpy(outcomes.signed(frame))
    kept = frame[is_non_dominated(values).numpy()] if len(frame) else frame
    return kept.sort_values(outcomes.objectives, kind="stable")


def _predictions_of(
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
def _recommended_points(
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
def _front_points(
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


class _Gains:
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
