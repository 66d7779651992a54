"""A campaign of measurements: ask where to measure, and tell the outcomes in any order.

Every trial that was asked for, told or failed is an event in a store. Trials, surrogate and next
proposals follow from the events, so that a killed process loses nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import pandas as pd
import torch

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign import figures
from bo_stream.campaign.callbacks import Callback
from bo_stream.campaign.campaign_state import CampaignState
from bo_stream.campaign.changes import (
    GivenParts,
    continued,
    replayed,
    stored_settings,
)
from bo_stream.campaign.effort import FitPolicy, Optimiser
from bo_stream.campaign.evaluation.runner import run_campaign
from bo_stream.campaign.outcomes.goals import Failures, Goals
from bo_stream.campaign.proposing.proposals import AcquisitionBuilder
from bo_stream.campaign.results import CampaignResults
from bo_stream.campaign.settings import NamedChoice, Noise, Settings
from bo_stream.campaign.space import Box, Space
from bo_stream.campaign.space.feasible import InputConstraint
from bo_stream.campaign.storage.open_store import open_store
from bo_stream.campaign.storage.store import Store
from bo_stream.errors import BoStreamError, StateError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Campaign"]

LATEST = 10
"""Number of trials that a notebook shows."""


class Campaign(CampaignResults):
    """Measurements towards a goal, with trials as rows of pandas frames.

    A campaign whose name is in the store already is continued: its trials, seed and surrogate are
    those in the store, and the space and the goal have to be the same. The budget may be raised.

    Args:
        space: Where to measure: a `Box` of named inputs, or the bounds of one by name, or a `Pool`
            of places. No input has the name of a column of results (``mean``, ``sd``, ``lower``,
            ``upper``, ``gain``, ``feasible``), and no name is that of another outcome's noise
            variances. Letters that look alike are one letter.
        surrogate: Name of a family, a mapping of its name and options, or a callable ``(X, Y, Yvar,
            bounds=..., outcome_transform=...)``. By default the family is chosen by goal, number of
            inputs and budget; without a budget it changes after 200 outcomes.
        acquisition: Name of an acquisition function (`acquisitions.build`, ``logei``,
            ``trust_region``, or ``auto``), a mapping of its name and options, or a callable
            ``(model, *, X_baseline, best_f, X_pending, mc_points)``, which is given those of these
            that it has parameters for. By default it is chosen by goal and surrogate; ``auto``
            chooses between ``qlogei`` and ``thompson`` by the measured seconds of an evaluation and
            of a decision. See `decision`.
        goal: ``maximise`` or ``minimise`` the outcome, or ``learn`` it everywhere: minimise the
            variance integrated over ``targets``. Of several objectives, or of one in another column
            than ``y``: goals by column, ``{"yield": "maximise", "cost": "minimise"}``.
        store: URL of a database (``sqlite:///oven.db``), `Path` of an SQLite file, or a store;
            None: in memory only.
        name: Name of the campaign in its store.
        targets: For ``learn``: a frame of points over which variance is integrated; None: the pool,
            or the whole box.
        budget: Number of trials in all, over all runs of the program: those with an outcome,
            running ones and failed ones. `ask` stops there. None: no limit.
        seed: Seed of everything random; None: a new one, which is kept in the store.
        initial: Number of outcomes from which a surrogate is built. The points proposed until then
            are spread over the space.
        fit: When hyperparameters are fitted. By default when the outcomes have grown by 1.3 (from
            300 outcomes on by 2) and when predictions are worse than they promise; for ``warped``
            when they have grown by 1.03, which is every batch at first.
        noise: ``learned`` (the default), ``none`` for exact outcomes (surrogates ``warped`` and,
            for more than 200 trials, ``trust_region``), or the variance of every outcome's noise.
        optimiser: Effort of maximising acquisition functions over a box.
        outcome: For counts: their column and likelihood, ``{"positive":
            Binomial(trials="examined")}``, or the same as plain data, ``{"column": "positive",
            "likelihood": "binomial", "trials": "examined"}``; also ``Bernoulli()``,
            ``Poisson(exposure=...)`` and ``NegativeBinomial(exposure=...)``. `tell` takes these
            columns in place of ``y``, the surrogate is a `CountGP` over the family, and the goal is
            ``learn`` or ``maximise`` of the prevalence or rate.
        constraints: On inputs: texts such as ``"a + 2*b <= 3"``, or callables from a frame to a
            boolean for each row. Proposals and recommendations fulfil them; outcomes need not. On
            outcomes: texts such as ``"purity >= 0.95"``. Names that are no inputs are those of
            further outcomes, which `tell` takes in columns of their own.
        failures: What trials are that `fail`: ``ignored``, the default (their points are not
            proposed again), or ``infeasible``: a further surrogate learns from the first failure on
            where trials fail, and the acquisition function and `recommend` take its probabilities
            into account.
        reference: Of several objectives: the worst outcomes of interest, ``{"yield": 50, "cost":
            9}``, from which hypervolumes are measured. By default a point beyond the current front.
        callbacks: Hooks.

    Raises:
        InputError: for invalid settings.
        StateError: if the store has a campaign of this name with another space or goal.

    Example:
        >>> from bo_stream import Campaign
        >>> campaign = Campaign({"x": (0.0, 4.0)}, goal="minimise", budget=8, seed=0)
        >>> while campaign.remaining > 0:
        ...     batch = campaign.ask()
        ...     batch["y"] = (batch["x"] - 3.0) ** 2
        ...     campaign.tell(batch)
        >>> bool(abs(campaign.best()["x"] - 3.0) < 0.3)
        True
    """

    def __init__(
        self,
        space: Space | Mapping[str, Any],
        surrogate: NamedChoice | Callable[..., StreamingGP] | None = None,
        acquisition: NamedChoice | AcquisitionBuilder | None = None,
        goal: Goals = "maximise",
        store: str | PathLike[str] | Store | None = None,
        name: str | None = None,
        *,
        targets: pd.DataFrame | None = None,
        budget: int | None = None,
        seed: int | None = None,
        initial: int | None = None,
        fit: FitPolicy | None = None,
        noise: Noise | None = None,
        optimiser: Optimiser | None = None,
        outcome: Mapping[str, Any] | None = None,
        constraints: Sequence[str | InputConstraint] = (),
        failures: Failures | None = None,
        reference: Mapping[str, float] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        space = Box(space) if isinstance(space, Mapping) else space
        options: dict[str, Any] = {
            "surrogate": surrogate,
            "acquisition": acquisition,
            "seed": seed,
            "initial": initial,
            "fit": fit,
            "noise": noise,
            "optimiser": optimiser,
            "outcome": outcome,
            "targets": None if targets is None else space.values(targets).tolist(),
            "constraints": constraints or None,
            "failures": failures,
            "reference": reference,
        }
        settings = Settings.from_arguments(space, goal, budget=budget, **options)
        opened, name, changes = open_store(store), name or "campaign", 0
        stored = stored_settings(opened, name)
        if stored is None:
            settings.check_names()
            try:
                opened.create(name, settings.to_dict())
            except StateError:  # unless another process has created it meanwhile
                stored = stored_settings(opened, name)
                if stored is None:
                    raise
        if stored is not None:
            given = [key for key, value in options.items() if value is not None]
            settings, changes = continued(settings, *stored, name, given), len(stored[1])
        make = surrogate if callable(surrogate) and settings.surrogate is None else None
        build = acquisition if callable(acquisition) and settings.acquisition is None else None
        parts = GivenParts(settings, make, build, constraints)
        self._begin(opened, name, parts, changes, callbacks)

    @classmethod
    def resume(
        cls,
        store: str | PathLike[str] | Store,
        name: str = "campaign",
        *,
        surrogate: NamedChoice | Callable[..., StreamingGP] | None = None,
        acquisition: NamedChoice | AcquisitionBuilder | None = None,
        constraints: Sequence[str | InputConstraint] = (),
        callbacks: Sequence[Callback] = (),
        readonly: bool = False,
    ) -> Self:
        """A campaign from its store, as it was: nothing is fitted again.

        Args:
            store: URL of the database, or `Path` of its file.
            name: Name of the campaign.
            surrogate: The callable that it was created with, if it was one; or a family in place of
                one that this release does not have.
            acquisition: Likewise.
            constraints: The callables among the constraints that it was created with.
            callbacks: Hooks.
            readonly: Whether to look at it only: nothing is written, and whatever would change it
                is refused. A file that may not be written is always opened so.

        Raises:
            StateError: if there is no campaign of this name, or if its settings do not fit this
                release.
        """
        opened = open_store(store, readonly)
        stored = stored_settings(opened, name)
        if stored is None:
            names = ", ".join(map(repr, opened.names())) or "no campaign"
            raise StateError(f"a campaign {name!r}", names, "Correct the name or the URL.")
        campaign = cls.__new__(cls)
        parts = GivenParts(replayed(*stored), surrogate, acquisition, constraints)
        campaign._begin(opened, name, parts, len(stored[1]), callbacks)
        return campaign

    def __repr__(self) -> str:
        budget = "" if self.budget is None else f" of {self.budget}"
        told = self.history.num_told
        inputs = ", ".join(self.space.names)
        return f"<Campaign {self.name!r}: {figures.goal(self)} over {inputs}; {told}{budget} told>"

    def _repr_html_(self) -> str:
        """The campaign in a notebook: its goal, and the latest trials."""
        shown = self.trials().iloc[::-1].head(LATEST).dropna(axis="columns", how="all")
        return f"<p>{escape(repr(self))}</p>{shown.to_html()}"

    def _begin(
        self, store: Store, name: str, given: GivenParts, changes: int, hooks: Sequence[Callback]
    ) -> None:
        s = given.settings
        if (wrong := s.clash) is not None:  # a campaign of an earlier release
            warnings.warn(
                f"Campaign {name!r} has the name {wrong}. What was told there may have been taken "
                "for the other. Choose other names for a new campaign, and tell it the trials of "
                "this one.",
                stacklevel=3,
            )
        s.feasible(given.constraints)  # or refuse
        try:
            given.stages(s)  # or refuse
        except BoStreamError as error:
            if given.surrogate is not None or s.surrogate is None:
                raise
            raise StateError(
                "a stored surrogate that this release can build",
                f"{dict(s.surrogate)} ({error})",
                f"Continue with another one: Campaign.resume(url, {name!r}, surrogate='wiski').",
            ) from error
        like = torch.empty(0, dtype=torch.float64)
        parts = given.stages, like, given.constraints
        super().__init__(CampaignState(store, name, s, changes, *parts), hooks)

    def run(
        self,
        objective: Callable[[pd.Series[Any]], Any],
        budget: int | None = None,
        executor: Executor | None = None,
        q: int | None = None,
        *,
        workers: int | None = None,
        timeout: float | None = None,
        seconds: float | None = None,
    ) -> pd.DataFrame:
        """Ask, evaluate and tell until the budget of trials or of seconds is used up.

        After a crash the same line finishes the job: running trials whose process on this machine
        has died are evaluated first. Trials asked for by hand are left alone, and so are those of
        other machines; give them up with `fail`.

        With workers or an executor, trials are evaluated in parallel: when one returns it is told,
        and the next is asked for with the others pending. A trial fails, with its reason, and the
        run goes on, if the objective raises, returns no finite number or takes longer than
        ``timeout``, or if its worker dies twice (with Dask: twice as often as its setting
        ``allowed-failures`` says). Trials that were enqueued are evaluated before new ones.

        The run ends if the same error is the only result of 8 trials in a row (of 32 with
        ``failures="infeasible"``), and of no fewer than there were outcomes in this run: no further
        trial is started, those in workers are waited for, and unless one of them has an outcome
        the error is raised. The rest of the budget stays. A smaller budget that ends so is a
        warning.

        Args:
            objective: Called with a trial: a Series of its inputs by name (and ``place``, in a
                pool) whose ``name`` is the trial's id. Returns the outcome, or a pair of the
                outcome and its noise variance; for counts, a pair of the count and its trials or
                exposure, or a boolean if that is what they are; for several outcomes, a mapping of
                outcomes by name, or a pair of such mappings, of outcomes and of noise variances.
            budget: Number of trials in all, those of earlier runs, failed ones and those running
                elsewhere included; by default the campaign's budget, which a larger number raises.
                The run also ends when a pool is used up.
            executor: An executor of `concurrent.futures`, left open; for a Dask client,
                ``client.get_executor()``. Dask replaces workers that die; a process pool of the
                standard library breaks.
            q: Without an executor: number of trials asked for at a time, 1 by default. With an
                executor: number of trials kept running, by default the number of processors of this
                machine; give the executor's number of workers, which cannot be read from it.
            workers: Number of local processes to evaluate in; needs the extra ``workers``.
            timeout: Seconds that an evaluation may take from its start, or from its submission if
                the executor does not report starts (Dask's does not). Only ``workers`` can stop an
                evaluation; in an executor it continues to occupy its worker.
            seconds: Seconds of this run after which no further trial is started. Those started
                before are waited for.

        Returns:
            All trials, as `trials` does. Trials interrupted with the run stay ``running``.

        Raises:
            InputError: for invalid arguments.
            StateError: if the executor is broken, if all its workers hang, or if trials always
                fail with the same error.
            ImportError: for ``workers`` without loky.
        """
        run_campaign(self, objective, budget, executor, q, workers, timeout, seconds)
        return self.trials()

    def plot(self, title: str | None = None, optimum: float | None = None) -> Figure:
        """A picture of all outcomes and the best so far, or of the front of several objectives.

        Args:
            title: Label of the outcome.
            optimum: The best possible outcome, if known.

        Returns:
            A figure of matplotlib, which notebooks show; see its ``savefig``.

        Raises:
            StateError: before the first outcome.
            ImportError: without matplotlib.
        """
        if len(self._outcomes.goals) > 1:
            return figures.front(self)
        usual = self.settings.column if self.counts is None else self.counts.label
        return figures.outcomes(self, title or usual, optimum)
