"""A run of another optimiser, measured and judged as a `BOLoop` is."""

from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bo_stream.campaign.proposing.proposals import initial_design
from bo_stream.campaign.randomness import evaluating
from bo_stream.campaign.records import Row, environment, write_table
from bo_stream.campaign.space import Box
from bo_stream.campaign.space.feasible import FeasibleSet
from bo_stream.errors import InputError
from bo_stream.simulation import LoopConfig, Problem
from bo_stream.simulation.bo_loop import COLUMNS, regret
from bo_stream.simulation.run import OPTIMISER, PARTS
from experiments.bayesopt.peers.peer import Peer


class PeerLoop:
    """One run of a peer, reproducible by its seed.

    The table has the columns of `BOLoop`. For the same configuration and problem it begins with the
    same design, and the noise of every evaluation is the same whatever the optimiser.

    - ``acquisition_seconds`` are those of `Peer.ask`;
    - those of `Peer.tell` are ``fit_seconds`` where the peer fits a model there, otherwise
      ``update_seconds``;
    - ``recommend_seconds`` are those of `Peer.recommend`, whose point has the
      ``inference_regret``; they are not part of ``step_seconds``;
    - columns that a peer has no values for are NaN (``bytes``, ``log_predictive``, ``behind``) or
      0.

    ``make_peer`` takes bounds and seed; steps, batches, design, seed and dtype are those of the
    configuration, whose rest is the surrogates'.
    """

    def __init__(
        self, problem: Problem, make_peer: Callable[[Tensor, int], Peer], config: LoopConfig
    ) -> None:
        self.problem, self.config = problem, config
        self.peer = make_peer(problem.bounds, config.seed)
        self._like = problem.bounds.to(getattr(torch, config.dtype))
        self._rows: list[dict[str, Any]] = []

    def run(self) -> pd.DataFrame:
        """All steps, once, and the table."""
        for number in range(self.config.steps + 1):
            self._step(number)
        return self.table()

    def table(self) -> pd.DataFrame:
        """The rows so far."""
        return pd.DataFrame(self._rows)

    def save(self, path: Path, **facts: Any) -> None:
        """Write the table as CSV and how it came about beside it as JSON, these facts included."""
        around = environment()
        around["versions"] |= {name: version(name) for name in self.peer.packages}
        about = {**facts, "config": asdict(self.config), "environment": around}
        write_table(self.table(), path, about)

    def _step(self, number: int) -> None:
        row = Row(COLUMNS)
        with row.timed("acquisition_seconds"):
            X = self.peer.ask(self.config.q) if number else self._design()
        noise = evaluating(self.config.seed, number, self._like.device)
        with noise, row.timed("evaluation_seconds"):
            Y = self.problem(X.to(self._like))
        good = Y[:, 0].isfinite()
        if not number and not good.any():
            raise InputError("a finite value to start with", "none", "Take a larger design.")
        if good.any():
            with row.timed(f"{self.peer.learning}_seconds"):
                self.peer.tell(X[good.to(X.device)], Y[good])
        row["step"], row["n"], row["failed"] = number, len(self.peer.X), int((~good).sum())
        row["step_seconds"] = sum(row[f"{part}_seconds"] for part in PARTS)
        row["cpu_seconds"] = row.spent_on(OPTIMISER)
        before = self._rows[-1]["wallclock_seconds"] if self._rows else 0.0
        row["wallclock_seconds"] = row["step_seconds"] + before
        self._judge(number, row)
        self._rows.append(dict(row))

    def _design(self) -> Tensor:
        """The points that a campaign begins with."""
        low, high = self._like.tolist()
        box = Box({f"x{i}": side for i, side in enumerate(zip(low, high, strict=True))})
        return initial_design(
            FeasibleSet(box), self.config.seed, 0, self.config.num_initial, torch.empty(0)
        )

    def _judge(self, number: int, row: Row) -> None:
        """Fill in incumbent and regrets."""
        X, Y, every = self.peer.X, self.peer.Y, self.config.recommend_every
        best = Y[:, 0].argmax()
        row["incumbent"], row["simple_regret"] = float(Y[best]), self._regret(X[best : best + 1])
        if every and number % every == 0:
            with row.timed("recommend_seconds"):
                point = self.peer.recommend()
            row["inference_regret"] = self._regret(point)

    def _regret(self, X: Tensor) -> float:
        return regret(self.problem, X.to(self._like))
