"""The choice of nodes among the data (MATHS 2.8)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from bo_stream.mathematics.data_nodes.node_exchange import NodeExchange
from bo_stream.mathematics.data_nodes.prior import NodePrior, Projection, node_root
from bo_stream.mathematics.data_nodes.state import NodeState

__all__ = ["absorb", "entrants", "swap"]

FLOOR = 1e-13
"""Share of the prior variance below which a conditional variance is a rounding error."""
CHUNK = 4096
"""Points processed together."""
COMPETING = 512
"""Candidates that are exchanged with nodes together."""


def absorb(
    state: NodeState,
    X: Tensor,
    Y: Tensor,
    R: Tensor,
    prior: NodePrior,
    *,
    cap: int,
    tolerance: float,
) -> NodeState:
    """The state after a batch.

    A point that becomes a node has a unit row. The row of any other point is its projection on the
    nodes under the current hyperparameters, and the variance that the projection misses is added to
    its noise. Both are frozen then. O(q m^2 + m^3), and O(q m) for each node added or replaced.

    Args:
        state: The state before.
        X: ``q x d``.
        Y: ``o x q``.
        R: ``o x q`` noise variances before any learned scale.
        prior: The current hyperparameters.
        cap: Largest number of nodes.
        tolerance: Share of the noise variance (and, times 0.1, of the prior variance) that a
            conditional variance must exceed for a point to become a node.
    """
    if len(X) > CHUNK:
        for rows in torch.arange(len(X), device=X.device).split(CHUNK):
            part = X[rows], Y[:, rows], R[:, rows]
            state = absorb(state, *part, prior, cap=cap, tolerance=tolerance)
        return state
    state = state if bool(state.one.any()) else state.counted_from(Y)  # nothing seen yet
    room, place = cap - state.size, _nowhere(X)
    if room > 0:
        joining = entrants(state.Z, X, R, prior, room, tolerance)
        place[joining] = torch.arange(len(joining), device=X.device) + state.size
        state = state.joined_by(X[joining])
    rest = (place < 0).nonzero().squeeze(-1)
    if state.size < cap or not len(rest):
        return _with_rows(state, X, Y, R, place, prior)
    known = (place >= 0).nonzero().squeeze(-1)  # before they can make room for others
    state = _with_rows(state, X[known], Y[:, known], R[:, known], place[known], prior)
    for some in rest.split(COMPETING):
        part = X[some], Y[:, some], R[:, some]
        state = _beyond_the_cap(state, *part, prior, tolerance)
    return state


def _beyond_the_cap(
    state: NodeState, X: Tensor, Y: Tensor, R: Tensor, prior: NodePrior, tolerance: float
) -> NodeState:
    """With more points once the cap is reached: candidates may replace nodes."""
    seen, place = Projection.of(prior, state.Z, X), _nowhere(X)
    competing = (seen.rho > _least(seen.variances, R, prior, tolerance)).any(0)
    if bool(competing.any()):
        before = state
        state, place = swap(state, X, seen, competing, prior)
        if state is not before:
            return _with_rows(state, X, Y, R, place, prior)
    return _with_rows(state, X, Y, R, place, prior, seen)


def _with_rows(
    state: NodeState,
    X: Tensor,
    Y: Tensor,
    R: Tensor,
    place: Tensor,
    prior: NodePrior,
    seen: Projection | None = None,
) -> NodeState:
    """With more points: unit rows for those that are nodes (``place >= 0``), projections for the
    others.
    """
    nodes, others = (place >= 0).nonzero().squeeze(-1), (place < 0).nonzero().squeeze(-1)
    W = X.new_zeros(len(Y), len(X), state.size)
    W[:, nodes, place[nodes]] = 1.0
    if len(others):
        if seen is None:
            seen = Projection.of(prior, state.Z, X[others])
        W[:, others] = seen.W.mT
        R = R.index_add(1, others, seen.rho.clamp_min(0.0) / prior.s2.unsqueeze(-1))
    return state.absorb(W, Y, R)


def _nowhere(X: Tensor) -> Tensor:
    """Node numbers of points of which none is a node."""
    return torch.full((len(X),), -1, device=X.device)


def _least(variances: Tensor, R: Tensor, prior: NodePrior, tolerance: float) -> Tensor:
    """The threshold of conditional variances, ``o x q``."""
    noise = tolerance * prior.s2.unsqueeze(-1) * R
    return torch.maximum(noise, max(0.1 * tolerance, FLOOR) * variances)


def entrants(
    Z: Tensor, X: Tensor, R: Tensor, prior: NodePrior, room: int, tolerance: float
) -> Tensor:
    """The points that become nodes, greedily by conditional variance: a pivoted Cholesky
    factorisation. All of them if there is room and the tolerance is 0.

    With several outputs, a point counts by its largest conditional variance.
    """
    o, q, room = len(prior.s2), len(X), min(room, len(X))
    if room == q and tolerance == 0.0:
        return torch.arange(q, device=X.device)
    variances = prior.variances(X)
    floor, least = FLOOR * variances, _least(variances, R, prior, tolerance)
    L = node_root(prior.between(Z, Z))
    a = torch.linalg.solve_triangular(L, prior.between(Z, X), upper=False)
    rho = variances - a.square().sum(-2)
    more = X.new_zeros(o, room, q)
    free = torch.ones(q, dtype=torch.bool, device=X.device)
    chosen: list[int] = []
    while len(chosen) < room:
        need = torch.where(free, (rho / least).amax(0), 0.0)
        i = int(need.argmax())
        if not bool(need[i] > 1.0):
            break
        k = len(chosen)
        row = prior.between(X[i : i + 1], X)
        row = row - a[:, :, i : i + 1].mT @ a - more[:, :k, i : i + 1].mT @ more[:, :k]
        pivot = torch.maximum(rho[:, i], floor[:, i]).sqrt()
        more[:, k] = row.squeeze(-2) / pivot.unsqueeze(-1)
        rho = rho - more[:, k].square()
        free[i] = False
        chosen.append(i)
    return torch.tensor(chosen, dtype=torch.long, device=X.device)


def swap(
    state: NodeState, X: Tensor, seen: Projection, competing: Tensor, prior: NodePrior
) -> tuple[NodeState, Tensor]:
    """Replace nodes by candidates of larger conditional variance, the largest first.

    A node is compared by its variance given the other nodes, a candidate by its variance given all
    nodes. With several outputs, a node counts by its largest, a candidate by its smallest relative
    variance. O(m^3), and O(m^2 + q m) for each replacement.

    Args:
        state: The state before; returned itself if no node is replaced.
        X: The candidates, ``q x d``.
        seen: Their projections on the nodes.
        competing: Which of them may replace nodes, ``q``.
        prior: The current hyperparameters.

    Returns:
        The state, and the node number of each candidate, ``q``: -1 for none.
    """
    slots, free = NodeExchange.of(state, seen), competing.clone()
    holder = torch.full((state.size,), -1, device=X.device)
    while True:
        gains = torch.where(free, (slots.rho / seen.variances).amin(0), 0.0)
        i, scores = int(gains.argmax()), slots.scores()
        j = int(scores.argmin())
        if not bool(gains[i] > scores[j].clamp_min(FLOOR)):
            break
        k = prior.between(X[i : i + 1], X).squeeze(-2)
        slots.replace_node(j, i, k, seen.variances[:, i])
        free[i], holder[j] = False, i
    place, held = _nowhere(X), (holder >= 0).nonzero().squeeze(-1)
    if not len(held):
        return state, place
    place[holder[held]] = held
    Z = torch.where((holder >= 0).unsqueeze(-1), X[holder.clamp_min(0)], state.Z)
    return replace(state, A=slots.A, b=slots.b, w1=slots.w1, Z=Z), place
