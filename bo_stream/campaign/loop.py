"""Bayesian optimisation by a loop that measures itself.

A Sobol design, then at every step: ask (maximise an acquisition function), evaluate, score (the
density the surrogate gave the new values before it saw them), observe, fit, record. Surrogates and
acquisition functions come in as callables, so that every family goes through the same loop. Time is
data: the seconds of each part are columns of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from os import PathLike
from typing import Any, Protocol, cast

import pandas as pd
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import PosteriorMean
from botorch.models.transforms.outcome import Standardize
from botorch.optim.optimize import optimize_acqf
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from bo_stream.campaign.loop_config import FitPolicy, LoopConfig
from bo_stream.campaign.records import Row, environment, write_table
from bo_stream.core.streaming import StreamingGP
from bo_stream.errors import StateError

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


_PARTS = ("fit", "acquisition", "evaluation", "update")
_COLUMNS = (
    *("step", "n", "bytes"),
    *(f"{part}_seconds" for part in (*_PARTS, "step", "wallclock", "score", "recommend")),
    *("fit_evaluations", "fit_objective", "incumbent", "simple_regret", "inference_regret"),
    "log_predictive",
)


class BOLoop:
    """One run of Bayesian optimisation, reproducible by its seed.

    Randomness of a step comes from its seed and number alone and leaves torch's global generator as
    it was. The table has a row for the initial design (step 0) and one per step:

    - ``step``, ``n`` (observations), ``bytes`` (the surrogate's state);
    - ``fit_seconds``, ``acquisition_seconds``, ``evaluation_seconds``, ``update_seconds``
      (observing and bringing the posterior up to date), their sum ``step_seconds`` and its running
      sum ``wallclock_seconds``; apart from these ``score_seconds`` and ``recommend_seconds``, which
      optimise nothing;
    - ``fit_evaluations`` and ``fit_objective``;
    - ``incumbent``: best noisy value; ``simple_regret``: of the point it was seen at;
      ``inference_regret``: of the maximiser of the posterior mean. Regrets are noiseless;
    - ``log_predictive``: log density of the batch before it was absorbed.

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
        self.callback = callback
        self.bounds = problem.bounds.to(getattr(torch, self.config.dtype))
        self.model: StreamingGP | None = None
        self.rows: list[dict[str, Any]] = []
        self._baseline = self.bounds[:0]
        self._best: tuple[float, Tensor] | None = None

    def run(self) -> pd.DataFrame:
        """Start if not started, take the steps that are left, return the table."""
        if not self.rows:
            self.start()
        while self.rows[-1]["step"] < self.config.steps:
            self.step()
        return self.table()

    def start(self, X: Tensor | None = None, Y: Tensor | None = None) -> dict[str, Any]:
        """Step 0: evaluate the initial design (or take data given), build and fit the surrogate."""
        c, row = self.config, Row(_COLUMNS)
        with self._seeded(0):
            if X is None:
                X = draw_sobol_samples(self.bounds, n=c.num_initial, q=1, seed=c.seed).squeeze(-2)
            Y = self._evaluate(row, 0, X) if Y is None else Y
            with row.timed("update_seconds"):
                self.model = self.make_surrogate(
                    X, Y, bounds=self.bounds, outcome_transform=Standardize(m=1)
                )
            return self._fit_and_record(row, 0, X, Y)

    def step(self) -> dict[str, Any]:
        """One step; returns its row."""
        model = self._started()
        number, row = self.rows[-1]["step"] + 1, Row(_COLUMNS)
        with self._seeded(number):
            with row.timed("acquisition_seconds"):
                X = self._ask(model)
            Y = self._evaluate(row, number, X)
            with row.timed("score_seconds"):
                row["log_predictive"] = float(model.log_predictive(X, Y))
            with row.timed("update_seconds"):
                model.observe(X, Y)
            return self._fit_and_record(row, number, X, Y)

    def preload(self, X: Tensor, Y: Tensor) -> None:
        """Observe data that no step asked for, outside of the accounts."""
        self._started().observe(X, Y)
        self._note(X, Y)

    def table(self) -> pd.DataFrame:
        """The rows so far."""
        return pd.DataFrame(self.rows)

    def save(self, path: str | PathLike[str], **facts: Any) -> None:
        """Write the table to ``path`` (CSV) and how it came about beside it (JSON).

        Args:
            path: Of the CSV; the JSON has the same name but for the suffix.
            facts: Named facts to add to the JSON: problem, surrogate, acquisition.
        """
        about = {**facts, "config": asdict(self.config), "environment": environment()}
        write_table(self.table(), path, about)

    # -- pieces ----------------------------------------------------------------------------------

    def _ask(self, model: StreamingGP) -> Tensor:
        c = self.config
        best_f = self._refresh_baseline(model)
        acqf = self.build_acquisition(model, X_baseline=self._baseline, best_f=best_f)
        X, _ = optimize_acqf(
            acqf,
            self.bounds,
            q=c.q,
            num_restarts=c.num_restarts,
            raw_samples=c.raw_samples,
            options=dict(c.acqf_options),
        )
        return X

    def _refresh_baseline(self, model: StreamingGP) -> float:
        """Keep the points of highest posterior mean; returns that mean."""
        with torch.no_grad():
            parts = self._baseline.split(self.config.baseline_size)
            means = torch.cat([_mean(model, part) for part in parts])
        best = means.argsort(descending=True, stable=True)[: self.config.baseline_size]
        self._baseline = self._baseline[best]
        return float(means[best[0]])

    def _recommend(self, model: StreamingGP) -> Tensor:
        """The maximiser of the posterior mean, over the box and the observed points, ``1 x d``."""
        X, value = optimize_acqf(
            PosteriorMean(model), self.bounds, q=1, num_restarts=4, raw_samples=128
        )
        best = self._refresh_baseline(model)
        return X if value is not None and float(value) > best else self._baseline[:1]

    def _evaluate(self, row: Row, step: int, X: Tensor) -> Tensor:
        """The problem's values; their noise does not depend on what was drawn to find X."""
        with self._seeded(step, evaluation=True), row.timed("evaluation_seconds"):
            return self.problem(X)

    def _fit_and_record(self, row: Row, step: int, X: Tensor, Y: Tensor) -> dict[str, Any]:
        """Fit if it is due, bring the posterior up to date within the accounts, write the row."""
        policy, model = self.config.fit, self._started()
        if policy.due(step, model.refit_due):
            with row.timed("fit_seconds"):
                report = model.fit(policy.max_evals if step else policy.first_max_evals)
            row["fit_evaluations"], row["fit_objective"] = report.evaluations, report.value
        with row.timed("update_seconds"):
            model.process()
        return self._record(row, step, X, Y)

    def _note(self, X: Tensor, Y: Tensor) -> None:
        """Remember the best noisy value and the candidates for the baseline."""
        value, index = Y[:, 0].max(0)
        if self._best is None or float(value) > self._best[0]:
            self._best = float(value), X[index]
        self._baseline = torch.cat([self._baseline, X])

    def _record(self, row: Row, step: int, X: Tensor, Y: Tensor) -> dict[str, Any]:
        model, c = self._started(), self.config
        self._note(X, Y)
        last = self.rows[-1]["wallclock_seconds"] if self.rows else 0.0
        row["step"], row["n"], row["bytes"] = step, model.num_observed, model.state_bytes
        row["step_seconds"] = sum(row[f"{part}_seconds"] for part in _PARTS)
        row["wallclock_seconds"] = last + row["step_seconds"]
        if self._best is not None:
            row["incumbent"] = self._best[0]
            row["simple_regret"] = self._regret(self._best[1].unsqueeze(0))
        if c.recommend_every and step % c.recommend_every == 0:
            with row.timed("recommend_seconds"):
                point = self._recommend(model)
            row["inference_regret"] = self._regret(point)
        self.rows.append(dict(row))
        if self.callback is not None:
            self.callback(self.rows[-1])
        return self.rows[-1]

    def _regret(self, X: Tensor) -> float:
        return float(self.problem.optimal_value) - float(self.problem.evaluate_true(X))

    def _started(self) -> StreamingGP:
        if self.model is None:
            raise StateError("a loop that was started", "none", "Call start() or run() first.")
        return self.model

    def _seeded(self, step: int, evaluation: bool = False) -> AbstractContextManager[None]:
        number = 2 * (1_000_003 * self.config.seed + step) + evaluation
        return _seeded(number, self.bounds.device)


def _mean(model: StreamingGP, X: Tensor) -> Tensor:
    """Posterior means ``n`` at ``n x d`` points."""
    return cast(GPyTorchPosterior, model.posterior(X)).mean.squeeze(-1)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's global generators seeded inside, as they were outside."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
