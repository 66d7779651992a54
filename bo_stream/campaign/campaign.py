"""A campaign of measurements: ask where to measure, and tell the outcomes in any order.

Every trial that was asked for, told or failed is an event in a store. Trials, surrogate and next
proposals follow from the events, so that a killed process loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Self, cast

import pandas as pd
import torch
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.callbacks import Callback
from bo_stream.campaign.choices import NamedChoice, Noise
from bo_stream.campaign.corrections import CorrectableCampaign
from bo_stream.campaign.count_outcomes import latent_surrogate
from bo_stream.campaign.evaluation.runner import run_campaign
from bo_stream.campaign.fit_policy import FitPolicy
from bo_stream.campaign.goals import Goal
from bo_stream.campaign.proposals import AcquisitionBuilder, Optimiser
from bo_stream.campaign.recommendation import recommended
from bo_stream.campaign.setting_changes import GivenParts, continued, replayed, stored_settings
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Pool, Space
from bo_stream.campaign.space.feasible import InputConstraint
from bo_stream.campaign.storage.open_store import open_store
from bo_stream.campaign.storage.store import Store
from bo_stream.campaign.trials import Decision
from bo_stream.errors import BoStreamError, InputError, StateError, UnsupportedError
from bo_stream.scores import marginals, quantiles

__all__ = ["Campaign"]

INTERVAL = (0.05, 0.95)
"""Levels of the interval of a recommendation."""


class Campaign(CorrectableCampaign):
    """Measurements towards a goal, with trials as rows of pandas frames.

    A campaign whose name is in the store already is continued: its trials, seed and surrogate are
    those in the store, and the space and the goal have to be the same. The budget may be raised.

    Args:
        space: Where to measure: a `Box` of named inputs, or a `Pool` of places.
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
            variance integrated over ``targets``.
        store: URL of a database (``sqlite:///oven.db``), or a store; None: in memory only.
        name: Name of the campaign in its store.
        targets: For ``learn``: a frame of points over which variance is integrated; None: the pool,
            or the whole box.
        budget: Number of trials in all, over all runs of the program: those with an outcome,
            running ones and failed ones. `ask` stops there. None: no limit.
        seed: Seed of everything random; None: a new one, which is kept in the store.
        initial: Number of outcomes from which a surrogate is built. The points proposed until then
            are spread over the space.
        fit: When hyperparameters are fitted. By default when the outcomes have grown by 1.3 (from
            300 outcomes on by 2) and when predictions are worse than they promise; after every
            batch for ``warped``.
        noise: ``learned`` (the default), ``none`` for exact outcomes (surrogates ``warped`` and
            ``trust_region``), or the variance of every outcome's noise.
        optimiser: Effort of maximising acquisition functions over a box.
        outcome: For counts: their column and likelihood, ``{"positive":
            Binomial(trials="examined")}``, or the same as plain data, ``{"column": "positive",
            "likelihood": "binomial", "trials": "examined"}``; also ``Bernoulli()``,
            ``Poisson(exposure=...)`` and ``NegativeBinomial(exposure=...)``. `tell` takes these
            columns in place of ``y``, the surrogate is a `CountGP` over the family, and the goal is
            ``learn`` or ``maximise`` of the prevalence or rate.
        constraints: On inputs: texts such as ``"a + 2*b <= 3"``, or callables from a frame to a
            boolean for each row. Proposals and recommendations fulfil them; outcomes need not.
        callbacks: Hooks.

    Raises:
        InputError: for invalid settings.
        StateError: if the store has a campaign of this name with another space or goal.

    Example:
        >>> from bo_stream import Box, Campaign
        >>> campaign = Campaign(Box({"x": (0.0, 4.0)}), goal="minimise", budget=8, seed=0)
        >>> while campaign.remaining > 0:
        ...     batch = campaign.ask()
        ...     batch["y"] = (batch["x"] - 3.0) ** 2
        ...     campaign.tell(batch)
        >>> bool(abs(campaign.best()["x"] - 3.0) < 0.3)
        True
    """

    def __init__(
        self,
        space: Space,
        surrogate: NamedChoice | Callable[..., StreamingGP] | None = None,
        acquisition: NamedChoice | AcquisitionBuilder | None = None,
        goal: Goal = "maximise",
        store: str | Store | None = None,
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
        callbacks: Sequence[Callback] = (),
    ) -> None:
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
        }
        settings = Settings.from_arguments(space, goal, budget=budget, **options)
        opened, name, changes = open_store(store), name or "campaign", 0
        stored = stored_settings(opened, name)
        if stored is None:
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
        store: str | Store,
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
            store: URL of the database.
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

    def _begin(
        self, store: Store, name: str, given: GivenParts, changes: int, hooks: Sequence[Callback]
    ) -> None:
        s = given.settings
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
        super().__init__(store, name, s, changes, given.stages, hooks, like, given.constraints)

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
        ``allowed-failures`` says).

        Args:
            objective: Called with a trial: a Series of its inputs by name (and ``place``, in a
                pool) whose ``name`` is the trial's id. Returns the outcome, or a pair of the
                outcome and its noise variance; for counts, a pair of the count and its trials or
                exposure.
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
            StateError: if the executor is broken, or all its workers hang.
            ImportError: for ``workers`` without loky.
        """
        run_campaign(self, objective, budget, executor, q, workers, timeout, seconds)
        return self.trials()

    # -- results ---------------------------------------------------------------------------------

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate of outcomes to be maximised, over inputs as the space encodes them.

        Of counts it is a `CountGP`. None before it is built.
        """
        return self._state.manager.model

    @property
    def behind(self) -> bool:
        """Whether outcomes are further from the predictions than the predictions promise."""
        return self._state.manager.surprise.behind

    @property
    def decision(self) -> Decision:
        """The acquisition function of the latest trials, and why it was chosen."""
        history, current = self.history, self.current
        if history.decision is not None:
            return history.decision
        named = current.acquisition
        return Decision("a callable" if named is None else named["name"], current.why[1])

    @property
    def current(self) -> Settings:
        """The settings in use now: a campaign without a budget begins as a small one."""
        return self.settings.at(self._state.manager.stage.start)

    def observations(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y (to be maximised) and Yvar of all outcomes, in the order they were told.

        Of counts: X, counts, and trials or exposures.
        """
        self._state.sync(self.row)
        data = self._state.observations
        return data.X, data.Y, data.Yvar

    def best(self) -> pd.Series[Any]:
        """The best outcome so far with its inputs; the Series' name is the trial's id.

        Raises:
            StateError: before the first outcome.
            UnsupportedError: if the goal is ``learn``.
        """
        self._check_optimises("Use predict(frame).")
        told = self.trials().query("status == 'told'")
        if not len(told):
            raise StateError("at least one outcome", "none", "Tell some first.")
        frame = told.drop(columns=["status", "ask", "reason"])
        if not self.space.is_continuous:
            frame = frame.astype(object)  # so that integers stay integers
        return frame.iloc[int((self.settings.sign * frame["y"]).argmax())]

    def recommend(self, n: int = 1) -> pd.DataFrame:
        """Settings of the highest posterior mean over the whole space, best first.

        Unlike `best`, they need not have been measured, and one lucky outcome does not decide.

        Args:
            n: Number of settings. In a box, they differ by a twentieth of the width in some input.

        Returns:
            Inputs in the user's units (and the place, in a pool), posterior ``mean`` and standard
            deviation ``sd`` of the noiseless outcome, and its 90 % interval, ``lower`` to
            ``upper``.

        Raises:
            InputError: for an invalid n.
            StateError: before there are enough outcomes for a surrogate.
            UnsupportedError: if the goal is ``learn``.
        """
        if type(n) is not int or n < 1:
            raise InputError("n, an integer of 1 or more", repr(n), "Give such a number.")
        self._check_optimises("Use predict(frame).")
        model, state, space = latent_surrogate(self._current_model()), self._state, self.space
        chosen = recommended(model, self.feasible, state.observations, state.manager.ensemble, n)
        values = space.decode(space.points[chosen] if isinstance(space, Pool) else chosen)
        frame = space.labelled(values)
        frame = pd.concat([frame, self.predict(frame)], axis=1)
        if self.counts is None:
            X = self.space.encode(values).to(self._like)
            levels = quantiles(model, X, INTERVAL, ensemble=state.manager.kernels())
            ends = (self.settings.sign * levels).sort(0).values
            frame["lower"], frame["upper"] = ends[0].numpy(), ends[1].numpy()
        if isinstance(space, Pool):
            frame.insert(0, "place", space.table.index[chosen.tolist()])
        return frame

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Posterior ``mean`` and standard deviation ``sd`` of the noiseless outcome.

        Of counts: those of the prevalence or rate of the smooth surface, without the variation
        between surveys of one place, and a 90 % interval, ``lower`` to ``upper``.

        Args:
            frame: Inputs in the user's units.

        Raises:
            StateError: before there are enough outcomes for a surrogate.
            InputError, BoundsError: for invalid inputs.
        """
        values = self.space.values(frame)
        model = self._current_model()
        X = self.space.encode(values).to(self._like)
        if self.counts is not None:
            return pd.DataFrame(self.counts.predict(cast(Any, model), X), frame.index)
        mean, variance = marginals(model, X, self._state.manager.kernels())
        mean, sd = self.settings.sign * mean, variance.clamp_min(0).sqrt()
        return pd.DataFrame({"mean": mean.numpy(), "sd": sd.numpy()}, frame.index)

    # -- pieces ----------------------------------------------------------------------------------

    def _check_optimises(self, remedy: str) -> None:
        if self.goal == "learn":
            raise UnsupportedError("the goal maximise or minimise", "the goal learn", remedy)

    def _current_model(self) -> StreamingGP:
        """The surrogate of all outcomes, built if it was not yet."""
        self._state.sync(self.row)
        if self._state.manager.fitted == 0:
            self.update()
        if self.model is None:
            raise StateError(
                f"{self.settings.initial} outcomes, to build a surrogate from",
                f"{self._state.history.num_told}",
                "Tell more first.",
            )
        return self.model
