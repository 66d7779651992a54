"""The state of a computation-aware GP."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Self

from torch import Tensor

from bo_stream.actions.history import FitHistory
from bo_stream.actions.policy import Actions
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix
from bo_stream.mathematics.computation_aware.problem import Prior
from bo_stream.mathematics.computation_aware.state import ProjectedState

__all__ = ["CaGPState"]


@dataclass(frozen=True)
class CaGPState(ProjectedState):
    """Data, actions and their factor, and the history of fits."""

    history: FitHistory = field(kw_only=True)

    @classmethod
    def empty(cls, dim: int, made_with: Tensor) -> Self:
        """No data yet, of ``dim`` inputs, under hyperparameters (flat)."""
        nothing = ProjectedState.empty(dim, made_with)
        parts = {part.name: getattr(nothing, part.name) for part in fields(nothing)}
        return cls(**parts, history=FitHistory.empty())

    def current_actions(self, policy: Actions, prior: Prior) -> ActionMatrix:
        """S, rebuilt if it depends on hyperparameters that have changed."""
        if not (self.size and policy.follows_hyperparameters) or self.factored_under(prior):
            return self.S
        return policy.made_for(self.problem(prior))

    def refactored(self, policy: Actions, prior: Prior) -> Self:
        """The state with the current actions, factored under other hyperparameters."""
        S, problem = self.current_actions(policy, prior), self.problem(prior)
        return self.with_actions(S, problem.factor(S), prior.hyperparameters)
