"""Simulated Bayesian optimisation of a problem whose optimum is known, timed by parts.

After a Sobol design, every step asks for a batch, evaluates it, scores its prediction, lets the
surrogate observe it, fits and records a row. Surrogates and acquisition functions are callables, so
that every family goes through the same loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from os import PathLike
from typing import Any, Protocol

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import PosteriorMean
from torch import Tensor

from acquisitions import Maximised, optimize_acqf
from acquisitions.maximised import rank_by_mean
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.effort import STRIDE, FitPolicy, Optimiser, proposing, seeded
from bo_stream.campaign.engine import Engine
from bo_stream.campaign.learner import Stage
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Box
from experiments.common.loops.bo_config import LoopConfig
from experiments.common.loops.run import PARTS, SimulatedRun
from experiments.common.records import Clock, TimedRow, clock, environment
from experiments.common.tables import write_table

__all__ = ["COLUMNS", "BOLoop", "FitPolicy", "LoopConfig", "Problem", "regret"]


class Problem(Protocol):
    """A noisy function to be maximised, with known noiseless values.

    Attributes:
        bounds: ``2 x d``.
        optimal_value: Maximum of the noiseless function.
    """

    @property
    def bounds(self) -> Tensor:
        """``2 x d``."""
        ...

    @property
    def optimal_value(self) -> float:
        """Maximum of the noiseless function."""
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
"""Columns of a `BOLoop`'s table, in their order."""


class BOLoop(SimulatedRun):
    """A simulated run of Bayesian optimisation, reproducible by its seed.

    The randomness of a step depends on seed and step alone, and torch's global generator is left as
    it was. The table has a row for the initial design (step 0) and one per step:

    - ``step``, ``n`` (number of observations), ``bytes`` (size of the surrogate's state);
    - ``fit_seconds``, ``acquisition_seconds``, ``evaluation_seconds``, ``update_seconds``
      (observing and updating the posterior), their sum ``step_seconds`` and its cumulative sum
      ``wallclock_seconds``; ``cpu_seconds``, the processor time of a step without evaluation;
      ``score_seconds`` (densities and regrets) and ``recommend_seconds``, which are not part of
      ``step_seconds``. Together they are the whole time of a step;
    - ``fit_evaluations`` and ``fit_objective``;
    - ``incumbent``: best noisy value; ``simple_regret``: noiseless regret of its point;
      ``inference_regret``: noiseless regret of the maximiser of the posterior mean;
    - ``log_predictive``: log density of the batch before it was observed;
    - ``failed``: number of evaluations that gave NaN or an infinite value. The rest of the batch is
      observed as usual. If a later step would ask for a point that failed, a random one replaces
      it.

    Args:
        problem: The function to maximise.
        make_surrogate: Builds a surrogate from ``(X, Y, bounds=..., outcome_transform=...)``, for
            example ``functools.partial(bo_stream.surrogate, "wiski")``.
        build_acquisition: Builds an acquisition function from ``(model, X_baseline=...,
            best_f=...)``, for example ``functools.partial(acquisitions.build, "qucb")``. ``best_f``
            is the best posterior mean at an observed point.
        config: Sizes, seed and budget.
        callback: Called with every row when it is recorded.
        clock: Returns wall-clock seconds and processor seconds.

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
        clock: Clock = clock,
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
            space=space,
            goal="maximise",
            seed=c.seed,
            initial=2,
            fit=c.fit,
            optimiser=optimiser,
            restandardise=False,
        )
        search = Maximised(build_acquisition, c.baseline_size)
        stages = [Stage(make_surrogate, c.fit, search)]
        engine = Engine(settings, lambda _: stages, like=self.bounds)
        super().__init__(engine, c.steps, COLUMNS, callback, clock)

    def start(self, X: Tensor | None = None, Y: Tensor | None = None) -> dict[str, Any]:
        """Step 0: evaluate the initial design, build and fit the surrogate.

        Args:
            X: Points to evaluate in place of the design.
            Y: Their values, if they are known.

        Raises:
            StateError: if it was started before.
            InputError: if fewer than two values are finite.
        """
        self._check_not_started()
        if X is None:
            return self._take_step(lambda: self._proposed(self.config.num_initial))
        return self._take_step(lambda: X, Y)

    def preload(self, X: Tensor, Y: Tensor) -> None:
        """Observe data that no step asked for and whose seconds no row counts."""
        self._check_started()
        self.engine.observe(X, Y, None, self._new_row())

    def observations(self) -> tuple[Tensor, Tensor]:
        """X and Y of all evaluations so far, in order, without those that failed."""
        data = self._learner.data
        return data.X, data.Y

    def save(self, path: str | PathLike[str], **facts: Any) -> None:
        """Write the table to ``path`` (CSV), and configuration and environment beside it (JSON).

        Args:
            path: Path of the CSV; the JSON has the same name with another suffix.
            facts: Facts to add to the JSON: problem, surrogate, acquisition.
        """
        about = {**facts, "config": asdict(self.config), "environment": environment()}
        write_table(self.table(), path, about)

    # -- the parts of a step ---------------------------------------------------------------------

    @property
    def _q(self) -> int:
        return self.config.q

    def _evaluate(self, trials: Tensor) -> Tensor:
        """The problem's values, whose noise depends on seed and step alone."""
        number = 2 * (STRIDE * self.config.seed + len(self._rows)) + 1  # proposals have even ones
        with seeded(number, self.bounds.device):
            return self.problem(trials.to(self.bounds))

    def _tell(self, trials: Tensor, values: Tensor, row: TimedRow) -> None:
        good, points = values[:, 0].isfinite(), trials.to(self.bounds)
        row["failed"] = int((~good).sum())
        self._failed = torch.cat([self._failed, points[~good]])
        if good.any():
            self.engine.observe(points[good], values[good], None, row)

    def _score(self, model: StreamingGP, row: TimedRow) -> None:
        points, values = self.observations()
        best = values[:, 0].argmax()
        row["incumbent"] = float(values[best])
        row["simple_regret"] = regret(self.problem, points[best].unsqueeze(0))
        every = self.config.recommend_every
        if every and row["step"] % every == 0:
            with row.timed("recommend_seconds"):
                point = self._recommend(model)
            row["inference_regret"] = regret(self.problem, point)

    # -- pieces ----------------------------------------------------------------------------------

    def _recommend(self, model: StreamingGP) -> Tensor:
        """Maximiser of the posterior mean over the box and the observed points, ``1 x d``."""
        with proposing(self.config.seed, len(self._rows), self.bounds.device):
            X, value = optimize_acqf(
                PosteriorMean(model), self.bounds, q=1, num_restarts=4, raw_samples=128
            )
        known, best = rank_by_mean(
            model, self._learner.data.candidates(), self.config.baseline_size
        )
        return X if float(value) > best else known[:1]


def regret(problem: Problem, X: Tensor) -> float:
    """Maximum of the noiseless function less its value at a point.

    Args:
        problem: The function.
        X: One point, ``1 x d``.

    Returns:
        The regret; NaN for a problem without known optimum or noiseless values.
    """
    if not (hasattr(problem, "optimal_value") and hasattr(problem, "evaluate_true")):
        return math.nan
    return float(problem.optimal_value) - float(problem.evaluate_true(X))


def evaluating(seed: int, number: int, device: torch.device) -> AbstractContextManager[None]:
    """Seed the generators for the noise of a step's evaluations, with an odd number.

    The noise depends on seed and step alone, whatever was drawn to find the points. The arguments
    are those of `proposing`.
    """
    return seeded(2 * (STRIDE * seed + number) + 1, device)
