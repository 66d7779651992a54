"""What an online variational GP keeps: its law, the law before the last batch, and that batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from bo_stream.mathematics.inducing.state import Batch, solve
from bo_stream.mathematics.variational.adam import Memory, empty_memory
from bo_stream.mathematics.variational.state import Past, SVGPState, empty_state

__all__ = ["OnlineSVGPState"]


@dataclass(frozen=True)
class OnlineSVGPState:
    """What an `OnlineSVGP` holds.

    Attributes:
        now: The law of the inducing values.
        past: The law before the last batch, with the prior of then.
        batch: The last batch, with its noise before any learned scale.
        memory: Adam's moments.
    """

    now: SVGPState
    past: Past
    batch: Batch
    memory: Memory

    @classmethod
    def empty(cls, dim: int, jitter: float) -> Self:
        """Before any batch."""
        like = torch.empty(0, dim, dtype=torch.float64)
        nothing = empty_state(like, jitter)
        past = Past(nothing, nothing.T, nothing.mu.new_zeros(()))
        return cls(nothing, past, Batch(nothing.Z, nothing.mu, nothing.mu), empty_memory(like))

    def rescaled(
        self, shift: Tensor, factor: Tensor, mean: Tensor, L: Tensor, known_noise: bool
    ) -> Self:
        """In the units ``(y - shift) / factor`` (0-dim both).

        The inducing values keep their law; between them the prior speaks. Not quite what the same
        batches would have led to in the new units: Adam's steps are not free of units.

        Args:
            shift: What is subtracted.
            factor: What is divided by.
            mean: The prior mean, 0-dim, which stays.
            L: ``chol(K(Z, Z))`` of the points now.
            known_noise: Whether the batch's noise variances are in units of the targets.
        """
        now, past, s, f = self.now, self.past, shift, factor
        mu = now.mu / f + solve(L, torch.ones_like(now.mu)) * ((mean - s) / f - mean)
        batch = replace(self.batch, y=(self.batch.y - s) / f)
        if known_noise:
            batch = replace(batch, noise=batch.noise / f.square())
        before = Past(past.state, past.L / f, (past.mean - s) / f)
        return replace(self, now=replace(now, mu=mu, T=now.T / f), past=before, batch=batch)
