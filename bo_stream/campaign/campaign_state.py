"""Current state of a campaign: trials, settings, and the surrogate of each outcome."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition.cached_cholesky import supports_cache_root
from botorch.models.model import ModelList
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.posteriors.posterior import Posterior
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.history import Entry, Trial, TrialHistory
from bo_stream.campaign.learner import Learner, Stage, chosen_points, falling_back
from bo_stream.campaign.ledger import Ledger
from bo_stream.campaign.outcomes.observations import Observations, PartlyObserved
from bo_stream.campaign.outcomes.outcome import Outcome
from bo_stream.campaign.proposing.proposals import ProposalContext
from bo_stream.campaign.recommendation import region_of_best
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space.feasible import InputConstraint
from bo_stream.campaign.storage.store import Snapshot
from bo_stream.errors import StateError, UnsupportedError

__all__ = ["CampaignState"]

NO_REGION = "No trials are drawn about the recommended point."


class CampaignState:
    """Trials, settings and surrogates of a campaign, synchronised with its store.

    Args:
        ledger: Its trials and settings.
        stages_of: The surrogate and what chooses trials, by settings.
        like: A tensor of the dtype and device to use.
        constraints: The callables among the constraints.

    Attributes:
        settings: The current settings.
        named: The outcomes.
        feasible: Where trials may be proposed.
        stages: What chooses trials, in the order of their starts.
        learners: The surrogate of every outcome, by column.
        region: Where some trials are drawn: about the recommended point of the latest fit.
    """

    def __init__(
        self,
        ledger: Ledger,
        stages_of: Callable[[Settings], Sequence[Stage]],
        like: Tensor,
        constraints: Sequence[InputConstraint] = (),
    ) -> None:
        self.ledger, self.store, self.like = ledger, ledger.store, like
        self.stages_of, self._constraints = stages_of, constraints
        self.region: Tensor | None = None
        self._begin()
        self._prepare()

    # -- following the store ---------------------------------------------------------------------

    def sync(self) -> None:
        """Read what is new in the store: snapshots of other processes, then events."""
        if self.store.durable and self.store.newest_snapshot(self.ledger.name) > self._snapshot:
            self._load_snapshot()
        self.ledger.refresh()
        self.follow()

    def follow(self) -> None:
        """Take over changed settings, and let the surrogates observe the new outcomes."""
        if self.settings is not self.ledger.settings:
            if self.settings.failures != self.ledger.settings.failures:
                self._begin()
            self._prepare()
        due = [self._follow(outcome) for outcome in self.outcomes.learned]
        if any(due):
            self._save_snapshot()

    def update(self, q: int = 1) -> None:
        """Build or fit every surrogate for which that is due, for the choice of so many trials."""
        changed = [one.update(one.data, one.data.batches, self.ledger.row, q) for one in self.used]
        if any(changed):
            self.region = self._region()
            self._save_snapshot()

    @property
    def history(self) -> TrialHistory:
        """The trials, as last read."""
        return self.ledger.history

    # -- what is known now -----------------------------------------------------------------------

    @property
    def used(self) -> list[Learner]:
        """The surrogates that are used: completion is learned once some trials failed."""
        learners = list(self.learners.values())
        unknown = self.outcomes.completed and len(learners[-1].data.Y.unique()) < 2
        return learners[:-1] if unknown else learners

    @property
    def only(self) -> Learner | None:
        """The surrogate of the only outcome; None if several are learned together."""
        return None if self._joint else self.used[0]

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate, or those of all outcomes as one model; None before all are built.

        Objectives are to be maximised.
        """
        models = [one.model for one in self.used if one.model is not None]
        if len(models) < len(self.used):
            return None
        if not self._joint:
            return models[0]
        gaussian = all(map(supports_cache_root, models))
        joint = GaussianOutcomes(*models) if gaussian else OutcomeModels(*models)
        return cast(StreamingGP, joint)

    @property
    def observations(self) -> Observations | PartlyObserved:
        """All outcomes that are learned from; of several, the points of the trials with some."""
        if self.only is not None:
            return self.only.data
        known = [t for t in self.history.trials if t.status != "withdrawn"]
        rows = [(t, self.outcomes.values(t)) for t in known]
        rows = [(t, values) for t, values in rows if not all(map(math.isnan, values))]
        Y = torch.tensor([values for _, values in rows], dtype=torch.float64)
        Y = Y.reshape(-1, len(self.outcomes.columns)).to(self.like)
        return PartlyObserved(self.points([t for t, _ in rows]), Y)

    @property
    def stage(self) -> Stage:
        """What is used now; its rule chooses trials by all surrogates together."""
        return self.stages[min(len(self.stages) - 1, *(one.number for one in self.used))]

    @property
    def current(self) -> Settings:
        """The settings in use now: a campaign without a budget begins as a small one."""
        return self.settings.at(self.stage.start)

    @property
    def fitted(self) -> int:
        """Number of outcomes at the last fit, of the outcome for which it is smallest."""
        return min(one.fitted for one in self.used)

    @property
    def unfitted(self) -> bool:
        """Whether some surrogate was not fitted, or for fewer outcomes or equal ones only."""
        differ = self.only is not None and self.only.first_differences(self.only.data.Y)
        return differ or any(one.unfitted for one in self.used)

    @property
    def behind(self) -> bool:
        """Whether some outcomes are further from the predictions than these promise."""
        return any(one.behind for one in self.used)

    def choose(self, q: int, context: ProposalContext) -> Tensor | None:
        """Points by the current rule; None, with a warning, if its arithmetic fails."""
        model = cast(StreamingGP, self.model)
        surrogates = [cast(StreamingGP, one.model) for one in self.used]
        renewed = surrogates if self.store.durable else ()
        return chosen_points(self.stage, model, q, context, renewed)

    def points(self, trials: list[Trial]) -> Tensor:
        """Inputs of trials as the surrogate's, ``n x d``."""
        values = np.array([t.inputs for t in trials], dtype=np.float64)
        space = self.settings.space
        return space.encode(values.reshape(-1, space.dim)).to(self.like)

    # -- pieces ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Forget all surrogates."""
        self.learners: dict[str, Learner] = {}
        self.region = None
        self._snapshot = 0  # number of the snapshot last loaded or saved

    def _prepare(self) -> None:
        """Take over the current settings."""
        self.settings = settings = self.ledger.settings
        self.outcomes = settings.outcomes
        self._joint = self.outcomes.joint
        self.feasible = settings.feasible(self._constraints)
        self.stages = self.stages_of(settings)
        bounds = settings.space.tensor_bounds.to(self.like)
        counts = settings.counts is not None
        winsorise = settings.goal != "learn" and not counts
        given = settings.initial, settings.restandardise, winsorise, counts
        for outcome in self.outcomes.learned:
            if outcome.column in self.learners:
                self.learners[outcome.column].configure(self.stages, bounds)
            else:
                self.learners[outcome.column] = Learner(self.stages, bounds, *given)

    def _follow(self, outcome: Outcome) -> bool:
        """Let a surrogate observe its new outcomes; whether it is to be saved."""
        learner = self.learners[outcome.column]
        log, data = outcome.log_of(self.history), learner.data
        if data.revision < log.revision:  # all outcomes are collected again
            data = Observations.none(learner.bounds, data.counts, log.revision)
        new = log.batches[data.batches :]
        if new:
            trials = [self.history.trials[id] for id in chain.from_iterable(new)]
            entries = [cast(Entry, outcome.entry_of(trial)) for trial in trials]
            found = outcome.tensors(entries, self.like)
            data = data.extended(self.points(trials), *found, batches=len(new))
        revised = learner.follow(data, log, self.ledger.row)
        if revised:
            self.region = None
        unsaved = learner.num_observed - learner.saved
        due = unsaved >= self.store.snapshot_every or (revised and unsaved > -math.inf)
        return learner.model is not None and due

    def _region(self) -> Tensor | None:
        """The region of the recommended point, if a polynomial found it."""
        one = self.only
        if one is None or one.model is None or not self.stage.samples:
            return None
        guard = falling_back(NO_REGION, allowed=self.stage.named, checked=True)
        with self.ledger.row.timed("acquisition_seconds"), guard:
            return region_of_best(one.model, self.feasible, one.data)
        return None

    # -- snapshots -------------------------------------------------------------------------------

    def _save_snapshot(self) -> None:
        """Save all surrogates: that of one outcome as it is, those of several as parts."""
        if not self.store.durable:
            return
        with self.ledger.row.timed("store_seconds"):
            parts: dict[str, dict[str, Any]] = {}
            contents = b""
            for column, one in self.learners.items():
                if one.model is None:
                    continue
                try:
                    about, model = one.dumps()
                except UnsupportedError as error:
                    warnings.warn(
                        "This surrogate cannot be saved; a resumed campaign builds it again from "
                        f"all outcomes. {error}",
                        stacklevel=4,
                    )
                    one.saved = math.inf
                    continue
                parts[column], contents = {**about, "bytes": len(model)}, contents + model
            if not parts:
                return
            saved: dict[str, Any] = {"parts": parts}
            if not self._joint:
                region = None if self.region is None else self.region.tolist()
                saved = {**next(iter(parts.values())), "region": region}
            try:
                self._snapshot = self.store.save_snapshot(self.ledger.name, saved, contents)
            except StateError as error:  # such as a full disk, after the outcomes were stored
                warnings.warn(
                    f"The surrogate was not saved; no outcome is lost. {error}", stacklevel=4
                )
        for column in parts:
            self.learners[column].saved = self.learners[column].num_observed

    def _load_snapshot(self) -> None:
        """Load the newest readable snapshot; without one, the surrogates are built again."""
        newest = self.store.newest_snapshot(self.ledger.name)
        for snapshot in self.store.snapshots(self.ledger.name):
            if ("parts" in snapshot.about) != self._joint:  # before failures were changed
                continue
            try:
                self._load(snapshot)
                break
            except Exception as error:  # of another release: anything may be missing
                warnings.warn(
                    f"Snapshot {snapshot.number} of the surrogate of campaign {self.ledger.name!r} "
                    "cannot be used. No outcome is lost: the surrogate is restored from an earlier "
                    f"snapshot or built again from all outcomes. {error}",
                    stacklevel=4,
                )
        else:
            self.region = None
            for one in self.learners.values():
                one.reset()
        for one in self.learners.values():
            one.saved = one.num_observed
        self._snapshot = newest

    def _load(self, snapshot: Snapshot) -> None:
        about, model = snapshot.about, BytesIO(snapshot.model)
        whole = {column: {"bytes": None, **about} for column in self.outcomes.columns}
        parts = about.get("parts", whole)
        region = about.get("region")
        for one in self.learners.values():
            one.reset()
        for column, part in parts.items():
            content = model.read(part["bytes"])
            if column in self.learners:
                self.learners[column].loads(part, content)
        self.region = None if region is None else self.like.new_tensor(region)


class OutcomeModels(ModelList):
    """Surrogates as one model, with an output for each; points are moved to their bounds.

    BoTorch looks outside of the observed points for the worst outcome.
    """

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> Posterior:
        """The joint posterior of all outcomes at points, ``batch_shape x q x d``."""
        return super().posterior(_inside(self, X), *args, **kwargs)


class GaussianOutcomes(ModelListGP):
    """`OutcomeModels` with Gaussian posteriors, whose factors BoTorch keeps."""

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> Posterior:  # type: ignore[override]
        """The joint posterior of all outcomes at points, ``batch_shape x q x d``."""
        return super().posterior(_inside(self, X), *args, **kwargs)


def _inside(model: OutcomeModels | GaussianOutcomes, X: Tensor) -> Tensor:
    low, high = cast(Tensor, model.models[0].bounds).to(X)
    return X.clamp(low, high)
