"""A Gaussian process on nodes that are data points (MATHS 2.8): state, choice, posterior, evidence.

The nodes are shared by all outputs. Each output has its own statistics, because rows of W depend on
its hyperparameters at arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from bo_stream.mathematics.autograd import attach
from bo_stream.mathematics.evidence import factorise, root_gradient, under_root
from bo_stream.mathematics.kernels import Prior
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.process import KernelBasis, Process
from bo_stream.mathematics.shapes import Rows, shaped
from bo_stream.mathematics.sums import SufficientStatistics, far

__all__ = ["NodeState", "absorb", "node_evidence", "node_process"]

FLOOR = 1e-13
"""Share of the prior variance below which a conditional variance is a rounding error."""
TINY = 1e-300
"""Replaces zero in divisions."""
CHUNK = 4096
"""Points of which the first nodes are chosen together."""
COMPETING = 512
"""Candidates that are exchanged with nodes together."""


@dataclass(frozen=True)
class NodeState(SufficientStatistics):
    """Statistics over nodes; never changed in place. Their rows need not sum to one, so those of a
    constant mean are kept, too.

    Attributes:
        w1: ``W'R^-1 1``.
        y1: ``1'R^-1 (y - origin)``.
        one: ``1'R^-1 1``.
        Z: The nodes, in transformed space.
    """

    w1: Tensor = shaped("s m")
    y1: Tensor = shaped("o")
    one: Tensor = shaped("s", "not negative")
    Z: Tensor = shaped("m d")

    powers: ClassVar[dict[str, int]] = {
        **SufficientStatistics.powers,
        "w1": 0,
        "y1": 1,
        "one": 0,
    }

    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """As kept."""
        return self.w1, self.y1, self.one

    def about(self, origin: Tensor) -> Self:
        """The same statistics about another origin: O(m)."""
        return replace(super().about(origin), y1=self.y1 - (origin - self.origin) * self.one)

    @classmethod
    def before_data(cls, dim: int, outputs: int) -> Self:
        """Without nodes."""
        o = torch.zeros(outputs, dtype=torch.float64)
        sums = {"w1": o.new_zeros(outputs, 0), "y1": o, "one": o.clone()}
        return cls.zeros((0, 0), 0, outputs, False, **sums, Z=o.new_zeros(0, dim))

    def joined_by(self, X: Tensor) -> Self:
        """With more nodes, ``q x d``, whose statistics are zero."""
        q = len(X)
        b, w1 = (F.pad(t, (0, q)) for t in (self.b, self.w1))
        Z = torch.cat([self.Z, X])
        return replace(self, A=F.pad(self.A, (0, q, 0, q)), b=b, w1=w1, Z=Z)

    def with_rows(self, W: Tensor, Y: Tensor, R: Tensor) -> Self:
        """With more rows: W ``o x q x m``, Y and R ``o x q`` (MATHS 2.2). O(q m^2)."""
        y, weights = Y - self.origin.unsqueeze(-1), 1.0 / R
        weighted = (W * weights.unsqueeze(-1)).mT
        return replace(
            self,
            A=torch.baddbmm(self.A, weighted, W),
            b=self.b + (weighted @ y.unsqueeze(-1)).squeeze(-1),
            yy=self.yy + (weights * y * y).sum(-1),
            ld=self.ld + R.log().sum(-1),
            weight=self.weight + Y.shape[-1],
            w1=self.w1 + weighted.sum(-1),
            y1=self.y1 + (weights * y).sum(-1),
            one=self.one + weights.sum(-1),
        )


# -- update --------------------------------------------------------------------------------------


def absorb(
    state: NodeState,
    rows: Rows,
    prior: Prior,
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
        rows: The batch, with ``o x q`` noise variances.
        prior: The current hyperparameters.
        cap: Largest number of nodes.
        tolerance: Share of the noise variance (and, times 0.1, of the prior variance) that a
            conditional variance must exceed for a point to become a node.
    """
    X, Y, R = rows.X, rows.Y, rows.R
    if not bool(state.one.any()):  # nothing seen yet
        state = replace(state, origin=far(Y[:, :CHUNK].mean(-1)))
    for chunk in torch.arange(len(X), device=X.device).split(CHUNK):
        joining = chunk[:0]
        if len(state.Z) < cap:
            room = cap - len(state.Z)
            joining = chunk[entrants(state.Z, X[chunk], R[:, chunk], prior, room, tolerance)]
            state = state.joined_by(X[joining])
        if len(joining):  # before they can make room for others
            units = torch.eye(len(state.Z), dtype=X.dtype, device=X.device)[-len(joining) :]
            state = state.with_rows(units.expand(len(Y), -1, -1), Y[:, joining], R[:, joining])
        others = chunk[~torch.isin(chunk, joining)]
        for some in others.split(COMPETING) if len(others) else ():
            state = _projected(state, X[some], Y[:, some], R[:, some], prior, tolerance)
    return state


def least(prior: Prior, X: Tensor, R: Tensor, tolerance: float) -> Tensor:
    """Conditional variances from which points of noise R are worth a node, ``o x q``."""
    noise = tolerance * prior.s2.unsqueeze(-1) * R
    return torch.maximum(noise, max(0.1 * tolerance, FLOOR) * prior.variances(X))


def entrants(Z: Tensor, X: Tensor, R: Tensor, prior: Prior, room: int, tolerance: float) -> Tensor:
    """The points that become nodes, greedily by conditional variance: a pivoted Cholesky
    factorisation. All of them if there is room and the tolerance is 0.

    With several outputs, a point counts by its largest conditional variance.
    """
    o, q, room = len(prior.s2), len(X), min(room, len(X))
    if room == q and tolerance == 0.0:
        return torch.arange(q, device=X.device)
    variances, enough = prior.variances(X), least(prior, X, R, tolerance)
    L = chol_psd(prior.between(Z, Z))
    a = torch.linalg.solve_triangular(L, prior.between(Z, X), upper=False)
    rho = variances - a.square().sum(-2)
    more = X.new_zeros(o, room, q)
    chosen: list[int] = []
    while len(chosen) < room:
        need = (rho / enough).amax(0)
        i = int(need.argmax())
        if not bool(need[i] > 1.0):
            break
        k = len(chosen)
        row = prior.between(X[i : i + 1], X)
        row = row - a[:, :, i : i + 1].mT @ a - more[:, :k, i : i + 1].mT @ more[:, :k]
        pivot = torch.maximum(rho[:, i], FLOOR * variances[:, i]).sqrt()
        more[:, k] = row.squeeze(-2) / pivot.unsqueeze(-1)
        rho = rho - more[:, k].square()
        rho[:, i] = -torch.inf
        chosen.append(i)
    return torch.tensor(chosen, dtype=torch.long, device=X.device)


def _projected(
    state: NodeState, X: Tensor, Y: Tensor, R: Tensor, prior: Prior, tolerance: float
) -> NodeState:
    """With more points, which replace nodes or have projections as rows."""
    L, G, W, rho = projections(prior, state.Z, X)
    place = torch.full((len(X),), -1, device=X.device)
    competing = (rho > least(prior, X, R, tolerance)).any(0)
    if bool(competing.any()):
        parts = state.A, state.b, state.w1, torch.cholesky_inverse(L), G, W, rho
        exchange = NodeExchange(*(part.clone() for part in parts))
        state, place = swap(state, X, exchange, competing, prior)
    nodes, others = place >= 0, place < 0
    if bool(nodes.any()):
        _, _, W, rho = projections(prior, state.Z, X)
    W = W.mT.clone()
    W[:, nodes] = F.one_hot(place[nodes], len(state.Z)).to(W)
    rho = torch.where(others, rho.clamp_min(0.0), 0.0)
    return state.with_rows(W, Y, R + rho / prior.s2.unsqueeze(-1))


def projections(prior: Prior, Z: Tensor, X: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Projections of points on the nodes under the current hyperparameters: O(m^3 + q m^2).

    Returns:
        ``L``, the root of the kernel matrix of the nodes, ``o x m x m``; ``G``, the kernel of nodes
        and points, ``o x m x q``; ``W = K^-1 G``, the points' rows, transposed; ``rho``, the
        points' conditional variances, ``o x q``.
    """
    L, G = chol_psd(prior.between(Z, Z)), prior.between(Z, X)
    a = torch.linalg.solve_triangular(L, G, upper=False)
    W = torch.linalg.solve_triangular(L.mT, a, upper=True)
    return L, G, W, prior.variances(X) - a.square().sum(-2)


def swap(
    state: NodeState, X: Tensor, exchange: NodeExchange, competing: Tensor, prior: Prior
) -> tuple[NodeState, Tensor]:
    """Replace nodes by candidates of larger conditional variance, the largest first.

    A node is compared by its variance given the other nodes, a candidate by its variance given all
    nodes. With several outputs, a node counts by its largest, a candidate by its smallest relative
    variance. O(m^3), and O(m^2 + q m) for each replacement.

    Args:
        state: The state before.
        X: The candidates, ``q x d``.
        exchange: The statistics and the candidates' projections, which are changed.
        competing: Which of them may replace nodes, ``q``.
        prior: The current hyperparameters.

    Returns:
        The state, and the node number of each candidate, ``q``: -1 for none.
    """
    free, variances, own = competing.clone(), prior.variances(X), prior.variances(state.Z).clone()
    holder = torch.full((len(state.Z),), -1, device=X.device)
    while True:
        loo = 1.0 / exchange.inverse.diagonal(dim1=-2, dim2=-1).clamp_min(TINY)
        scores = (torch.minimum(loo, own) / own).amax(0)
        gains = torch.where(free, (exchange.rho / variances).amin(0), 0.0)
        i, j = int(gains.argmax()), int(scores.argmin())
        if not bool(gains[i] > scores[j].clamp_min(FLOOR)):
            break
        exchange.replace_node(j, i, prior.between(X[i : i + 1], X).squeeze(-2))
        own[:, j], free[i], holder[j] = variances[:, i], False, i
    place, changed = torch.full((len(X),), -1, device=X.device), (holder >= 0).nonzero()[:, 0]
    place[holder[changed]] = changed
    Z = state.Z.index_copy(0, changed, X[holder[changed]])
    return replace(state, A=exchange.A, b=exchange.b, w1=exchange.w1, Z=Z), place


@dataclass
class NodeExchange:
    """Working copies of statistics and projections, changed in place by updates of rank two.

    Attributes:
        A, b, w1: The statistics, as in the state.
        inverse: ``K(Z, Z)^-1``, ``o x m x m``.
        G, W, rho: Of the candidates, as from `projections`.
    """

    A: Tensor
    b: Tensor
    w1: Tensor
    inverse: Tensor
    G: Tensor
    W: Tensor
    rho: Tensor

    def replace_node(self, j: int, i: int, k: Tensor) -> None:
        """Replace node j by candidate i; node j's rows are projected on the other nodes.

        Args:
            j: The node.
            i: The candidate.
            k: The candidate's kernel with all candidates, ``o x q``.
        """
        column, pivot = self.inverse[:, :, j].clone(), self.inverse[:, j, j].clone()
        t = -column / pivot.unsqueeze(-1)  # the value at j, of the values at the other nodes
        t[:, j], column[:, j] = 0.0, 0.0
        # T'A T, T'b and T'w1 with T = [I; t'], and zeros for row and column j
        half = self.A[:, j] + 0.5 * self.A[:, j, j, None] * t
        self.A.baddbmm_(torch.stack([t, half], -1), torch.stack([half, t], -2))
        self.A[:, j], self.A[:, :, j] = 0.0, 0.0
        for sums in (self.b, self.w1):
            sums += t * sums[:, j, None]
            sums[:, j] = 0.0
        w = self.W[:, j].clone()
        self.rho += w.square() / pivot.unsqueeze(-1)
        for rows in (self.inverse, self.W, self.G):
            rows[:, j] = 0.0
        self.inverse[:, :, j] = 0.0
        v = self.W[:, :, i] + t * w[:, i, None]  # the candidate's row, without j
        s = self.rho[:, i].clone()
        cov = k - (v.unsqueeze(-2) @ self.G).squeeze(-2)
        v[:, j] = -1.0
        left = torch.stack([t, v / s.unsqueeze(-1)], -1)
        self.inverse.baddbmm_(left, torch.stack([column, v], -2))
        self.W.baddbmm_(left, torch.stack([w, -cov], -2))
        self.rho -= cov.square() / s.unsqueeze(-1)
        self.G[:, j] = k


# -- posterior and evidence ----------------------------------------------------------------------


def node_process(state: NodeState, prior: Prior) -> Process:
    """The posterior at fixed hyperparameters (MATHS 2.3): O(m^3).

    Its error is that of the kernel matrix factorised, however this is conditioned, because
    ``R^-1`` is applied to columns of kernels only.
    """
    R = chol_psd(prior.between(state.Z, state.Z))
    c, stats = prior.mean - state.origin, state.statistics()
    made = [
        factorise(under_root(stats[i], R[i]), prior.s2[i], c[i], profile_mean=False)
        for i in range(len(c))
    ]
    L, u = torch.stack([part.L for part in made]), torch.stack([part.q for part in made])
    return Process(prior.kernel, KernelBasis(prior.kernel, state.Z), R, L, u, prior.mean)


def node_evidence(
    state: NodeState, prior: Prior, profile_mean: bool
) -> tuple[Tensor, Tensor | None]:
    """Log evidence summed over outputs, with closed-form gradients (MATHS 2.3, 2.4), and the
    optimal constant means if they were asked for. O(m^3), whatever n is.

    Args:
        state: The state.
        prior: The hyperparameters, differentiable.
        profile_mean: Take the optimal constant means instead, and return them.
    """
    s2, c, stats = prior.s2, prior.mean - state.origin, state.statistics()
    K = prior.between(state.Z, state.Z)
    R = chol_psd(K.detach())
    values, means = [], []
    for i in range(len(s2)):
        with torch.no_grad():
            made = factorise(under_root(stats[i], R[i]), s2[i], c[i], profile_mean)
            d_s2, d_c, Y = made.gradients()
            gradients = [d_s2, d_c, root_gradient(R[i], Y)]
        means.append(made.mean)
        values.append(attach(made.value(), [s2[i], c[i], K[i]], gradients))
    best = torch.stack(means).detach() + state.origin if profile_mean else None
    return torch.stack(values).sum(), best
