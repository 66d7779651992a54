"""Mending mistakes: outcomes, trials and settings; each correction is an event in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from bo_stream.campaign import changes as setting_changes
from bo_stream.campaign import history as events
from bo_stream.campaign.ask_tell import AskTell
from bo_stream.campaign.frames import find_trials, parse_ids, read_amended
from bo_stream.campaign.history import Event, TrialHistory
from bo_stream.campaign.outcomes.goals import Failures
from bo_stream.campaign.proposing.choices import NamedChoice
from bo_stream.campaign.proposing.fit_policy import FitPolicy
from bo_stream.campaign.settings import Settings

__all__ = ["CorrectableCampaign"]


class CorrectableCampaign(AskTell):
    """Asking and telling, and mending what was told; see `bo_stream.Campaign`."""

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
            event = read_amended(frame, self._columns, history)
            return event and self._in_parts(history, event)

        event = self._record(amended)
        self._after_tell(events.told_ids(event))

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
        wanted = parse_ids(ids, reason)

        def withdrawn(history: TrialHistory) -> Event | None:
            trials = find_trials(wanted, history)
            new = [(trial.id, reason) for trial in trials if trial.status != "withdrawn"]
            return events.withdrawn_event(history, new) if new else None

        event = self._record(withdrawn)
        self._after_tell([row[0] for row in event["reasons"]] if event else [])

    def widen(self, bounds: Mapping[str, tuple[float, float]]) -> None:
        """Widen the bounds of some inputs. The surrogate is built anew over the wider box.

        Args:
            bounds: New lower and upper bounds by the name of the input; they contain the old ones.

        Raises:
            InputError, BoundsError: for unknown inputs or invalid bounds.
            UnsupportedError: in a pool.
        """
        self._change(lambda _: setting_changes.widened(self.settings, bounds))

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
        given = (surrogate, acquisition, budget, fit, failures)

        def changed(history: TrialHistory) -> Settings:
            return setting_changes.changed(self.settings, *given, len(history.trials))

        self._change(changed)

    def _change(self, changed: Callable[[TrialHistory], Settings]) -> None:
        """Store changed settings, if they can be used."""

        def event(history: TrialHistory) -> Event | None:
            settings = changed(history)
            self._state.stages_of(settings)  # or refuse
            return events.changed_event(self.settings.to_dict(), settings.to_dict())

        self._record(event)
