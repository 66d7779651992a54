"""Any policy, followed by dropping the inducing points of least value (ours).

Dropping inducing point j from a state lowers the online bound by exactly

    loss_j = 1/2 (mu_j^2 / s_j + log s_j + g_j),    r_j = 1 / [K^-1]_jj,
    s_j = r_j [L^-T B^-1 L^-1]_jj,   mu_j = r_j^1/2 [L^-T B^-1 c]_j,   g_j = r_j [L^-T G L^-1]_jj :

the j-th point's coordinate ``(b_j - E[b_j | rest]) / r_j^1/2`` has prior N(0, 1), posterior
N(mu_j, s_j) and likelihood precision g_j; without the point, this coordinate has its prior.
Because ``L* - L-hat`` is a divergence (MATHS 4.1), the loss is added to the divergence from the
best possible update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.growth.policy import GrowthPolicy, Selection, check_cap, selected_update
from bo_stream.mathematics.inducing.state import Batch, SGPRState, eye, factor_B, solve
from bo_stream.mathematics.inducing.update import update

__all__ = ["Pruned", "drop_losses"]


@dataclass(frozen=True)
class Pruned:
    """Let a policy choose, then drop the cheapest points, one by one.

    Args:
        policy: The policy that grows.
        tolerance: Nats of the bound that may be lost, per observation in the batch.
        max_points: Points are dropped down to this number at any loss; None for no cap.

    O(M^3) per batch and again for every point dropped.
    """

    policy: GrowthPolicy
    tolerance: float = 1e-3
    max_points: int | None = None

    def __post_init__(self) -> None:
        check_cap(self.max_points)
        if self.tolerance < 0.0:
            remedy = "Zero prunes down to max_points only."
            raise InputError("a tolerance of at least 0", f"{self.tolerance}", remedy)

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """The inner policy's points, without those of least value."""
        chosen = self.policy.select(state, batch, kernel)
        after = selected_update(state, batch, kernel, chosen).state
        left = list(range(after.size))
        budget = self.tolerance * batch.size
        cap = after.size if self.max_points is None else self.max_points
        while after.size > 1:
            losses = drop_losses(after)
            j = int(losses.argmin())
            loss = max(float(losses[j]), 0.0)
            if loss > budget and after.size <= cap:
                break
            budget -= loss
            del left[j]
            after = _without(after, kernel, j)
        return _restricted(chosen, left)


def drop_losses(state: SGPRState) -> Tensor:
    """Fall of the online bound if one inducing point is dropped, for each (``M``); O(M^3)."""
    L_B, beta, _ = factor_B(state.G, state.c)
    W = solve(state.L, eye(state.L, state.size))  # L^-1; columns belong to inducing points
    r = 1.0 / W.square().sum(0)
    V = solve(L_B, W)
    s = r * V.square().sum(0)
    mu = r.sqrt() * (V.mT @ beta)
    g = r * (W * (state.G @ W)).sum(0)
    return 0.5 * (mu.square() / s + s.log() + g)


def _without(state: SGPRState, kernel: Kernel, j: int) -> SGPRState:
    """The state without inducing point j."""
    index = torch.arange(state.size, device=state.Z.device)
    old_index = torch.where(index > j, index - 1, index)
    old_index[j] = -1
    nothing = Batch(state.Z[:0], state.c[:0], state.c[:0])
    Z = state.Z[index != j]
    return update(state, nothing, kernel, state.mean, Z, old_index).state


def _restricted(chosen: Selection, left: list[int]) -> Selection:
    """A selection reduced to the rows ``left`` of its inducing points."""
    K, E = chosen.kept.shape[0], chosen.entered.shape[0]
    F = 0 if chosen.free is None else chosen.free.shape[0]
    rows = torch.tensor(left, dtype=torch.long, device=chosen.kept.device)
    blocks = rows if chosen.order is None else chosen.order[rows]
    stays = torch.zeros(K + E + F, dtype=torch.bool, device=rows.device)
    stays[blocks] = True
    order = None
    if chosen.order is not None:
        order = (stays.cumsum(0) - 1)[blocks]
    return Selection(
        chosen.kept[stays[:K]],
        chosen.entered[stays[K : K + E]],
        None if chosen.free is None else chosen.free[stays[K + E :]],
        order,
        chosen.optimal_bound,
    )
