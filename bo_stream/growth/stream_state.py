"""What a stream of batches keeps: the law now, and what it takes to absorb the last batch again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, cast

import torch
from torch import Tensor

from bo_stream.growth.misfit_monitor import Watch
from bo_stream.growth.step import Choice, Outcome
from bo_stream.mathematics.inducing.bounds import merged_moments, moments_of
from bo_stream.mathematics.inducing.state import Batch, SGPRState, empty_state
from bo_stream.mathematics.shapes import shaped

__all__ = ["LastUpdate", "StreamRecord"]


@dataclass(frozen=True)
class LastUpdate:
    """What the last batch did.

    Attributes:
        kept: Indices of the inducing points before it that stayed.
        entered: Indices of its points that became inducing points, in order of choice.
        lower_bound: The online bound ``L-hat`` reached, in nats, transformed units.
        optimal_bound: ``L*``, what no choice of inducing points can beat; NaN for batches too large
            to work it out.
        upper_bound: ``U-hat``, what was known without ``L*``; NaN if an inducing point was dropped.
    """

    kept: Tensor
    entered: Tensor
    lower_bound: Tensor
    optimal_bound: Tensor
    upper_bound: Tensor


@dataclass(frozen=True)
class StreamRecord:
    """The law of an online sparse GP, and its last batch.

    Attributes:
        now: The law of the inducing values.
        before: The same before the last batch.
        batch: The last batch, its noise before any learned scale.
        gathered: Rows gathered for a search of shorter lengthscales, likewise.
        watch: How predictions of the batches fitted to held up.
        kernel_now, kernel_before: What the kernel was that each was made with, as numbers.
        target_moments: Number, mean and squared deviations of all targets.
        batch_bounds: The sum of online bounds before the last batch, then the batch's as in
            `LastUpdate`; infinite where unknown, since NaN would not equal itself.
        entered: As in `LastUpdate`, padded with -1 to the batch's size: constant bytes.
        old_index: Where each point of ``before`` is kept now, -1 where it was dropped.
        batches: Number of batches absorbed.
    """

    now: SGPRState
    before: SGPRState
    batch: Batch
    gathered: Batch
    watch: Watch
    kernel_now: Tensor = shaped("p")
    kernel_before: Tensor = shaped("p")
    target_moments: Tensor = shaped("3")
    batch_bounds: Tensor = shaped("4", "extended")
    entered: Tensor = shaped("N")
    old_index: Tensor = shaped("k")
    batches: Tensor = shaped("", "not negative")

    @classmethod
    def empty(cls, dim: int, jitter: float, kernel: Tensor) -> Self:
        """Before any batch; ``kernel`` is what the kernel is."""
        zero = torch.zeros((), dtype=torch.float64)
        nothing = empty_state(zero.new_zeros(0, dim), zero, jitter)
        none, count = nothing.c.long(), zero.long()
        batch, watch = Batch(nothing.Z, nothing.c, nothing.c), Watch.none(zero)
        sums = zero.new_zeros(3), zero.new_zeros(4)
        laws = nothing, nothing, batch, batch, watch
        return cls(*laws, kernel, kernel.clone(), *sums, none, none, count)

    def batch_of(self, X: Tensor, y: Tensor, r: Tensor, scale: Tensor) -> Batch:
        """A batch to come, its noise ``r`` (``N``) scaled (0-dim), as growth policies see it."""
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

    def after(self, batch: Batch, r: Tensor, outcome: Outcome, kernel: Tensor) -> Self:
        """With one batch more: the batch, its noise before any scale, and what came of it."""
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
        return passed.settled(outcome, kernel)

    def settled(self, outcome: Outcome, kernel: Tensor) -> Self:
        """With another outcome of the last batch."""
        entered = torch.full_like(self.batch.y, -1, dtype=torch.int64)
        entered[: len(outcome.choice.entered)] = outcome.choice.entered
        bounds = torch.cat([self.batch_bounds[:1], outcome.bounds])
        return replace(
            self,
            now=outcome.state,
            kernel_now=kernel,
            entered=entered,
            old_index=outcome.choice.old_index.clone(),
            batch_bounds=bounds.nan_to_num(torch.inf, torch.inf),
        )

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """Old likelihoods of function values and the last batch in the units ``(y - shift) /
        factor`` (0-dim both). The bounds stay those worked out in the old units, as densities per
        new unit.
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
        """As if these rows were all that was ever seen."""
        nothing = empty_state(rows.X, mean, self.now.jitter)
        return replace(self, before=nothing, kernel_before=kernel, batch=rows)

    def bound_sum(self) -> Tensor:
        """Sum of the online bounds of all batches, 0-dim."""
        return self.batch_bounds[:2].sum()

    def last_update(self) -> LastUpdate:
        """What the last batch did."""
        kept = (self.old_index >= 0).nonzero().squeeze(-1)
        known = self.batch_bounds[1:]
        lower, optimal, upper = known.masked_fill(known.isinf(), torch.nan)
        return LastUpdate(kept, self.entries(), lower, optimal, upper)
