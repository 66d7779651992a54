"""Adam on the objective of one batch, its running moments carried from batch to batch.

An Adam that starts afresh moves every coordinate by its rate whatever the gradient: on a batch of
one point that spoils more of ``q`` than the point can teach. The moments therefore belong to the
state of the stream. Those of the inducing points are kept in units of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor, nn

from bo_stream.base.fitting.coordinates import Coordinates
from bo_stream.errors import StateError
from bo_stream.mathematics.shapes import shaped
from bo_stream.mathematics.variational.network import Network

__all__ = ["Memory", "climb", "empty_memory"]

WARM_UP_RATE = 0.05
"""Rate at which the climb on a first batch starts."""


@dataclass(frozen=True)
class Memory:
    """Adam's moments: of Z (``M x d``), ``mu`` (``M``), ``T`` (``M x M``) and hyperparameters.

    The last are flat, positive ones as logarithms.

    Attributes:
        step: Steps taken, 0-dim.
        first: Running means of the gradients.
        second: Running means of their squares.
    """

    step: Tensor = shaped("")
    first: tuple[Tensor, ...] = shaped("M d; M; M M; h")
    second: tuple[Tensor, ...] = shaped("M d; M; M M; h")

    def fitted(self, sizes: list[torch.Size]) -> Memory:
        """With zeros for coordinates that have joined since."""
        first, second = (
            tuple(_padded(t, size) for t, size in zip(ts, sizes, strict=True))
            for ts in (self.first, self.second)
        )
        return Memory(self.step, first, second)


def empty_memory(X: Tensor) -> Memory:
    """Before any step; X (``n x d``) gives dimension and device only."""
    zero = X.new_zeros(0, dtype=torch.float64)
    pieces = (zero.reshape(0, X.shape[-1]), zero, zero.reshape(0, 0), zero)
    return Memory(zero.new_zeros(()), pieces, pieces)


def climb(
    network: Network,
    objective: Callable[[], Tensor],
    memory: Memory,
    *,
    steps: int,
    rate: float,
    warm_up: bool = False,
) -> Memory:
    """Take Adam steps up an objective, in place, and return Adam's moments.

    Args:
        network: Its inducing points, ``q(v)`` and hyperparameters move, those that need a gradient.
        objective: Of the network as it is, 0-dim.
        memory: Moments so far.
        steps: How many steps, one evaluation each.
        rate: Adam's learning rate.
        warm_up: Anneal the rate from 0.05 down to ``rate`` by a cosine.

    Raises:
        StateError: if the climb leaves where the objective is finite.
    """
    coordinates = Coordinates(network, skip_mean=False)
    theta = coordinates.get().to(network.spread).requires_grad_(bool(coordinates.items))
    leaves: list[Tensor] = [*network.coordinates(), theta]
    units = [1.0 / network.spread, *[torch.ones_like(network.spread[:1])] * 3]
    adam = torch.optim.Adam([p for p in leaves if p.requires_grad], lr=rate, maximize=True)
    _recall(adam, leaves, memory.fitted([p.shape for p in leaves]), units)
    top = max(rate, WARM_UP_RATE) if warm_up else rate
    for i in range(steps):
        cosine = 0.5 * (1.0 + math.cos(math.pi * i / steps))
        adam.param_groups[0]["lr"] = rate + (top - rate) * cosine
        for p in (*network.parameters(), theta):
            p.grad = None
        try:
            objective().backward()
        except (NanError, NotPSDError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
            raise _astray(str(error)) from error
        if not all(
            bool(p.grad.isfinite().all()) for p in network.parameters() if p.grad is not None
        ):
            raise _astray("a gradient that is not finite")
        if coordinates.items:
            theta.grad = coordinates.gradient().to(theta)
        adam.step()
        if coordinates.items:
            with torch.no_grad():
                theta.copy_(coordinates.clip(theta.cpu()))
            coordinates.set(theta.detach().cpu())
    return _remembered(adam, leaves, memory.fitted([p.shape for p in leaves]), units, steps)


def _recall(
    adam: torch.optim.Adam, leaves: list[Tensor], memory: Memory, units: list[Tensor]
) -> None:
    """Give Adam the moments of its parameters."""
    if not float(memory.step):
        return
    for p, m, v, unit in zip(leaves, memory.first, memory.second, units, strict=True):
        if p.requires_grad:
            step = memory.step.detach().cpu().float()
            adam.state[p] = {"step": step, "exp_avg": m / unit, "exp_avg_sq": v / unit.square()}


def _remembered(
    adam: torch.optim.Adam, leaves: list[Tensor], before: Memory, units: list[Tensor], steps: int
) -> Memory:
    """The moments after the climb; as before where a parameter stood still."""
    first, second = list(before.first), list(before.second)
    for i, (p, unit) in enumerate(zip(leaves, units, strict=True)):
        if p in adam.state and "exp_avg" in adam.state[p]:
            first[i] = adam.state[p]["exp_avg"] * unit
            second[i] = adam.state[p]["exp_avg_sq"] * unit.square()
    return Memory(before.step + steps, tuple(first), tuple(second))


def _padded(t: Tensor, size: torch.Size) -> Tensor:
    """Zeros at the end of each dimension, up to a size."""
    pad = [0 for _ in range(2 * t.ndim)]
    for i, (have, want) in enumerate(zip(reversed(t.shape), reversed(size), strict=True)):
        pad[2 * i + 1] = want - have
    return nn.functional.pad(t, pad)


def _astray(got: str) -> StateError:
    return StateError(
        "a climb that stays where the objective is finite", got, "Lower `lr`, or take fewer steps."
    )
