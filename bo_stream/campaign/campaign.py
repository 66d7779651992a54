"""A campaign of measurements: ask where to measure, and tell the outcomes in any order.

Every trial that was asked for, told or failed is an event in a store. Trials, surrogate and next
proposals follow from the events, so that a killed process loses nothing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property, partial
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self

import pandas as pd

from bo_stream.campaign import figures, found
from bo_stream.campaign.constraints import InputConstraint
from bo_stream.campaign.effort import FitPolicy, Optimiser
from bo_stream.campaign.frames import (
    far_outcomes,
    find_trials,
    inputs_frame,
    read_amended,
    read_new_trials,
    read_told,
    trials_frame,
)
from bo_stream.campaign.history import (
    ENQUEUED,
    Decision,
    Event,
    Trial,
    TrialHistory,
    asked_event,
    changed_ids,
)
from bo_stream.campaign.ledger import Ledger
from bo_stream.campaign.outcomes.outcomes import Failures, Goals
from bo_stream.campaign.run import run_campaign
from bo_stream.campaign.settings import (
    Choices,
    NamedChoice,
    Noise,
    Settings,
    changed,
    check_continued,
    stored_settings,
    widened,
)
from bo_stream.campaign.space import Box, Space
from bo_stream.campaign.storage.open_store import open_store
from bo_stream.campaign.storage.store import Store
from bo_stream.errors import BoStreamError, BudgetError, InputError, StateError, whole_number

if TYPE_CHECKING:
    from botorch.models.model import Model
    from matplotlib.figure import Figure

    from acquisitions.maximised import AcquisitionBuilder
    from bo_stream.base.streaming_gp import StreamingGP
    from bo_stream.campaign.campaign_state import CampaignState

__all__ = ["Callback", "Campaign"]

LATEST = 10
"""Number of trials that a notebook shows."""


class Callback:
    """Three hooks that a campaign calls after its store was updated. Override those you need.

    An exception in a hook reaches the caller and leaves the campaign consistent.
    """

    def after_ask(self, campaign: Campaign, frame: pd.DataFrame) -> None:
        """Called after trials were proposed, with the frame that `ask` returns."""

    def after_tell(self, campaign: Campaign, frame: pd.DataFrame) -> None:
        """Called after outcomes were told or trials failed, with these trials as in `trials`."""

    def at_end(self, campaign: Campaign) -> None:
        """Called when `run` has used up its budget, or was interrupted."""


class Campaign:
    """Measurements towards a goal, with trials as rows of pandas frames.

    A campaign whose name is in the store already is continued: its trials, seed and surrogate are
    those in the store, and the space and the goal have to be the same. The budget may be raised.

    Args:
        space: Where to measure: a `Box` of named inputs, or the bounds of one by name, or a `Pool`
            of places. No input has the name of a column of results (``mean``, ``sd``, ``lower``,
            ``upper``, ``gain``, ``feasible``), and no name is that of another outcome's noise
            variances. Letters that look alike are one letter.
        surrogate: Name of a family, a mapping of its name and options, or a callable ``(X, Y, Yvar,
            bounds=..., outcome_transform=...)``, such as a family or any BoTorch model of one
            output (`SingleTaskGP`), which is refitted. By default the family is chosen by goal,
            number of inputs and budget; without a budget it changes after 200 outcomes.
        acquisition: Name of an acquisition function (`acquisitions.build`, ``logei``,
            ``trust_region``) or of what was registered (`acquisitions.register`), a
            mapping of its name and options, or a callable
            ``(model, *, X_baseline, best_f, X_pending, mc_points)``, which is given those of these
            that it has parameters for. By default it is chosen by goal and surrogate. See
            `decision`.
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
        surrogate: NamedChoice | Callable[..., Model] | None = None,
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
        if not isinstance(space, Space):
            expected = "a Box, the bounds of one by name, or a Pool"
            raise InputError(expected, repr(space), "For example Box({'x': (0.0, 1.0)}).")
        if not isinstance(callbacks, Iterable):
            raise InputError("a list of callbacks", repr(callbacks), "Give [callback].")
        choices = Choices.read(
            {
                "goal": goal,
                "surrogate": surrogate,
                "acquisition": acquisition,
                "targets": None if targets is None else space.values(targets).tolist(),
                "budget": budget,
                "seed": seed,
                "initial": initial,
                "fit": fit,
                "noise": noise,
                "optimiser": optimiser,
                "outcome": outcome,
                "constraints": constraints,
                "failures": failures,
                "reference": reference,
            }
        )
        settings = Settings.of(space, choices)
        opened, name = open_store(store), name or "campaign"
        stored = stored_settings(opened, name)
        named = settings.surrogate, settings.acquisition
        if stored is None or named != (stored.surrogate, stored.acquisition):
            _check_decisions(settings, surrogate, acquisition, constraints, settings)
        if stored is None:
            settings.check_names()
            try:
                opened.create(name, settings.to_dict())
            except StateError:  # unless another process has created it meanwhile
                stored = stored_settings(opened, name)
                if stored is None:
                    raise
        ledger = Ledger(opened, name, stored or settings)
        if stored is not None:
            about = settings, stored, ledger.settings, name, choices
            ledger.budget = check_continued(*about)
        make = surrogate if callable(surrogate) and ledger.settings.surrogate is None else None
        build = acquisition if callable(acquisition) else None
        build = build if ledger.settings.acquisition is None else None
        self._begin(ledger, make, build, constraints, callbacks)

    @classmethod
    def resume(
        cls,
        store: str | PathLike[str] | Store,
        name: str = "campaign",
        *,
        surrogate: NamedChoice | Callable[..., Model] | None = None,
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
        campaign, ledger = cls.__new__(cls), Ledger(opened, name, stored)
        campaign._begin(ledger, surrogate, acquisition, constraints, callbacks)
        return campaign

    def __repr__(self) -> str:
        told = self.ledger.refresh().num_told
        budget = "" if self.budget is None else f" of {self.budget}"
        about = f"{figures.goal(self.settings)} over {', '.join(self.space.names)}"
        return f"<Campaign {self.ledger.name!r}: {about}; {told}{budget} told>"

    def _repr_html_(self) -> str:
        """The campaign in a notebook: its goal, and the latest trials."""
        shown = self.trials().iloc[::-1].head(LATEST).dropna(axis="columns", how="all")
        return f"<p>{escape(repr(self))}</p>{shown.to_html()}"

    def _begin(
        self,
        ledger: Ledger,
        surrogate: NamedChoice | Callable[..., Model] | None,
        acquisition: NamedChoice | AcquisitionBuilder | None,
        constraints: Sequence[Any],
        callbacks: Sequence[Callback],
    ) -> None:
        begun = ledger.settings
        try:
            begun.check_names()
        except InputError as error:  # a campaign of an earlier release
            warnings.warn(
                f"Campaign {ledger.name!r}: {error} What was told there may have been taken for "
                "the other. Choose other names for a new campaign, and tell it the trials of this "
                "one.",
                stacklevel=3,
            )
        begun.feasible(constraints)  # or refuse
        self.ledger, self._callbacks = ledger, tuple(callbacks)
        self._begun = begun, surrogate, acquisition, constraints
        kept = begun.surrogate, begun.acquisition, *begun.constraints
        if None in kept or surrogate is not None or acquisition is not None:
            self.state.sync()  # or refuse what no store can hold

    @cached_property
    def state(self) -> CampaignState:
        """The surrogates and what chooses trials, which are built when they are first needed."""
        from bo_stream.campaign.campaign_state import CampaignState  # not at the top: torch
        from bo_stream.campaign.engine import Engine, stages_of

        ledger, stages = self.ledger, partial(stages_of, *self._begun)
        try:
            engine = Engine(self.settings, stages, self._begun[-1], renews=ledger.store.durable)
        except BoStreamError as error:
            if self._begun[1] is not None or self.settings.surrogate is None:
                raise
            raise StateError(
                "a stored surrogate and acquisition function that this program can build",
                f"{self.settings.surrogate} and {self.settings.acquisition} ({error})",
                "Register your own first, or continue with others: "
                f"Campaign.resume(url, {ledger.name!r}, surrogate='wiski', acquisition='qlogei').",
            ) from error
        return CampaignState(ledger, engine).sync()

    @property
    def settings(self) -> Settings:
        """The current settings."""
        return self.ledger.settings

    @property
    def space(self) -> Space:
        """Where the campaign may measure."""
        return self.settings.space

    @property
    def budget(self) -> int | None:
        """Number of trials in all that this process keeps to; None: no limit."""
        return self.ledger.budget

    @budget.setter
    def budget(self, trials: int | None) -> None:
        self.ledger.budget = trials

    @property
    def remaining(self) -> float:
        """Number of trials left in the budget; infinite without a budget.

        All trials count: those with an outcome, running ones and failed ones.
        """
        history = self.ledger.refresh()  # which may change the budget
        return _left(self.budget, history)

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate of outcomes to be maximised, over inputs as the space encodes them.

        Of counts it is a `CountGP`, of several outcomes a model list of BoTorch with an output for
        each, of which larger ones are better. None before it is built.
        """
        return self.state.engine.model

    @property
    def decision(self) -> Decision:
        """The acquisition function of the latest trials, and why it was chosen."""
        return self.ledger.refresh().decision or self.ledger.current.usual_decision

    # -- ask and tell ----------------------------------------------------------------------------

    def ask(self, q: int = 1, *, by: str | None = None, budget: int | None = None) -> pd.DataFrame:
        """Propose the next trials. They are in the store, as running trials, on return.

        Trials that were enqueued come first. Where outcomes are exact (``noise="none"``), no
        setting is proposed twice while there are others.

        Cost: maximising the acquisition function, and a fit where the schedule plans one.

        Args:
            q: Number of trials. The last batch of a budget may be smaller.
            by: Identifier of the program that evaluates them.
            budget: Number of trials in all, in place of the campaign's budget. It is kept to
                exactly, whatever other processes ask for.

        Returns:
            Inputs in the user's units, with the place in a pool; the index is the trial's id.

        Raises:
            InputError: for an invalid q, or if a pool has fewer places left.
            BudgetError: if the budget is used up.
        """
        q, ids = whole_number("q", q, 1), None
        while ids is None:
            ids = self._propose(q, by, budget)
        return self._asked(ids)

    def enqueue(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add running trials of one's own choice.

        They are the next ones that `ask` returns and `run` evaluates, unless they are told before.

        Args:
            frame: Inputs in the user's units; in a pool, alternatively a column ``place``.

        Returns:
            As `ask`.

        Raises:
            InputError, BoundsError: for an invalid frame.
        """

        def enqueued(history: TrialHistory) -> Event:
            trials = read_new_trials(frame, self.space, history)
            return asked_event(trials, ENQUEUED, {"taken": 0})

        event = self._record(enqueued)
        return self._asked([row[0] for row in event["trials"]])

    def tell(self, frame: pd.DataFrame) -> None:
        """Record outcomes of trials, of part of a batch, or of data that were not asked for.

        They are in the store, durably, on return. An outcome that is told twice is recorded once,
        if its row has the trial's id or a key. A warning names outcomes that are hundreds of
        interquartile ranges away from the others.

        Args:
            frame: A column ``y``, and a column ``yvar`` (noise variance of each outcome) for all
                outcomes of a campaign or for none; for counts, their columns instead (rows without
                a count, and of 0 of 0, are left out with a warning). For outcomes
                of other names, these columns, and ``yield_var`` for the variances of ``yield``; of
                several, some may be told later: a trial is running until it has all. Rows of
                trials have the trial's id in the index, as returned by `ask`, or in a column
                ``trial``; other rows have the inputs. An index without the name ``trial`` is read
                as ids if it is no plain range, and if inputs in its rows, where there are some, are
                those of the trials. Inputs in rows of trials say what was done; they may differ
                from those asked for by up to a tenth of their range. A column
                ``key`` names measurements that were not asked for, and a column ``note`` has notes.

        Raises:
            InputError, BoundsError, NoiseError: for an invalid frame.
            StateError: for an outcome that contradicts one told before; `amend` corrects it.
        """

        def told(history: TrialHistory) -> Event | None:
            return read_told(frame, self.space, self.settings.outcomes, history)

        ids = changed_ids(self._record(told))
        if far := far_outcomes(self.ledger.history, self.settings.outcomes, ids):
            warnings.warn(
                f"The outcomes of trials {', '.join(map(str, far))} are hundreds of interquartile "
                "ranges away from the others. Mistakes are corrected by amend() or withdraw().",
                stacklevel=2,
            )

    def fail(self, ids: Any, reason: str) -> None:
        """Give up trials. Their points are not proposed again.

        Their outcomes may still be told later.

        Args:
            ids: One trial id or several.
            reason: Why they gave no outcome.

        Raises:
            InputError: for unknown ids.
            StateError: for trials that have an outcome or were withdrawn.
        """
        self._end(ids, reason, "failed", ("told", "withdrawn"))

    def amend(self, frame: pd.DataFrame) -> None:
        """Correct outcomes that were told. The old ones are kept in the store.

        The surrogate follows: it has learned from the corrected outcomes only, and keeps its
        hyperparameters until the next fit. A withdrawn trial that is amended is told again.

        Args:
            frame: The columns of the outcome that are to be corrected (``y``, ``yvar``, or those of
                counts or of outcomes with names), with the trial's id in the index or in a column
                ``trial``. A column ``note`` replaces notes.

        Raises:
            InputError, NoiseError: for an invalid frame.
            StateError: for trials without an outcome.
        """

        def amended(history: TrialHistory) -> Event | None:
            return read_amended(frame, self.space, self.settings.outcomes, history)

        self._record(amended)

    def withdraw(self, ids: Any, reason: str) -> None:
        """Remove trials from what is learned.

        They stay in the store and in `trials`, with the status ``withdrawn`` and the reason, and
        count in the budget. Their place in a pool may be measured again. Trials without an outcome
        may be withdrawn, too. `amend` takes a trial back.

        Args:
            ids: One trial id or several.
            reason: Why nothing is to be learned from them.

        Raises:
            InputError: for unknown ids.
        """
        self._end(ids, reason, "withdrawn")

    # -- settings that change --------------------------------------------------------------------

    def widen(self, bounds: Mapping[str, tuple[float, float]]) -> None:
        """Widen the bounds of some inputs. The surrogate is built anew over the wider box.

        Args:
            bounds: New lower and upper bounds by the name of the input; they contain the old ones.

        Raises:
            InputError, BoundsError: for unknown inputs or invalid bounds.
            UnsupportedError: in a pool.
        """
        self._change(lambda _: widened(self.settings, bounds))

    def change(
        self,
        *,
        surrogate: NamedChoice | None = None,
        acquisition: NamedChoice | None = None,
        budget: int | None = None,
        fit: FitPolicy | None = None,
        failures: Failures | None = None,
    ) -> None:
        """Change settings from now on, in all processes.

        Another surrogate is built from all outcomes. An acquisition function and a schedule of fits
        that were chosen for the surrogate of before are chosen again.

        Args:
            surrogate: Name of a family, or a mapping of its name and options.
            acquisition: Name of an acquisition function, or a mapping of its name and options.
            budget: Number of trials in all, those of before included.
            fit: When hyperparameters are fitted.
            failures: What failed trials are, those of before included.

        Raises:
            InputError: for invalid settings, or if none is given.
        """
        new = {
            "surrogate": surrogate,
            "acquisition": acquisition,
            "budget": budget,
            "fit": fit,
            "failures": failures,
        }
        self._change(lambda history: changed(self.settings, len(history.trials), new))

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
        ``timeout``, or if its worker dies twice (with Dask: more often than its setting
        ``allowed-failures`` says). Trials that were enqueued are evaluated before new ones.

        The run ends if 8 trials in a row (32 with ``failures="infeasible"``), and at least as many
        as had outcomes in this run, fail with the same error. No further trial is started, and
        those in workers are waited for. The error is raised unless one of these has an outcome, and
        the rest of the budget is left. If a smaller budget ends so, there is a warning instead.

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

        def ended() -> None:
            for callback in self._callbacks:
                callback.at_end(self)

        run_campaign(self, objective, budget, executor, q, workers, timeout, seconds, ended)
        return self.trials()

    def trials(self) -> pd.DataFrame:
        """Every trial: inputs, outcome, status and reason.

        The status is ``running``, ``told``, ``failed`` or ``withdrawn``.

        Counts are shown in their columns; their outcome ``y`` is the observed prevalence or rate.
        """
        return found.trials(self._refreshed())

    def running(self) -> pd.DataFrame:
        """Running trials as `ask` returned them: those whose outcome is still to be told."""
        return inputs_frame(self.ledger.refresh().with_status("running"), self.space)

    def best(self) -> pd.Series[Any]:
        """The best outcome so far with its inputs; the Series' name is the trial's id.

        With constraints on outcomes, it is the best one that satisfies them.

        Raises:
            StateError: before the first outcome, or the first that satisfies the constraints.
            UnsupportedError: if the goal is ``learn``, or for several objectives.
        """
        return found.best(self._refreshed())

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
        if of == "trials":
            return found.front(self._refreshed())
        from bo_stream.campaign.results import front  # not at the top: it imports torch

        return front(self.state.sync(), of, feasible)

    def hypervolume(self) -> tuple[float, dict[str, float]] | None:
        """Hypervolume of `front`, and the outcomes that it is measured from.

        This point is the campaign's reference, or a tenth of the front's range worse than the worst
        of every objective on it.
        None before there is a trial on the front.

        Raises:
            UnsupportedError: with one objective.
        """
        return found.hypervolume(self._refreshed())

    def recommend(self, n: int = 1, feasible: float = 0.95) -> pd.DataFrame:
        """The settings to use by what is known now, in order of preference.

        A setting that was not measured is recommended only if its noiseless outcome is better than
        those of the best measured ones with probability .9, by their joint posterior. Otherwise the
        measured setting of the best posterior mean is recommended, and the best trial's if that
        mean is not better with probability .7. Unlike in `best`, one lucky outcome does not decide.
        In a box, from 200 outcomes on, the first setting is the best one of a polynomial fitted to
        them, if it is known to be better. For several objectives they are settings on the front,
        spread by hypervolume: measured ones, and others for which, with probability .9, no measured
        one is as good.

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
            the range of the outcomes. With constraints on outcomes, ``gain`` is the expected
            improvement over this mean, times the probability of feasibility, at the one setting
            where it is largest; of several objectives there is none. The columns of several
            outcomes have their names before them, as in ``purity_mean``; ``feasible`` is the
            probability that all constraints on outcomes hold, and that the trial does not fail.

        Raises:
            InputError: for an invalid argument.
            StateError: before there are enough outcomes for a surrogate.
            UnsupportedError: if the goal is ``learn``.
        """
        from bo_stream.campaign.results import recommend  # not at the top: it imports torch

        return recommend(self.state.sync(), n, feasible)

    def predict(
        self, frame: pd.DataFrame | Mapping[str, Any], *, noise: bool = False
    ) -> pd.DataFrame:
        """Posterior ``mean`` and standard deviation ``sd`` of the noiseless outcome.

        Up to 200 outcomes they are averages over kernels that the outcomes leave possible. Of
        several outcomes, the columns are those of `recommend`. Of counts: those of the
        prevalence or rate of the smooth surface, without the variation between surveys of one
        place, and a 90 % interval, ``lower`` to ``upper``.

        Args:
            frame: Inputs in the user's units; of one setting, alternatively a mapping by name.
            noise: Whether of an outcome as it would be measured, with the typical noise; then also
                its 90 % interval, ``lower`` to ``upper``. What the surrogate cannot explain is
                noise to it: told outcomes are compared with this.

        Raises:
            StateError: before there are enough outcomes for a surrogate.
            InputError, BoundsError: for invalid inputs.
            UnsupportedError: for noise of counts or of several outcomes.
        """
        from bo_stream.campaign.results import predict  # not at the top: it imports torch

        return predict(self.state.sync(), frame, noise=noise)

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
        if len(self.settings.outcomes.goals) > 1:
            return figures.front(self._refreshed())
        return figures.outcomes(self._refreshed(), title, optimum)

    # -- pieces ----------------------------------------------------------------------------------

    def _refreshed(self) -> Ledger:
        """The trials, with what is new in the store."""
        self.ledger.refresh()
        return self.ledger

    def _end(
        self,
        ids: Any,
        reason: str,
        status: Literal["failed", "withdrawn"],
        refused: Sequence[str] = (),
    ) -> None:
        """Store why trials end so; those of some statuses are refused."""
        if not isinstance(reason, str) or not reason.strip():
            raise InputError("a reason in words", repr(reason), "Give it as text.")

        def ended(history: TrialHistory) -> Event | None:
            trials = find_trials(ids, history)
            done = [trial.id for trial in trials if trial.status in refused]
            if done:
                raise StateError(
                    "trials without an outcome",
                    f"{done}, told before",
                    "Leave them out, or withdraw() them.",
                )
            new = [[trial.id, reason] for trial in trials if trial.status != status]
            return {"kind": status, "reasons": new} if new else None

        self._record(ended)

    def _record(self, event_after: Callable[[TrialHistory], Event | None]) -> Event:
        """Store the event that follows from the latest history, and follow it.

        Callbacks are called with the trials that it tells, amends, fails or withdraws.
        """
        event = self.ledger.record(event_after)
        if "state" in vars(self):
            self.state.follow()
        ids = changed_ids(event)
        if self._callbacks and ids:
            trials = [self.ledger.history.trials[id] for id in ids]
            frame = trials_frame(trials, self.space, self.settings.outcomes)
            for callback in self._callbacks:
                callback.after_tell(self, frame.copy())
        return event

    def _change(self, settings_after: Callable[[TrialHistory], Settings]) -> None:
        """Store changed settings, if they can be used."""

        def event(history: TrialHistory) -> Event | None:
            settings = settings_after(history)
            _check_decisions(*self._begun, settings)
            before, after = self.settings.to_dict(), settings.to_dict()
            new = {name: value for name, value in after.items() if value != before[name]}
            return {"kind": "changed", "settings": new} if new else None

        self._record(event)

    def _propose(self, q: int, by: str | None, budget: int | None) -> list[int] | None:
        """Ids of trials that are now running; None if another process has changed something."""
        self.state.sync()
        before = self.ledger.history
        enqueued = before.enqueued[:q]
        count = q - len(enqueued)
        new, chosen = list[Trial](), {"taken": 0}
        if count:
            limit = self.budget if budget is None else budget
            count = int(min(count, _left(limit, before)))
            if not count and not enqueued:
                raise BudgetError(
                    f"fewer trials in campaign {self.ledger.name!r} than its budget of {limit}",
                    f"{len(before.trials)}",
                    "The budget is used up. Ask while campaign.remaining > 0, or raise the budget.",
                )
        if count:
            self.state.update(count)
            new, chosen = self.state.propose(count)
        trials = [*enqueued, *new]

        def asked(history: TrialHistory) -> Event | None:
            if _overtaken(before, history, enqueued):
                return None
            return asked_event(trials, by, chosen)

        if not self._record(asked):
            return None
        return [trial.id for trial in trials]

    def _asked(self, ids: Iterable[int]) -> pd.DataFrame:
        """Trials as a frame, after the callbacks were called with them."""
        frame = inputs_frame([self.ledger.history.trials[id] for id in ids], self.space)
        for callback in self._callbacks:
            callback.after_ask(self, frame.copy())
        return frame


def _check_decisions(
    begun: Settings,
    surrogate: NamedChoice | Callable[..., Model] | None,
    acquisition: NamedChoice | AcquisitionBuilder | None,
    constraints: Sequence[str | InputConstraint],
    settings: Settings,
) -> None:
    """Refuse a surrogate or an acquisition function that there is not; see `stages_of`."""
    from bo_stream.campaign.engine import check_surrogate, stages_of  # they import torch

    stages_of(begun, surrogate, acquisition, constraints, settings)
    check_surrogate(settings)


def _left(budget: int | None, history: TrialHistory) -> float:
    """Number of trials left in a budget; infinite without one."""
    return math.inf if budget is None else max(budget - len(history.trials), 0)


def _overtaken(before: TrialHistory, now: TrialHistory, enqueued: Sequence[Trial]) -> bool:
    """Whether another process has asked or changed something since a proposal was made."""
    waiting = {trial.id for trial in now.enqueued}
    return (
        now.revision > before.revision
        or len(now.changes) > len(before.changes)
        or len(now.trials) > len(before.trials)
        or any(trial.id not in waiting for trial in enqueued)
    )
