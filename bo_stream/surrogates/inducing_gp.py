"""The base of `OnlineSGPR` and `SVDGP`: a growth policy, and a sample of rows to learn from."""

from __future__ import annotations

import torch
from torch import Tensor

from bo_stream.base.snapshot import numbers_of
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.growth import GrowthPolicy
from bo_stream.mathematics.inducing import InducingState, SparsePrior
from bo_stream.mathematics.kernels import frozen_kernel

__all__ = ["EVIDENCE_ROWS", "InducingGP"]

EVIDENCE_ROWS = 600
"""Rows that hyperparameters are learned from."""


class InducingGP(StreamingGP):
    """A Gaussian process of one output with inducing points that a growth policy chooses.

    The hyperparameters maximise the exact evidence of at most 600 rows, evenly spread over the
    stream.
    """

    growth: GrowthPolicy

    @property
    def inducing_points(self) -> Tensor:
        """The inducing points, ``M x d``, raw, float64."""
        return self._raw_inputs(self.state.points.Z)

    @torch.no_grad()
    def _prior(self) -> SparsePrior:
        """The current hyperparameters."""
        scale, mean = self._noise_scale()[0], self._prior_mean()[0]
        numbers = numbers_of(self.covar_module, self.likelihood, self.mean_module).to(scale)
        return SparsePrior(frozen_kernel(self.covar_module), mean.clone(), scale.clone(), numbers)

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "p": len(self._prior().numbers)}

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence of the sample of rows: O(600^3)."""
        state: InducingState = self.state
        rows = state.sample.thinned(EVIDENCE_ROWS)
        mean = None if profile_mean and len(rows.y) else self._prior_mean()
        return rows.log_evidence(self.covar_module, self._noise_scale(), mean)
