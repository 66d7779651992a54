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

from bo_stream.errors import StateError
from bo_stream.svgp_network import Network

__all__ = ["Memory", "climb", "empty_memory"]

WARM_UP_RATE = 0.05
"""Rate at which the climb on a first batch starts."""


@dataclass(frozen=True)
class Memory:
    """Adam's moments: of Z (``M x d``), ``mu`` (``M``), ``T`` (``M x M``), hyperparameters (flat).

    Attributes:
        step: Steps taken, 0-dim.
        first: Running means of the gradients.
        second: Running means of their squares.
    """

    step: Tensor
    first: tuple[Tensor, ...]
    second: tuple[Tensor, ...]

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
    groups: list[list[Tensor]] = [[p] for p in network.coordinates()] + [
        list(network.hyperparameters())
    ]
    sizes = [p.shape for (p,) in groups[:3]] + [torch.Size([sum(p.numel() for p in groups[3])])]
    memory = memory.fitted(sizes)
    units = [1.0 / network.spread, *(torch.ones_like(network.spread[:1]) for _ in range(3))]
    moving = [p for group in groups for p in group if p.requires_grad]
    adam = torch.optim.Adam(moving, lr=rate, maximize=True)
    for group, m, v, unit in zip(groups, memory.first, memory.second, units, strict=True):
        _recall(adam, group, memory.step, m / unit, v / unit.square())
    top = max(rate, WARM_UP_RATE) if warm_up else rate
    for i in range(steps):
        cosine = 0.5 * (1.0 + math.cos(math.pi * i / steps))
        adam.param_groups[0]["lr"] = rate + (top - rate) * cosine
        adam.zero_grad()
        try:
            value = objective()
            value.backward()
        except (NanError, NotPSDError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
            raise _astray(str(error)) from error
        adam.step()
    if not all(bool(p.isfinite().all()) for p in moving):
        raise _astray("values that are not finite")
    first, second = [], []
    for group, m, v, unit in zip(groups, memory.first, memory.second, units, strict=True):
        held = [adam.state[p] for p in group if p in adam.state and "exp_avg" in adam.state[p]]
        first.append(_gathered(held, "exp_avg", m / unit) * unit)
        second.append(_gathered(held, "exp_avg_sq", v / unit.square()) * unit.square())
    return Memory(memory.step + steps, tuple(first), tuple(second))


def _recall(adam: torch.optim.Adam, group: list[Tensor], step: Tensor, *held: Tensor) -> None:
    """Give Adam the moments of one group of parameters."""
    start = 0
    for p in group:
        m, v = (t if len(group) == 1 else t[start : start + p.numel()] for t in held)
        start += p.numel()
        if p.requires_grad and float(step):
            adam.state[p] = {
                "step": step.detach().cpu().float(),
                "exp_avg": m.reshape(p.shape).clone(),
                "exp_avg_sq": v.reshape(p.shape).clone(),
            }


def _gathered(held: list[dict[str, Tensor]], name: str, before: Tensor) -> Tensor:
    """One group's moments in the shape they are kept in; as before if the group stood still."""
    if not held:
        return before
    return torch.cat([state[name].reshape(-1) for state in held]).reshape(before.shape)


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
