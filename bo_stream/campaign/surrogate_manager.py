"""What a campaign has learned: its surrogate, told and fitted by a stated schedule."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from botorch.models.transforms.outcome import Standardize
from torch import Tensor

from bo_stream.base import checkpoint
from bo_stream.base.fitting.surprise import Surprise
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.fit_policy import FitPolicy
from bo_stream.campaign.records import Row
from bo_stream.errors import UnsupportedError

__all__ = ["Learner"]

Data = tuple[Tensor, Tensor, Tensor | None]


class Learner:
    """A surrogate, when it is built and fitted, and how well its predictions have done.

    It is a function of the batches it was told and of when it was asked to `settle`, with nothing
    random in it: told the same again it comes out the same, to the last bit.

    Args:
        make: ``(X, Y, Yvar, bounds=..., outcome_transform=...)`` to a surrogate.
        bounds: ``2 x d``.
        policy: When hyperparameters are fitted; its steps are batches told since it was built.
        initial: Outcomes that it waits for before it is built.
        restandardise: Whether outcomes are standardised anew, by all of them, before each fit.

    Attributes:
        model: The surrogate; None before it is built.
        surprise: How far its predictions fell short of what they promised.
    """

    def __init__(
        self,
        make: Callable[..., StreamingGP],
        bounds: Tensor,
        policy: FitPolicy,
        initial: int,
        restandardise: bool = True,
    ) -> None:
        self.make, self.bounds, self.policy = make, bounds, policy
        self.initial, self.restandardise = initial, restandardise
        self.forget()

    def forget(self) -> None:
        """As before anything was told."""
        self.model: StreamingGP | None = None
        self.surprise = Surprise.none(torch.zeros((), dtype=torch.float64))
        self._begun, self._settled = 0, 0

    @property
    def told(self) -> int:
        """Outcomes that the surrogate has seen."""
        return 0 if self.model is None else self.model.num_observed

    def absorb(self, X: Tensor, Y: Tensor, Yvar: Tensor | None, row: Row) -> None:
        """Look how well a batch was predicted, and take it: all of it or nothing.

        Args:
            X: ``n x d``.
            Y: ``n x 1``.
            Yvar: ``n x 1``, where noise is known.
            row: Whose seconds are added to, and whose ``log_predictive`` is set.
        """
        if self.model is None:
            return
        with row.timed("score_seconds"):
            said = self.model.predictive_score(X, Y, Yvar)
            row["log_predictive"] = float(said.log_density)
            surprise = self.surprise.seen(said.shortfall, said.variance, len(X))
        with row.timed("update_seconds"):
            self.model.observe(X, Y, Yvar)
        self.surprise = surprise

    def settle(self, data: Data, told: int, batches: int, row: Row) -> bool:
        """Build or fit the surrogate, if that is due; says whether its hyperparameters changed.

        Args:
            data: Everything told so far.
            told: How many outcomes that is.
            batches: How many batches.
            row: Whose seconds and ``fit_evaluations`` are added to.
        """
        if told < self.initial or batches == self._settled:
            return False
        model, policy, begun = self.model, self.policy, self._begun
        if model is None:
            begun = batches
            with row.timed("update_seconds"):
                scale = Standardize(m=1)
                model = self.make(*data, bounds=self.bounds, outcome_transform=scale)
        step = batches - begun
        passed = range(min(step, self._settled - begun + 1), step + 1)
        fitted = any(policy.due(s, model.refit_due) for s in passed)
        if fitted:
            if step and self.restandardise:
                with row.timed("update_seconds"):
                    self._restandardise(model, data[1])
            with row.timed("fit_seconds"):
                report = model.fit(policy.max_evals if step else policy.first_max_evals)
            row["fit_evaluations"] += report.evaluations
            row["fit_objective"] = report.value
        new = self.model is None
        self.model, self._begun, self._settled = model, begun, batches
        return fitted or new

    def _restandardise(self, model: StreamingGP, Y: Tensor) -> None:
        try:
            model.restandardise(Y)
        except UnsupportedError:  # it was built with a transform of its own
            self.restandardise = False

    # -- going back ------------------------------------------------------------------------------

    def kept(self) -> Callable[[], None]:
        """What puts it back to where it is now."""
        model, surprise, counts = self.model, self.surprise, (self._begun, self._settled)
        state = None if model is None else copy.deepcopy(model.state_dict())

        def back() -> None:
            if model is not None and state is not None:
                model.load_state_dict(state)
            self.model, self.surprise = model, surprise
            self._begun, self._settled = counts

        return back

    # -- snapshots -------------------------------------------------------------------------------

    def dumps(self) -> tuple[dict[str, Any], bytes]:
        """What a snapshot holds.

        Raises:
            UnsupportedError: for a surrogate that cannot be rebuilt from its settings.
        """
        s = self.surprise
        about = {
            "told": self.told,
            "begun": self._begun,
            "settled": self._settled,
            "surprise": [float(v) for v in (s.count, s.total, s.information, s.variance)],
        }
        return about, checkpoint.dumps(self.model)

    def loads(self, about: dict[str, Any], model: bytes) -> None:
        """Become what a snapshot holds.

        Raises:
            StateError: for one that is damaged, or of another release.
        """
        loaded = checkpoint.loads(model)
        numbers = (torch.tensor(v, dtype=torch.float64) for v in about["surprise"])
        surprise = Surprise(*numbers)
        self._begun, self._settled = about["begun"], about["settled"]
        self.model, self.surprise = loaded, surprise
