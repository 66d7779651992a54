"""Current state of a campaign with several outcomes: trials, and a surrogate for each outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from botorch.acquisition.cached_cholesky import supports_cache_root
from botorch.models.model import Model, ModelList
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.posteriors.posterior import Posterior
from torch import Tensor

from bo_stream.campaign.campaign_state import CampaignOrigin, CampaignState, LedgerState
from bo_stream.campaign.history import TrialHistory
from bo_stream.campaign.outcome_store import OutcomeStore, SharedStore
from bo_stream.campaign.outcomes.count_outcomes import latent_surrogate
from bo_stream.campaign.proposing.fallbacks import falling_back
from bo_stream.campaign.proposing.proposals import ProposalContext
from bo_stream.campaign.proposing.stage import Stage
from bo_stream.campaign.proposing.surrogate_manager import SPREAD, SurrogateManager
from bo_stream.campaign.records import Row

__all__ = [
    "GaussianOutcomes",
    "OutcomeModels",
    "OutcomeStates",
    "OutcomeSurrogates",
    "PartlyObserved",
]

MOST, LATEST = 256, 64
"""Number of points up to which all may matter for the next trials, and of the latest among more."""


class OutcomeStates(LedgerState):
    """Trials and surrogates of several outcomes; see `CampaignState` for one of them.

    Attributes:
        states: The state of every outcome, in the order of its columns.
        outcomes: The outcomes.
    """

    def __init__(self, origin: CampaignOrigin) -> None:
        super().__init__(origin)
        self.outcomes, self._stages = self.settings.named, tuple(self.stages_of(self.settings))
        self._shared = SharedStore(self.store, self.name)
        self.states = [
            CampaignState(
                replace(
                    origin,
                    store=OutcomeStore(self._shared, column),
                    settings=self.settings.of_outcome(column),
                )
            )
            for column in self.outcomes.learned
        ]

    def sync(self, row: Row) -> None:
        """Read what is new in the store: snapshots of other processes, then events."""
        seen = [self.history.num_events, *(one.history.num_events for one in self.states)]
        self._shared.look(min(seen))
        new = self._shared.events[self.history.num_events - self._shared.start :]
        history = self.history.extended(new)
        self.configure(history)
        for state in self.states:
            state.sync(row)
        self.history = history
        self._flush(row)

    def follow(self, history: TrialHistory, row: Row) -> None:
        """Move on to the latest history, which is read from the store."""
        self.sync(row)

    def configure(self, history: TrialHistory) -> bool:
        """Take over the settings that were changed before a history ends; whether any were."""
        new = super().configure(history)
        if new:
            self._stages = tuple(self.stages_of(self.settings))
        return new

    def update_surrogate(self, row: Row, q: int = 1) -> None:
        """Build or fit every surrogate for which that is due, for the choice of so many trials."""
        for state in self._used:
            state.update_surrogate(row, q)
        self._flush(row)

    @property
    def manager(self) -> OutcomeSurrogates:
        """The surrogates of all outcomes."""
        managers = [state.manager for state in self._used]
        stage = self._stages[min(*(one.number for one in managers), len(self._stages) - 1)]
        return OutcomeSurrogates(tuple(managers), stage)

    @property
    def observations(self) -> PartlyObserved:
        """Points of the trials with outcomes."""
        known = [t for t in self.history.trials if t.status != "withdrawn"]
        rows = [(t, self.outcomes.values(t)) for t in known]
        rows = [(t, values) for t, values in rows if not all(map(math.isnan, values))]
        Y = torch.tensor([values for _, values in rows], dtype=torch.float64)
        Y = Y.reshape(-1, len(self.outcomes.columns)).to(self._like)
        return PartlyObserved(self.points([t for t, _ in rows]), Y)

    @property
    def _used(self) -> list[CampaignState]:
        """The states whose surrogates are used: completion is learned once some trials failed."""
        completed = self.states[-1].observations.Y
        told = not self.outcomes.completes or len(completed.unique()) > 1
        return self.states if told else self.states[:-1]

    def _flush(self, row: Row) -> None:
        with row.timed("store_seconds"):
            self._shared.flush()


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


def _inside(model: Any, X: Tensor) -> Tensor:
    low, high = model.models[0].bounds.to(X)
    return X.clamp(low, high)


@dataclass(frozen=True)
class OutcomeSurrogates:
    """The surrogates of all outcomes, as what manages one.

    Attributes:
        managers: That of every outcome.
        stage: What is used now; its rule chooses trials by all surrogates together.
    """

    managers: tuple[SurrogateManager, ...]
    stage: Stage
    ensemble: None = None

    @property
    def model(self) -> Model | None:
        """The surrogates as one model with an output for every outcome; None before all are built.

        Objectives are to be maximised.
        """
        models = [one.model for one in self.managers if one.model is not None]
        if len(models) < len(self.managers):
            return None
        gaussian = all(map(supports_cache_root, models))
        return GaussianOutcomes(*models) if gaussian else OutcomeModels(*models)

    def choose(self, q: int, context: ProposalContext, renewed: bool = False) -> Tensor | None:
        """Points by the current rule, as `SurrogateManager.choose`."""
        model = cast(Any, self.model)
        with falling_back(SPREAD, allowed=self.stage.named):
            if renewed:
                for one in self.managers:
                    latent_surrogate(one.model).refresh()
            found = self.stage.rule(model, q, context)
            if not bool(found.isfinite().all()):
                raise ArithmeticError("The points are not finite.")
            return found
        return None

    @property
    def least(self) -> float:
        """Each outcome has a limit of its own."""
        return -math.inf

    @property
    def fitted(self) -> int:
        """Number of outcomes at the last fit, of the outcome for which it is smallest."""
        return min(one.fitted for one in self.managers)

    @property
    def unfitted(self) -> bool:
        """Whether the surrogate of some outcome was not fitted, or for fewer outcomes only."""
        return any(one.unfitted for one in self.managers)

    @property
    def behind(self) -> bool:
        """Whether some outcomes are further from the predictions than these promise."""
        return any(one.behind for one in self.managers)


@dataclass(frozen=True)
class PartlyObserved:
    """Outcomes of trials of which some may be missing.

    Attributes:
        X: ``n x d``.
        Y: ``n x m``, objectives to be maximised; NaN where an outcome is missing.
    """

    X: Tensor
    Y: Tensor
    typical_size: None = None

    @property
    def complete(self) -> tuple[Tensor, Tensor]:
        """Points ``k x d`` of the trials with all outcomes, and the first outcome there, ``k``."""
        rows = ~self.Y.isnan().any(-1)
        return self.X[rows], self.Y[rows, 0]

    def candidates(self) -> Tensor:
        """Points that may matter for the next trials, at most `MOST`: the best by each outcome."""
        n, m = self.Y.shape
        if n <= MOST:
            return self.X
        old = self.Y[: n - LATEST].nan_to_num(-torch.inf)
        best = [column.topk((MOST - LATEST) // m).indices for column in old.unbind(-1)]
        return self.X[torch.cat([*best, torch.arange(n - LATEST, n)]).unique()]

    def best(self) -> Tensor:
        """The latest points, ``k x d``."""
        return self.X[-LATEST:]
