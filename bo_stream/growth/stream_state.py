"""The state of a stream of batches: the posterior, and all that replays the last batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, cast

import torch
from torch import Tensor

from bo_stream.growth.misfit_monitor import MisfitMonitor
from bo_stream.growth.step import Choice, StepResult
from bo_stream.mathematics.inducing.bounds import merged_moments, moments_of
from bo_stream.mathematics.inducing.state import Batch, SGPRState, empty_state
from bo_stream.mathematics.shapes import shaped

__all__ = ["LastUpdate", "StreamState"]


@dataclass(frozen=True)
class LastUpdate:
    """Inducing points and bounds of the last batch.

    Attributes:
        kept: Indices of the inducing points before it that stayed.
        entered: Indices of its points that became inducing points, in order of choice.
        lower_bound: The online bound ``L-hat`` reached, in nats, transformed units.
        optimal_bound: ``L*``, which no choice of inducing points can exceed; NaN for large batches.
        upper_bound: ``U-hat``, an upper bound that needs no ``L*``; NaN if an inducing point was
            dropped.
    """

    kept: Tensor
    entered: Tensor
    lower_bound: Tensor
    optimal_bound: Tensor
    upper_bound: Tensor


@dataclass(frozen=True)
class StreamState:
    """The posterior of an online sparse GP, and its last batch.

    Attributes:
        now: The posterior of the inducing values.
        before: The same before the last batch.
        batch: The last batch, its noise before any learned scale.
        gathered: Rows gathered for a search of shorter lengthscales, likewise.
        watch: Scores of the predictions of earlier batches.
        kernel_now, kernel_before: Numbers that identify the kernels of ``now`` and ``before``.
        target_moments: Number, mean and squared deviations of all targets.
        batch_bounds: The sum of online bounds before the last batch, then the batch's as in
            `LastUpdate`; infinite if unknown, since NaN would not equal itself.
        entered: As in `LastUpdate`, padded with -1 to the batch's size.
        old_index: Row in ``now`` of each point of ``before``, -1 if dropped.
        batches: Number of batches absorbed.
    """

    now: SGPRState
    before: SGPRState
    batch: Batch
    gathered: Batch
    watch: MisfitMonitor
    kernel_now: Tensor = shaped("p")
    kernel_before: Tensor = shaped("p")
    target_moments: Tensor = shaped("3")
    batch_bounds: Tensor = shaped("4", "extended")
    entered: Tensor = shaped("N")
    old_index: Tensor = shaped("k")
    batches: Tensor = shaped("", "not negative")

    @classmethod
    def empty(cls, dim: int, jitter: float, kernel: Tensor) -> Self:
        """Before any batch; ``kernel`` identifies the kernel."""
        zero = torch.zeros((), dtype=torch.float64)
        nothing = empty_state(zero.new_zeros(0, dim), zero, jitter)
        none, count = nothing.c.long(), zero.long()
        batch, watch = Batch(nothing.Z, nothing.c, nothing.c), MisfitMonitor.none(zero)
        sums = zero.new_zeros(3), zero.new_zeros(4)
        parts = nothing, nothing, batch, batch, watch
        return cls(*parts, kernel, kernel.clone(), *sums, none, none, count)

    def batch_of(self, X: Tensor, y: Tensor, r: Tensor, scale: Tensor) -> Batch:
        """A new batch for growth policies, with scaled noise (``r``, ``N``; ``scale``, 0-dim)."""
        seen = cast(tuple[float, float, float], tuple(self.target_moments.tolist()))
        return Batch(X, y, scale * r, merged_moments(seen, moments_of(y)), int(self.batches))

    def last_batch(self, scale: Tensor) -> Batch:
        """The last batch under a noise scale (0-dim)."""
        moments = cast(tuple[float, float, float], tuple(self.target_moments.tolist()))
        noise = scale * self.batch.noise
        return replace(self.batch, noise=noise, moments=moments, index=int(self.batches) - 1)

    def choice(self) -> Choice:
        """The inducing points that the last batch left behind."""
        return Choice(self.now.Z, self.old_index, self.entries())

    def entries(self) -> Tensor:
        """Indices of the last batch's points that became inducing points."""
        return self.entered[self.entered >= 0]

    def after(self, batch: Batch, r: Tensor, result: StepResult, kernel: Tensor) -> Self:
        """With one more batch, its noise before any scale, and the result of its step."""
        own = Batch(batch.X.clone(), batch.y.clone(), r.clone())
        passed = replace(
            self,
            before=self.now,
            kernel_before=self.kernel_now,
            batch=own,
            target_moments=batch.y.new_tensor(batch.moments),
            batch_bounds=torch.cat([self.bound_sum().reshape(1), self.batch_bounds[1:]]),
            batches=self.batches + 1,
        )
        return passed.settled(result, kernel)

    def settled(self, result: StepResult, kernel: Tensor) -> Self:
        """With another result of the last batch."""
        entered = torch.full_like(self.batch.y, -1, dtype=torch.int64)
        entered[: len(result.choice.entered)] = result.choice.entered
        bounds = torch.cat([self.batch_bounds[:1], result.bounds])
        return replace(
            self,
            now=result.state,
            kernel_now=kernel,
            entered=entered,
            old_index=result.choice.old_index.clone(),
            batch_bounds=bounds.nan_to_num(torch.inf, torch.inf),
        )

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The state for targets ``(y - shift) / factor`` (0-dim both). Bounds are those computed in
        the old units, as densities in the new ones.
        """
        s, f = shift, factor
        precision = f.square() if known_noise else torch.ones_like(f)

        count, mean, squares = self.target_moments
        N = float(self.batch.size)
        points = torch.stack([count - N, *[count.new_tensor(N)] * 3])

        def rows(own: Batch) -> Batch:
            return replace(own, y=(own.y - s) / f, noise=own.noise / precision)

        return replace(
            self,
            now=self.now.in_units(s, f, precision),
            before=self.before.in_units(s, f, precision),
            batch=rows(self.batch),
            gathered=rows(self.gathered),
            target_moments=torch.stack([count, (mean - s) / f, squares / f.square()]),
            batch_bounds=self.batch_bounds + points * f.log(),
        )

    def restarted(self, rows: Batch, mean: Tensor, kernel: Tensor) -> Self:
        """As if only these rows had been seen."""
        nothing = empty_state(rows.X, mean, self.now.jitter)
        return replace(self, before=nothing, kernel_before=kernel, batch=rows)

    def bound_sum(self) -> Tensor:
        """Sum of the online bounds of all batches, 0-dim."""
        return self.batch_bounds[:2].sum()

    def last_update(self) -> LastUpdate:
        """Inducing points and bounds of the last batch."""
        kept = (self.old_index >= 0).nonzero().squeeze(-1)
        known = self.batch_bounds[1:]
        lower, optimal, upper = known.masked_fill(known.isinf(), torch.nan)
        return LastUpdate(kept, self.entries(), lower, optimal, upper)
