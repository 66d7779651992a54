"""Bayesian optimisation by a loop that measures itself.

A Sobol design, then at every step: ask (maximise an acquisition function), evaluate, book, score
(the density the surrogate gave the new values before it saw them), observe, fit, record. Surrogates
and acquisition functions come in as callables, so that every family goes through the same loop.
Time is data: the seconds of each part are columns of the result. What an interruption leaves
behind, and how a run goes on from there, is said in `bo_stream.simulation.run`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from os import PathLike
from typing import Any, Protocol, cast

import numpy as np
import pandas as pd
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import PosteriorMean
from botorch.optim.optimize import optimize_acqf
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.fit_policy import FitPolicy
from bo_stream.campaign.proposals import Optimiser, Search, ranked
from bo_stream.campaign.randomness import evaluating
from bo_stream.campaign.records import Row, environment, write_table
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Box
from bo_stream.simulation.bo_config import LoopConfig
from bo_stream.simulation.run import PARTS, OpenStep, Run
from bo_stream.simulation.simulated_campaign import SimulatedCampaign

__all__ = ["COLUMNS", "BOLoop", "FitPolicy", "LoopConfig", "Problem", "regret"]


class Problem(Protocol):
    """What can be optimised: a noisy function, to be maximised, whose noiseless values are known.

    Attributes:
        bounds: ``2 x d``.
        optimal_value: The maximum of the noiseless function.
    """

    @property
    def bounds(self) -> Tensor:
        """``2 x d``."""
        ...

    @property
    def optimal_value(self) -> float:
        """The maximum of the noiseless function."""
        ...

    def __call__(self, X: Tensor) -> Tensor:
        """Noisy observations, ``n x 1``, at ``n x d`` points."""
        ...

    def evaluate_true(self, X: Tensor) -> Tensor:
        """Noiseless values, ``n x 1``."""
        ...


COLUMNS = (
    *("step", "n", "bytes"),
    *(f"{part}_seconds" for part in (*PARTS, "step", "wallclock", "cpu", "score", "recommend")),
    *("fit_evaluations", "fit_objective", "incumbent", "simple_regret", "inference_regret"),
    *("log_predictive", "failed", "behind"),
)
"""Columns of the table of a `BOLoop`, in their order."""


class BOLoop(Run):
    """One run of Bayesian optimisation, reproducible by its seed.

    Randomness of a step comes from its seed and number alone and leaves torch's global generator as
    it was. The table has a row for the initial design (step 0) and one per step:

    - ``step``, ``n`` (observations held), ``bytes`` (the surrogate's state);
    - ``fit_seconds``, ``acquisition_seconds``, ``evaluation_seconds``, ``update_seconds``
      (observing and bringing the posterior up to date), their sum ``step_seconds`` and its running
      sum ``wallclock_seconds``; ``cpu_seconds``, processor time of all of these but the evaluation;
      apart from these ``score_seconds`` (densities and regrets) and
      ``recommend_seconds``, which optimise nothing. Together they are all the time of a step;
    - ``fit_evaluations`` and ``fit_objective``;
    - ``incumbent``: best noisy value; ``simple_regret``: of the point it was seen at;
      ``inference_regret``: of the maximiser of the posterior mean. Regrets are noiseless;
    - ``log_predictive``: log density of the batch before it was absorbed;
    - ``failed``: evaluations of the step that gave NaN or an infinite value. The others of the
      batch are absorbed as usual, and no later step asks for a point that failed: one drawn at
      random takes its place.

    Args:
        problem: What to maximise.
        make_surrogate: ``(X, Y, bounds=..., outcome_transform=...)`` to a surrogate, for example
            ``functools.partial(bo_stream.surrogate, "wiski")``.
        build_acquisition: ``(model, X_baseline=..., best_f=...)`` to an acquisition function, for
            example ``functools.partial(acquisitions.build, "qucb")``. ``best_f`` is the best
            posterior mean at an observed point.
        config: The rest.
        callback: Called with every row as it is recorded.

    Example:
        >>> from functools import partial
        >>> from bo_stream import surrogate
        >>> from problems import synthetic
        >>> from botorch.acquisition.analytic import UpperConfidenceBound
        >>> def ucb(model, **kw):
        ...     return UpperConfidenceBound(model, beta=4.0)
        >>> config = LoopConfig(steps=2, q=1, num_restarts=2, raw_samples=16)
        >>> loop = BOLoop(synthetic("branin", 2), partial(surrogate, "wiski"), ucb, config)
        >>> loop.run()["n"].tolist()
        [10, 11, 12]
    """

    def __init__(
        self,
        problem: Problem,
        make_surrogate: Callable[..., StreamingGP],
        build_acquisition: Callable[..., AcquisitionFunction],
        config: LoopConfig | None = None,
        callback: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.problem, self.config = problem, config or LoopConfig()
        self.make_surrogate, self.build_acquisition = make_surrogate, build_acquisition
        c = self.config
        self.bounds = problem.bounds.to(getattr(torch, c.dtype))
        low, high = self.bounds.tolist()
        names = [f"x{i}" for i in range(len(low))]
        space = Box(dict(zip(names, zip(low, high, strict=True), strict=True)))
        optimiser = Optimiser(c.num_restarts, c.raw_samples, c.acqf_options)
        settings = Settings(
            space, "maximise", None, None, c.seed, 2, c.fit, optimiser, restandardise=False
        )
        search = Search(space, build_acquisition, optimiser, baseline=c.baseline_size)
        campaign = SimulatedCampaign(settings, make_surrogate, search, self.bounds)
        super().__init__(campaign, c.steps, COLUMNS, callback)

    def start(self, X: Tensor | None = None, Y: Tensor | None = None) -> dict[str, Any]:
        """Step 0: evaluate the initial design (or take data given), build and fit the surrogate.

        Raises:
            StateError: if it was started before. After an interruption, call it without data.
            InputError: if fewer than two values are finite; the next call evaluates further points
                of the design, or takes data given, besides what is known already.
        """
        enough = len(self.observations()[1]) >= 2
        self._not_started(begun=enough and X is not None)
        step = self._open
        if step is None or X is not None or (step.answer is not None and not enough):
            self._open = step = self._opened()
            if X is not None:
                step.trials = self.campaign.enqueue(self._frame(X))
            if Y is not None:
                step.answer = Y
        return self._finish(step)

    def preload(self, X: Tensor, Y: Tensor) -> None:
        """Observe data that no step asked for, outside of the accounts.

        A step that was interrupted is finished first.
        """
        if self._open is not None:
            self.step()
        self._started()
        self.campaign.row = Row(self._columns)
        self.campaign.tell(self._frame(X).assign(y=Y[:, 0].cpu().double().numpy()))

    def observations(self) -> tuple[Tensor, Tensor]:
        """X and Y of all evaluations so far, in order, those of an interrupted step included.

        Evaluations that failed are left out.
        """
        X, Y, _ = self.campaign.observations()
        waiting = self._answered()
        if waiting is None:
            return X, Y
        good = waiting[1][:, 0].isfinite()
        return torch.cat([X, self._points(waiting[0])[good]]), torch.cat([Y, waiting[1][good]])

    def save(self, path: str | PathLike[str], **facts: Any) -> None:
        """Write the table to ``path`` (CSV) and how it came about beside it (JSON).

        Args:
            path: Of the CSV; the JSON has the same name but for the suffix.
            facts: Named facts to add to the JSON: problem, surrogate, acquisition.
        """
        about = {**facts, "config": asdict(self.config), "environment": environment()}
        write_table(self.table(), path, about)

    # -- the parts of a step ---------------------------------------------------------------------

    @property
    def _q(self) -> int:
        return self.config.q

    def _begin(self) -> pd.DataFrame:
        return self.campaign.ask(self.config.num_initial)

    def _evaluate(self, step: OpenStep) -> None:
        """The problem's values; their noise does not depend on what was drawn to find them."""
        X = self._points(cast(pd.DataFrame, step.trials))
        with evaluating(self.config.seed, step.number, self.bounds.device):
            step.answer = self.problem(X)

    def _tell(self, step: OpenStep, row: Row) -> None:
        trials, values = cast(pd.DataFrame, step.trials), cast(Tensor, step.answer)[:, 0]
        trials = trials.assign(y=values.cpu().double().numpy())
        good = np.isfinite(trials["y"])
        row["failed"] = int((~good).sum())
        if not good.all():
            self.campaign.fail(trials.index[~good], "no finite value")
        if good.any():
            self.campaign.tell(trials[good])

    def _judge(self, model: StreamingGP, step: OpenStep, row: Row) -> None:
        c = self.config
        points, values, _ = self.campaign.observations()
        best = values[:, 0].argmax()
        row["incumbent"] = float(values[best])
        row["simple_regret"] = regret(self.problem, points[best].unsqueeze(0))
        if c.recommend_every and step.number % c.recommend_every == 0:
            with row.timed("recommend_seconds"):
                point = self._recommend(model)
            row["inference_regret"] = regret(self.problem, point)

    # -- pieces ----------------------------------------------------------------------------------

    def _points(self, trials: pd.DataFrame) -> Tensor:
        """Trials as ``q x d`` points."""
        return self.campaign.space.encoded(trials[list(self.campaign.space.names)].to_numpy()).to(
            self.bounds
        )

    def _frame(self, X: Tensor) -> pd.DataFrame:
        """Points as a frame."""
        return pd.DataFrame(X.cpu().double().numpy(), columns=list(self.campaign.space.names))

    def _recommend(self, model: StreamingGP) -> Tensor:
        """The maximiser of the posterior mean over the box and the points observed, ``1 x d``."""
        with self.campaign.randomness():
            X, value = optimize_acqf(
                PosteriorMean(model), self.bounds, q=1, num_restarts=4, raw_samples=128
            )
        known, best = ranked(model, self.campaign.candidates(), self.config.baseline_size)
        return X if value is not None and float(value) > best else known[:1]


def regret(problem: Problem, X: Tensor) -> float:
    """How much less the noiseless value at a point is than the maximum.

    Args:
        problem: The function.
        X: One point, ``1 x d``.

    Returns:
        The regret; NaN if the problem does not know its optimum or its noiseless values.
    """
    if not (hasattr(problem, "optimal_value") and hasattr(problem, "evaluate_true")):
        return math.nan
    return float(problem.optimal_value) - float(problem.evaluate_true(X))
