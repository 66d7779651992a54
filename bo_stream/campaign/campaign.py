"""A campaign of measurements: ask where to measure, tell what came out, in any order.

Everything that was asked, told or failed is an event in a store, and the campaign is what follows
from the events: its trials, its surrogate, its next question. So a process that dies loses nothing,
and one that comes back goes on as if it had never been away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.ask_tell import AskTell
from bo_stream.campaign.callbacks import Callback
from bo_stream.campaign.evaluation.runner import evaluate
from bo_stream.campaign.fit_policy import FitPolicy
from bo_stream.campaign.proposals import Build, Optimiser, Search
from bo_stream.campaign.settings import (
    SCHEDULE,
    Goal,
    Named,
    Settings,
)
from bo_stream.campaign.space import Space
from bo_stream.campaign.storage.open_store import opened
from bo_stream.campaign.storage.store import Store
from bo_stream.errors import StateError, UnsupportedError
from bo_stream.scores import marginals

__all__ = ["Campaign"]


class Campaign(AskTell):
    """Measurements towards a goal, one row of pandas a trial.

    Args:
        space: Where it may measure: a `Box` of named inputs or a `Pool` of places.
        surrogate: Name of a family, a mapping of its name and options, or a callable ``(X, Y, Yvar,
            bounds=..., outcome_transform=...)``; left out, the family is chosen by the number of
            inputs and the budget.
        acquisition: Likewise, by name (`acquisitions.NAMES`) or a callable ``(model, *, X_baseline,
            best_f, X_pending, mc_points)`` that gets those of them it has parameters for; left out,
            it is chosen by the goal.
        goal: ``maximise`` or ``minimise`` the outcome, or ``learn`` it everywhere: the variance
            integrated over ``targets``.
        store: URL of a database (``sqlite:///oven.db``), or a store; None: in memory only.
        name: Of the campaign in its store. One that is there already, on the same space, goes on.
        targets: For ``learn``: a frame of places over which variance is integrated; None: the pool,
            or the whole box.
        budget: About how many measurements there will be, for choosing defaults.
        seed: Of all that is drawn; None: a new one, kept in the store.
        initial: Outcomes to wait for before there is a surrogate; the points asked for until then
            are spread over the space.
        fit: When hyperparameters are fitted.
        optimiser: How hard acquisition functions are maximised over a box.
        callbacks: Hooks.

    Raises:
        InputError: for settings that cannot be.
        StateError: if the store has a campaign of this name on another space.

    Example:
        >>> from bo_stream import Box, Campaign
        >>> campaign = Campaign(Box({"x": (0.0, 4.0)}), goal="minimise", seed=0)
        >>> for _ in range(8):
        ...     batch = campaign.ask()
        ...     batch["y"] = (batch["x"] - 3.0) ** 2
        ...     campaign.tell(batch)
        >>> bool(abs(campaign.best()["x"] - 3.0) < 0.3)
        True
    """

    def __init__(
        self,
        space: Space,
        surrogate: Named | Callable[..., StreamingGP] | None = None,
        acquisition: Named | Build | None = None,
        goal: Goal = "maximise",
        store: str | Store | None = None,
        name: str | None = None,
        *,
        targets: pd.DataFrame | None = None,
        budget: int | None = None,
        seed: int | None = None,
        initial: int | None = None,
        fit: FitPolicy = SCHEDULE,
        optimiser: Optimiser | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        places = None if targets is None else space.values(targets).tolist()
        said = (surrogate, acquisition, budget, seed, initial, fit, optimiser, places)
        settings, make, build = Settings.chosen(space, goal, *said)
        found, name = opened(store), name or "campaign"
        before = found.settings(name)
        if before is None:
            try:
                found.create(name, settings.described())
            except StateError:  # unless another process has begun it meanwhile
                before = found.settings(name)
                if before is None:
                    raise
        if before is not None:
            settings = settings.going_on(Settings.read(before), name)
        self._begin(found, name, settings, make, build, callbacks)

    @classmethod
    def resume(
        cls,
        store: str | Store,
        name: str = "campaign",
        *,
        surrogate: Callable[..., StreamingGP] | None = None,
        acquisition: Build | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """A campaign from its store, as it was: nothing is fitted again.

        Args:
            store: URL of the database.
            name: Of the campaign.
            surrogate: The callable it was begun with, if that was one.
            acquisition: Likewise.
            callbacks: Hooks.

        Raises:
            StateError: if there is none of this name, or one of another version.
        """
        found = opened(store)
        settings = found.settings(name)
        if settings is None:
            there = ", ".join(map(repr, found.names())) or "no campaign"
            raise StateError(f"a campaign {name!r}", there, "Correct the name or the URL.")
        campaign, read = cls.__new__(cls), Settings.read(settings)
        campaign._begin(found, name, read, surrogate, acquisition, callbacks)
        return campaign

    def _begin(
        self,
        store: Store,
        name: str,
        settings: Settings,
        make: Callable[..., StreamingGP] | None,
        build: Build | None,
        callbacks: Sequence[Callback],
    ) -> None:
        s, space = settings, settings.space
        targets = None if s.targets is None else space.encoded(np.array(s.targets))
        search = Search(space, s.build_acquisition(build), s.optimiser, targets)
        like = torch.empty(0, dtype=torch.float64)
        self._start(store, name, s, s.make_surrogate(make), search, callbacks, like)

    def run(
        self,
        objective: Callable[[pd.Series[Any]], Any],
        budget: int,
        executor: Executor | None = None,
        q: int | None = None,
        *,
        workers: int | None = None,
        timeout: float | None = None,
    ) -> pd.DataFrame:
        """Ask, evaluate and tell until ``budget`` trials are finished.

        After a crash the same line finishes the job: trials left by a run of this machine whose
        process has died are evaluated first. Those asked for by hand are left alone, and so are
        those of another machine, which `fail` gives up.

        With workers, trials are evaluated side by side: as one returns it is told, and the next is
        asked for with the rest pending. A trial fails, with its reason, and the run goes on, when
        the objective raises, returns no finite number, takes longer than ``timeout``, or when its
        worker has died twice (with Dask: twice as often as its setting ``allowed-failures`` says).

        Args:
            objective: Gets a trial as a Series, by the names of its inputs (and ``place``, in a
                pool); its ``name`` is the trial's id. Returns the outcome, or a pair of the outcome
                and its noise variance.
            budget: Trials told or failed in all, those of earlier runs counted; a pool that is used
                up ends a run before.
            executor: Of `concurrent.futures`, left open; of a Dask client,
                ``client.get_executor()``. Dask replaces workers that die; a process pool of the
                standard library does not, and breaks.
            q: In this process, how many trials are asked for at a time, 1 if left out. With an
                executor, how many are kept running: its number of workers, which it cannot be asked
                for; if left out, the number of processors of this machine.
            workers: Evaluate in as many local processes; needs the extra ``workers``.
            timeout: Seconds that an evaluation may take, from when it begins. An executor that does
                not tell when that is (Dask's does not) gets them from when it was handed the trial.
                It cannot stop an evaluation either, which goes on occupying its worker; ``workers``
                stops the process.

        Returns:
            All trials, as `trials` does. What is left of them if the run is interrupted stays
            ``running``.

        Raises:
            InputError: for arguments that cannot be.
            StateError: if the executor is broken, or all its workers hang.
            ImportError: for ``workers`` without loky.
        """
        evaluate(self, objective, budget, executor, q, workers, timeout)
        return self.trials()

    # -- what is known ---------------------------------------------------------------------------

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate, of outcomes to be maximised, over points as the space encodes them."""
        return self._books.learner.model

    @property
    def behind(self) -> bool:
        """Whether predictions have fallen behind what they themselves promise."""
        return self._books.learner.surprise.behind

    def observations(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y (to be maximised) and Yvar of all outcomes, in the order they were told."""
        self._books.sync(self.row)
        seen = self._books.observed
        return seen.X, seen.Y, seen.Yvar

    def best(self) -> pd.Series[Any]:
        """The best outcome told so far, its inputs and its trial's id (the name).

        Raises:
            StateError: before anything was told.
            UnsupportedError: for a campaign whose goal is to learn.
        """
        if self.goal == "learn":
            raise UnsupportedError(
                "a goal of maximising or minimising", "one of learning", "Use predict(frame)."
            )
        told = self.trials().query("status == 'told'")
        if not len(told):
            raise StateError("outcomes", "none yet", "Tell some first.")
        frame = told.drop(columns=["status", "ask", "reason"])
        return frame.iloc[int((self.settings.sign * frame["y"]).argmax())]

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """What is expected at some places: ``mean`` and ``sd`` of the noiseless outcome.

        Args:
            frame: Inputs in the user's units.

        Raises:
            StateError: before there are enough outcomes for a surrogate.
            InputError, BoundsError: on places that do not fit.
        """
        values = self.space.values(frame)
        self._books.sync(self.row)
        if self.model is None:
            self.update()
        if self.model is None:
            raise StateError(
                f"{self.settings.initial} outcomes, to build a surrogate from",
                f"{self._books.ledger.told}",
                "Tell more first.",
            )
        mean, variance = marginals(self.model, self.space.encoded(values).to(self._like))
        said = {
            "mean": self.settings.sign * mean.numpy(),
            "sd": variance.clamp_min(0).sqrt().numpy(),
        }
        return pd.DataFrame(said, frame.index)
