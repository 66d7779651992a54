"""Bayesian optimisation by a loop that measures itself.

A Sobol design, then at every step: ask (maximise an acquisition function), evaluate, book, score
(the density the surrogate gave the new values before it saw them), observe, fit, record. Surrogates
and acquisition functions come in as callables, so that every family goes through the same loop.
Time is data: the seconds of each part are columns of the result. What an interruption leaves
behind, and how a run goes on from there, is said in `bo_stream.campaign.run`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from os import PathLike
from typing import Any, Protocol, cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import PosteriorMean
from botorch.models.transforms.outcome import Standardize
from botorch.optim.optimize import optimize_acqf
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from bo_stream.campaign.books import Books, OpenStep, check_answer
from bo_stream.campaign.loop_config import FitPolicy, LoopConfig
from bo_stream.campaign.randomness import drawn, seeded
from bo_stream.campaign.records import Row, environment, write_table
from bo_stream.campaign.run import PARTS, Run
from bo_stream.core.streaming import StreamingGP
from bo_stream.errors import InputError

__all__ = ["BOLoop", "FitPolicy", "LoopConfig", "Problem"]


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


_COLUMNS = (
    *("step", "n", "bytes"),
    *(f"{part}_seconds" for part in (*PARTS, "step", "wallclock", "score", "recommend")),
    *("fit_evaluations", "fit_objective", "incumbent", "simple_regret", "inference_regret"),
    *("log_predictive", "failed"),
)
_SAME = 1e-3
"""Points closer than this share of the box, in every coordinate, count as the same."""


class BOLoop(Run):
    """One run of Bayesian optimisation, reproducible by its seed.

    Randomness of a step comes from its seed and number alone and leaves torch's global generator as
    it was. The table has a row for the initial design (step 0) and one per step:

    - ``step``, ``n`` (observations held), ``bytes`` (the surrogate's state);
    - ``fit_seconds``, ``acquisition_seconds``, ``evaluation_seconds``, ``update_seconds``
      (observing and bringing the posterior up to date), their sum ``step_seconds`` and its running
      sum ``wallclock_seconds``; apart from these ``score_seconds`` and ``recommend_seconds``, which
      optimise nothing;
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
        self.problem = problem
        self.make_surrogate = make_surrogate
        self.build_acquisition = build_acquisition
        self.config = config or LoopConfig()
        self.bounds = problem.bounds.to(getattr(torch, self.config.dtype))
        books = Books(self.bounds[:0], self.bounds[:0, :1])
        super().__init__(self.config.steps, books, self.bounds.device, callback)
        self._baseline = self.bounds[:0]

    def start(self, X: Tensor | None = None, Y: Tensor | None = None) -> dict[str, Any]:
        """Step 0: evaluate the initial design (or take data given), build and fit the surrogate.

        Raises:
            StateError: if it was started before. After an interruption, call it without data.
            InputError: if fewer than two values are finite; the next call evaluates points of
                another design, or takes data given, besides what is known already.
        """
        step, (asked, answers) = self._books.open, self._books.paid()
        enough = len(self.observations()[1]) >= 2
        self._not_started(begun=enough and X is not None)
        if step is None or X is not None or (step.answer is not None and not enough):
            opened = self._opening(len(asked), X, Y)
            self._books = replace(self._books, asked=asked, answers=answers, open=opened)
        return self._finish(cast(OpenStep, self._books.open))

    def preload(self, X: Tensor, Y: Tensor) -> None:
        """Observe data that no step asked for, outside of the accounts: all of them or none.

        A step that was interrupted is finished first.
        """
        if self._books.open is not None:
            self.step()
        model, books, baseline = self._started(), self._books, self._baseline
        before = copy.deepcopy(model.state_dict())
        try:
            model.observe(X, Y)
            self._baseline = torch.cat([baseline, X])
            self._books = replace(
                books, asked=torch.cat([books.asked, X]), answers=torch.cat([books.answers, Y])
            )
        except BaseException:
            model.load_state_dict(before)
            self._baseline, self._books = baseline, books
            raise

    def observations(self) -> tuple[Tensor, Tensor]:
        """X and Y of all evaluations so far, in order, those of an interrupted step included.

        Evaluations that failed are left out.
        """
        return _finite(*self._books.paid())

    def save(self, path: str | PathLike[str], **facts: Any) -> None:
        """Write the table to ``path`` (CSV) and how it came about beside it (JSON).

        Args:
            path: Of the CSV; the JSON has the same name but for the suffix.
            facts: Named facts to add to the JSON: problem, surrogate, acquisition.
        """
        about = {**facts, "config": asdict(self.config), "environment": environment()}
        write_table(self.table(), path, about)

    # -- the parts of a step ---------------------------------------------------------------------

    def _opening(self, paid: int, X: Tensor | None, Y: Tensor | None) -> OpenStep:
        """Step 0, of data given or of the design that follows ``paid`` points of earlier ones."""
        c, row = self.config, Row(_COLUMNS)
        if X is None:
            seed = c.seed + 1_000_003 * -(-paid // c.num_initial)
            X = draw_sobol_samples(self.bounds, n=c.num_initial, q=1, seed=seed).squeeze(-2)
        if Y is not None:
            check_answer(Y, len(X), self.bounds.dtype)
        with self._seeded(0):
            return OpenStep(0, X, row, drawn(self._device), Y, baseline=self._baseline)

    def _ask(self, model: StreamingGP, number: int) -> OpenStep:
        c, row = self.config, Row(_COLUMNS)
        with self._seeded(number), row.timed("acquisition_seconds"):
            baseline, best_f = self._ranked(model, self._baseline)
            acqf = self.build_acquisition(model, X_baseline=baseline, best_f=best_f)
            X, _ = optimize_acqf(
                acqf,
                self.bounds,
                q=c.q,
                num_restarts=c.num_restarts,
                raw_samples=c.raw_samples,
                options=dict(c.acqf_options),
            )
            X = self._elsewhere(X)
            return OpenStep(number, X, row, drawn(self._device), baseline=baseline)

    def _evaluate(self, step: OpenStep) -> None:
        """The problem's values; their noise does not depend on what was drawn to find them."""
        with self._seeded(step.number, evaluation=True), step.row.timed("evaluation_seconds"):
            step.answer = self.problem(step.asked)

    def _build(self, step: OpenStep, row: Row) -> StreamingGP:
        X, Y = self.observations()
        if len(Y) < 2:
            raise InputError(
                "two finite values to start with",
                f"{len(Y)} among {len(self._books.paid()[1])}",
                "Call start() or run() again to evaluate other points, or start(X, Y) with data.",
            )
        with row.timed("update_seconds"):
            return self.make_surrogate(X, Y, bounds=self.bounds, outcome_transform=Standardize(m=1))

    def _absorb(self, model: StreamingGP, step: OpenStep, row: Row) -> Tensor:
        c, answers = self.config, cast(Tensor, step.answer)
        X, Y = _finite(step.asked, answers)
        if step.number and len(Y):
            with row.timed("score_seconds"):
                row["log_predictive"] = float(model.log_predictive(X, Y))
            with row.timed("update_seconds"):
                model.observe(X, Y)
        if c.fit.due(step.number, model.refit_due):
            with row.timed("fit_seconds"):
                report = model.fit(c.fit.max_evals if step.number else c.fit.first_max_evals)
            row["fit_evaluations"], row["fit_objective"] = report.evaluations, report.value
        with row.timed("update_seconds"):
            model.process()  # bringing the posterior up to date belongs to the update
        self._accounted(model, step, row, failed=len(answers) - len(Y))
        points, values = self.observations()
        best = values[:, 0].argmax()
        row["incumbent"] = float(values[best])
        row["simple_regret"] = self._regret(points[best].unsqueeze(0))
        baseline = torch.cat([cast(Tensor, step.baseline), X]) if step.number else points
        if c.recommend_every and step.number % c.recommend_every == 0:
            with row.timed("recommend_seconds"):
                point, baseline = self._recommend(model, baseline)
            row["inference_regret"] = self._regret(point)
        self._baseline = baseline  # only read once this step is recorded
        return answers

    # -- pieces ----------------------------------------------------------------------------------

    def _elsewhere(self, X: Tensor) -> Tensor:
        """Points like these, but for those that failed before: a random one for each of them."""
        books = self._books
        failed = books.asked[~books.answers[:, 0].isfinite()]
        if not len(failed):
            return X
        low, high = self.bounds
        near = ((X.unsqueeze(-2) - failed).abs() <= _SAME * (high - low)).all(-1).any(-1)
        return torch.where(near.unsqueeze(-1), low + (high - low) * torch.rand_like(X), X)

    @torch.no_grad()
    def _ranked(self, model: StreamingGP, points: Tensor) -> tuple[Tensor, float]:
        """The points of highest posterior mean, best first, and the best mean."""
        parts = points.split(self.config.baseline_size)
        means = torch.cat([_mean(model, part) for part in parts])
        best = means.argsort(descending=True, stable=True)[: self.config.baseline_size]
        return points[best], float(means[best[0]])

    def _recommend(self, model: StreamingGP, points: Tensor) -> tuple[Tensor, Tensor]:
        """The maximiser of the posterior mean over the box and the points, ``1 x d``, and the
        ranked points.
        """
        X, value = optimize_acqf(
            PosteriorMean(model), self.bounds, q=1, num_restarts=4, raw_samples=128
        )
        ranked, best = self._ranked(model, points)
        return (X if value is not None and float(value) > best else ranked[:1]), ranked

    def _regret(self, X: Tensor) -> float:
        """NaN where the problem does not know its optimum or its noiseless values."""
        if not (hasattr(self.problem, "optimal_value") and hasattr(self.problem, "evaluate_true")):
            return math.nan
        return float(self.problem.optimal_value) - float(self.problem.evaluate_true(X))

    def _seeded(self, step: int, evaluation: bool = False) -> AbstractContextManager[None]:
        number = 2 * (1_000_003 * self.config.seed + step) + evaluation
        return seeded(number, self._device)


def _finite(X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    """Points and values without the evaluations that failed."""
    good = Y[:, 0].isfinite()
    return X[good], Y[good]


def _mean(model: StreamingGP, X: Tensor) -> Tensor:
    """Posterior means ``n`` at ``n x d`` points."""
    return cast(GPyTorchPosterior, model.posterior(X)).mean.squeeze(-1)
