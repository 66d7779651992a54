"""The state of a stream of batches: the posterior, and all that replays the last rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, cast

import torch
from torch import Tensor

from bo_stream.growth.misfit_monitor import MisfitMonitor
from bo_stream.growth.step import Choice, StepResult
from bo_stream.mathematics.inducing.bounds import merged_moments, moments_of
from bo_stream.mathematics.inducing.state import Batch, SGPRState, empty_state, joined
from bo_stream.mathematics.shapes import shaped

__all__ = ["SMALL", "WINDOW", "LastUpdate", "StreamState"]

SMALL = 20
"""Batches of fewer rows join the window of those before them,"""
WINDOW = 512
"""up to this many rows in all."""


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
    """The posterior of an online sparse GP, and a window of the last rows.

    The window is the last batch of `SMALL` rows or more with the smaller ones that followed it.
    Hyperparameters are learned from it, and its update is replayed under them.

    Attributes:
        now: The posterior of the inducing values.
        before: The same before the window.
        batch: The rows of the window, their noise before any learned scale.
        gathered: Rows gathered for a search of shorter lengthscales, likewise.
        watch: Scores of the predictions of earlier batches.
        kernel_now, kernel_before: Numbers that identify the kernels of ``now`` and ``before``.
        target_moments: Number, mean and squared deviations of all targets.
        batch_bounds: Sums of online bounds before the window, and in it before the last batch; then
            the last batch's as in `LastUpdate`. They are infinite if unknown, since NaN would not
            equal itself.
        entered: Rows of the window that became inducing points, padded with -1 to its size.
        kept: As in `LastUpdate`.
        old_index: Row in ``now`` of each point of ``before``, -1 if dropped.
        last: Number of rows of the last batch; all of the window once it was replayed.
        batches: Number of batches absorbed.
        fitted: Number of observations at the last fit.
    """

    now: SGPRState
    before: SGPRState
    batch: Batch
    gathered: Batch
    watch: MisfitMonitor
    kernel_now: Tensor = shaped("p")
    kernel_before: Tensor = shaped("p")
    target_moments: Tensor = shaped("3")
    batch_bounds: Tensor = shaped("5", "extended")
    entered: Tensor = shaped("N")
    kept: Tensor = shaped("j")
    old_index: Tensor = shaped("k")
    last: Tensor = shaped("", "not negative")
    batches: Tensor = shaped("", "not negative")
    fitted: Tensor = shaped("", "not negative")

    @classmethod
    def empty(cls, dim: int, jitter: float, kernel: Tensor) -> Self:
        """Before any batch; ``kernel`` identifies the kernel."""
        zero = torch.zeros((), dtype=torch.float64)
        nothing = empty_state(zero.new_zeros(0, dim), zero, jitter)
        none, count = nothing.c.long(), zero.long()
        batch, watch = Batch(nothing.Z, nothing.c, nothing.c), MisfitMonitor.none(zero)
        sums = zero.new_zeros(3), zero.new_zeros(5)
        parts = nothing, nothing, batch, batch, watch
        indices = none, none.clone(), none.clone()
        counts = count, count.clone(), count.clone()
        return cls(*parts, kernel, kernel.clone(), *sums, *indices, *counts)

    def batch_of(self, X: Tensor, y: Tensor, r: Tensor, scale: Tensor) -> Batch:
        """A new batch for growth policies, with scaled noise (``r``, ``N``; ``scale``, 0-dim)."""
        seen = cast(tuple[float, float, float], tuple(self.target_moments.tolist()))
        return Batch(X, y, scale * r, merged_moments(seen, moments_of(y)), int(self.batches))

    def window(self, scale: Tensor) -> Batch:
        """The rows of the window under a noise scale (0-dim)."""
        moments = cast(tuple[float, float, float], tuple(self.target_moments.tolist()))
        noise = scale * self.batch.noise
        return replace(self.batch, noise=noise, moments=moments, index=int(self.batches) - 1)

    def choice(self) -> Choice:
        """The inducing points that the window left behind."""
        return Choice(self.now.Z, self.old_index, self.entries())

    def entries(self) -> Tensor:
        """Rows of the window that became inducing points."""
        return self.entered[self.entered >= 0]

    def after(self, batch: Batch, r: Tensor, result: StepResult, kernel: Tensor) -> Self:
        """With one more batch, its noise before any scale, and the result of its step."""
        own = Batch(batch.X.clone(), batch.y.clone(), r.clone())
        stream = replace(
            self,
            target_moments=batch.y.new_tensor(batch.moments),
            batches=self.batches + 1,
        )
        if self.takes(batch.size):
            return stream._longer(own, result, kernel)
        total = self.bound_sum().reshape(1)
        passed = replace(
            stream,
            before=self.now,
            kernel_before=self.kernel_now,
            batch=own,
            batch_bounds=torch.cat([total, self.batch_bounds[1:]]),
        )
        return passed.settled(result, kernel)

    def takes(self, rows: int) -> bool:
        """Whether a batch of so many rows joins the window."""
        return self.batch.size > 0 and rows < SMALL and self.batch.size + rows <= WINDOW

    def _longer(self, own: Batch, result: StepResult, kernel: Tensor) -> Self:
        """With a batch more in the window."""
        choice, old = result.choice, self.old_index
        moved = choice.old_index[old.clamp_min(0)] if len(choice.old_index) else old
        entered = torch.cat([self.entries(), self.batch.size + choice.entered])
        earlier = self.batch_bounds[1:3].sum().reshape(1)
        return replace(
            self,
            now=result.state,
            kernel_now=kernel,
            batch=joined(self.batch, own),
            entered=_padded(entered, self.batch.size + own.size),
            kept=_kept(choice.old_index),
            old_index=torch.where(old < 0, old, moved),
            last=torch.full_like(self.last, own.size),
            batch_bounds=_known(self.batch_bounds[:1], earlier, result.bounds),
        )

    def settled(self, result: StepResult, kernel: Tensor) -> Self:
        """With another result of the whole window."""
        choice, bounds = result.choice, self.batch_bounds
        return replace(
            self,
            now=result.state,
            kernel_now=kernel,
            entered=_padded(choice.entered, self.batch.size),
            kept=_kept(choice.old_index),
            old_index=choice.old_index.clone(),
            last=torch.full_like(self.last, self.batch.size),
            batch_bounds=_known(bounds[:1], 0.0 * bounds[:1], result.bounds),
        )

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The state for targets ``(y - shift) / factor`` (0-dim both). Bounds are those computed in
        the old units, as densities in the new ones.
        """
        s, f = shift, factor
        precision = f.square() if known_noise else torch.ones_like(f)

        count, mean, squares = self.target_moments
        N, last = float(self.batch.size), self.last.to(count)
        points = torch.stack([count - N, N - last, last, last, last])

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
        return self.batch_bounds[:3].sum()

    def last_update(self) -> LastUpdate:
        """Inducing points and bounds of the last batch."""
        entered = self.entries() - (self.batch.size - self.last)
        known = self.batch_bounds[2:]
        lower, optimal, upper = known.masked_fill(known.isinf(), torch.nan)
        return LastUpdate(self.kept, entered[entered >= 0], lower, optimal, upper)


def _padded(entered: Tensor, size: int) -> Tensor:
    """Indices padded with -1."""
    return torch.nn.functional.pad(entered, (0, size - len(entered)), value=-1)


def _kept(old_index: Tensor) -> Tensor:
    """The points that have a row."""
    return (old_index >= 0).nonzero().squeeze(-1)


def _known(*bounds: Tensor) -> Tensor:
    """Bounds in one tensor, infinite where unknown."""
    return torch.cat(bounds).nan_to_num(torch.inf, torch.inf)
