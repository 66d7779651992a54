"""One step of a stream: re-express the state, choose inducing points, absorb the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.growth.policy import GrowthPolicy, inducing_points
from bo_stream.mathematics.inducing.bounds import optimal_bound, upper_bound
from bo_stream.mathematics.inducing.state import Batch, SGPRState
from bo_stream.mathematics.inducing.update import rebase, update

__all__ = ["Choice", "StepResult", "step"]

LARGEST_OPTIMAL = 2048
"""Batches up to this size have ``L*`` computed even if the growth policy did not."""


@dataclass(frozen=True)
class Choice:
    """Inducing points already chosen.

    Attributes:
        Z: The points, ``M_b x d``.
        old_index: Row of Z at which each old point is kept, -1 where it is dropped; ``M_a``.
        entered: Indices of the batch points among them.
    """

    Z: Tensor
    old_index: Tensor
    entered: Tensor


@dataclass(frozen=True)
class StepResult:
    """The state after a batch, with its inducing points and bounds.

    Attributes:
        state: The new state.
        choice: Its inducing points.
        bounds: ``L-hat``, ``L*`` and ``U-hat`` of the batch, including the change of
            hyperparameters before it; NaN if not computed.
    """

    state: SGPRState
    choice: Choice
    bounds: Tensor


def step(
    before: SGPRState,
    batch: Batch,
    kernel: Kernel,
    mean: Tensor,
    choose: GrowthPolicy | Choice,
    *,
    same_kernel: bool,
) -> StepResult:
    """Absorb a batch: the policy's cost, and O(N M^2 + M^3); O(N^3) for ``L*``.

    Args:
        before: The state before the batch, under its own hyperparameters.
        batch: The data.
        kernel: The current kernel.
        mean: The current prior mean, 0-dim.
        choose: A growth policy, or a choice.
        same_kernel: The kernel is that of ``before``.
    """
    state, change = rebase(before, kernel, mean, same_kernel=same_kernel)
    optimal: float | None = None
    if not isinstance(choose, Choice):
        selection = choose.select(state, batch, kernel)
        Z, old_index, _ = inducing_points(state, batch, selection)
        choose, optimal = Choice(Z, old_index, selection.entered), selection.optimal_bound
    out = update(state, batch, kernel, state.mean, choose.Z, choose.old_index, same_kernel=True)
    if optimal is None:
        small = batch.size <= LARGEST_OPTIMAL
        optimal = float(optimal_bound(state, batch, kernel)) if small else math.nan
    upper = float(upper_bound(out, batch)) if out.keeps_all else math.nan
    bounds = torch.stack([out.bound, *out.bound.new_tensor([optimal, upper])])
    return StepResult(out.state, choose, change + bounds)
