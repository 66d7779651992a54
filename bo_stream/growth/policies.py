"""Growth policies: VIPS, OIPS, conditional variance, a fixed number of points, pruning.

[VIPS] Pescador-Barrios, Filippi, van der Wilk 2025, Adjusting Model Size in Continual Gaussian
Processes (MATHS 4.2, 4.3); [OIPS] Galy-Fajou, Opper 2021, Adaptive Inducing Points Selection for
Gaussian Processes (MATHS 4.4); [Bui] Bui, Nguyen, Turner 2017, Streaming Sparse Gaussian Process
Approximations.

A policy is an object with a method `select`. One of your own is a class with this method:

>>> import torch
>>> from bo_stream.growth import Selection
>>> class EveryOther:
...     \"\"\"Keeps all old points and adds every other point of the batch.\"\"\"
...
...     def select(self, state, batch, kernel):
...         return Selection(torch.arange(state.size), torch.arange(0, batch.size, 2))

Points are in transformed space, float64. The state is already expressed under the
current kernel and prior mean, so ``batch.y - state.mean`` are residuals and
``bo_stream.growth.predict(state, kernel, X)`` is the posterior before the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from botorch.optim.closures import ForwardBackwardClosure
from botorch.optim.core import scipy_minimize
from gpytorch.kernels import AdditiveKernel, ConstantKernel, Kernel
from torch import Tensor

from bo_stream.base.options import from_plain
from bo_stream.errors import InputError, ShapeError, check_choice, whole_number
from bo_stream.mathematics.inducing import (
    Batch,
    GreedyVariance,
    SGPRState,
    Update,
    dense,
    diagonal,
    empty_state,
    factor_B,
    log_gaussian_terms,
    log_noise_model,
    optimal_bound,
    rebase,
    solve,
    update,
)
from bo_stream.mathematics.linalg import inverse_factor

__all__ = [
    "OIPS",
    "VIPS",
    "ConditionalVariance",
    "Covering",
    "FixedGrid",
    "FixedSize",
    "GrowthPolicy",
    "Prescribed",
    "Pruned",
    "Selection",
    "checked_policy",
    "drop_losses",
    "inducing_points",
    "selected_update",
]

WORTH = 4.0
"""Mean conditional variance of a batch, relative to the smallest pivot, above which `Covering`
chooses all points again."""


@dataclass(frozen=True)
class Selection:
    """The choice of inducing points after a batch.

    Attributes:
        kept: Indices of the old inducing points that stay, integers.
        entered: Indices of the batch points that enter, integers, in order of choice.
        free: Further points ``F x d``, in transformed space, that are neither.
        optimal_bound: ``L*`` of the batch, if the policy computed it.
    """

    kept: Tensor
    entered: Tensor
    free: Tensor | None = None
    optimal_bound: float | None = None


@runtime_checkable
class GrowthPolicy(Protocol):
    """Chooses inducing points. A policy holds settings only."""

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """The inducing points after ``batch``, given the state before it."""
        ...


def checked_policy(policy: object) -> GrowthPolicy:
    """The option ``growth``: a policy, or its name and options.

    Raises:
        InputError: if it is a class, or has no method ``select``.
    """
    policy = from_plain("growth", policy)
    if isinstance(policy, type) or not isinstance(policy, GrowthPolicy):
        raise InputError(
            "a growth policy: an object with a method `select(state, batch, kernel)`",
            f"{policy!r}",
            "Take one from bo_stream.growth, for example growth=VIPS(0.035), or leave it out.",
        )
    return policy


def inducing_points(state: SGPRState, batch: Batch, selection: Selection) -> tuple[Tensor, Tensor]:
    """New inducing points ``[kept; entered; free]``, and the rows of the old ones in them.

    Returns:
        ``Z``, ``M_b x d``; ``old_index``, ``M_a``: row of Z, or -1 for a dropped point.

    Raises:
        InputError: if an index is out of range or stands twice.
    """
    sides = (("kept", selection.kept, state.size), ("entered", selection.entered, batch.size))
    for name, values, size in sides:
        known = set(values.tolist()) & set(range(size))
        if values.dtype != torch.int64 or len(known) != len(values):
            raise InputError(
                f"`{name}` of a selection to be distinct int64 indices below {size}",
                f"{values.dtype} {values.tolist()}",
                "The growth policy at fault is the one given as `growth`.",
            )
    free = state.Z[:0] if selection.free is None else selection.free.to(state.Z)
    Z = torch.cat([state.Z[selection.kept], batch.X[selection.entered], free])
    old_index = torch.full((state.size,), -1, device=Z.device)
    old_index[selection.kept] = torch.arange(len(selection.kept), device=Z.device)
    return Z, old_index


def selected_update(state: SGPRState, batch: Batch, kernel: Kernel, selection: Selection) -> Update:
    """The update with a selection, kernel and mean unchanged."""
    Z, old_index = inducing_points(state, batch, selection)
    return update(state, batch, kernel, state.mean, Z, old_index, same_kernel=True)


def joined_by(state: SGPRState, entered: list[int], bound: float | None = None) -> Selection:
    """All old inducing points and some of the batch, and its ``L*`` if known."""
    kept = torch.arange(state.size, device=state.Z.device)
    return Selection(kept, kept.new_tensor(entered), None, bound)


@dataclass(frozen=True, kw_only=True)
class Capped:
    """What policies with an optional cap have in common.

    Args:
        max_points: Largest number of inducing points, None for no cap.

    Raises:
        InputError: for a cap that leaves no inducing point.
    """

    max_points: int | None = None

    def __post_init__(self) -> None:
        if self.max_points is not None:
            whole_number("max_points", self.max_points, 1)

    @property
    def cap(self) -> float:
        """The cap, or infinity."""
        return float("inf") if self.max_points is None else self.max_points


def check_positive(name: str, value: float, below: float = float("inf")) -> None:
    """Refuse settings outside ``(0, below)``."""
    if not 0.0 < value < below:
        span = "positive" if below == float("inf") else f"between 0 and {below:g}"
        raise InputError(
            f"{name} {span}", f"{value}", "The docstring of the policy has usual values."
        )


@dataclass(frozen=True)
class VIPS(Capped):
    """As many inducing points as the bound requires [VIPS, Alg. 1 and 4]; old points stay.

    Points enter by largest conditional variance until the gap between an upper bound U and the
    bound reached is at most ``delta`` of ``|U - L_noise|``, the gain over a model of noise alone.
    With the optimal bound ``L*`` as upper bound the gap *is* the divergence from the best possible
    update, so stopping at a gap ``alpha`` guarantees ``KL[q_n || q*_n] <= alpha``.

    Args:
        delta: Share of the gap allowed; the paper uses 0.005 to 0.2.
        upper: "optimal" measures the gap from ``L*``, computed once in O(N^3 + N M^2) (batches up
            to about 5,000); "collapsed" from ``U-hat`` at every step, O(N M^2 + M^3) each: the same
            order of choice, more points.
        max_points: Largest number of inducing points, None for no cap.

    Adding a point costs O(N M + M^2).
    """

    delta: float = 0.035
    upper: Literal["optimal", "collapsed"] = "optimal"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("delta", self.delta)
        check_choice("upper", self.upper, "optimal", "collapsed")

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """All old points, and batch points until the bounds are close enough."""
        L_star = None
        if self.upper == "optimal":
            L_star = float(optimal_bound(state, batch, kernel))
        greedy = GreedyVariance(kernel, batch.X, state.jitter, state.Z, state.L)
        typical = diagonal(kernel, batch.X).mean() + batch.noise.mean() if batch.size else 1.0
        L_noise = log_noise_model(batch, float(typical))
        count, more = 0, True
        while more:
            for bound in prefix_bounds(state, batch, greedy)[count:].tolist():
                chosen = joined_by(state, greedy.chosen[:count], L_star)
                U = L_star
                if U is None:
                    U = float(selected_update(state, batch, kernel, chosen).upper)
                if U - bound <= self.delta * abs(U - L_noise):
                    return chosen
                count += 1
            more = greedy.grow(min(self.cap, 2 * greedy.size + 16))
        return chosen


def prefix_bounds(state: SGPRState, batch: Batch, greedy: GreedyVariance) -> Tensor:
    """``L-hat`` with the first ``0, 1, ...`` points that were chosen, whose factors of B are the
    leading blocks of the last one: O(N M^2 + M^3).
    """
    A, d, e, old = greedy.A, batch.noise, batch.y - state.mean, state.size
    A_d, new = A / d, greedy.size - old
    G, c = F.pad(state.G, (0, new, 0, new)), F.pad(state.c, (0, new))
    L_B, beta, _ = factor_B(A_d @ A.mT + G, A_d @ e + c)
    gains = 0.5 * (beta.square() + (A * A_d).sum(-1)) - L_B.diagonal().log()
    unexplained = 0.5 * (greedy.prior / d).sum()
    rest = log_gaussian_terms(e, d) - unexplained - state.kappa
    return rest + F.pad(gains.cumsum(0), (1, 0))[old:]


@dataclass(frozen=True)
class OIPS(Capped):
    """Add x if ``max_z k(x, z) < rho sqrt(k(x, x) k(z, z))`` [OIPS, Alg. 1]; old points stay.

    The choice is sequential and depends on the order of the batch. Every point seen has an inducing
    point with a correlation of at least rho, and correlations between inducing points are below
    rho. (Theorem 1 of the paper is not a bound on the number of points.)

    Args:
        rho: Correlation in (0, 1). For a squared-exponential kernel, points enter that are farther
            than ``lengthscale * sqrt(-2 log(rho))`` from all others.
        max_points: Largest number of inducing points, None for no cap.

    Constant components of a sum of kernels are left out: they would inflate every correlation. O(N
    M + N^2) kernel values a batch.
    """

    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("rho", self.rho, below=1.0)

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """All old points, and points of the batch with no correlated inducing point."""
        varying = kernel
        if isinstance(kernel, AdditiveKernel):
            parts = [part for part in kernel.kernels if not isinstance(part, ConstantKernel)]
            varying = AdditiveKernel(*parts) if parts else kernel
        nearest = torch.full_like(batch.y, -torch.inf)
        if state.size:
            nearest = correlation(varying, batch.X, state.Z).amax(-1)
        entered: list[int] = []
        for i in range(batch.size):
            if state.size + len(entered) < self.cap and float(nearest[i]) < self.rho:
                entered.append(i)
                own = correlation(varying, batch.X[i:], batch.X[i : i + 1]).squeeze(-1)
                nearest[i:] = torch.maximum(nearest[i:], own)
        return joined_by(state, entered)


def correlation(kernel: Kernel, X: Tensor, Z: Tensor) -> Tensor:
    """Prior correlations ``N x M``."""
    scale = diagonal(kernel, X).unsqueeze(-1) * diagonal(kernel, Z)
    return dense(kernel, X, Z) / scale.sqrt()


@dataclass(frozen=True)
class ConditionalVariance(Capped):
    """Choose greedily from ``[Z_o; X]`` until that pool's conditional variances sum to ``eta``.

    Args:
        eta: Remaining trace allowed, in units of the kernel (it scales with the outputscale).
        max_points: Largest number of inducing points, None for no cap.

    Old points are re-selected with the new ones and may be dropped [VIPS, Alg. 5, which prints
    "below" for "above"]. The sum is over the whole pool;
    a sum over the batch alone would forget regions no longer visited (MATHS 4.3). O((N + M) M) a
    point.
    """

    eta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("eta", self.eta)

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """The points chosen by a partial Cholesky factorisation of the pool."""
        return from_pool(state, batch, kernel, self.cap, self.eta)


def from_pool(
    state: SGPRState, batch: Batch, kernel: Kernel, count: float, trace: float = -torch.inf
) -> Selection:
    """Greedy choice from ``[Z_o; X]``, split into old points and batch points."""
    pool, none = torch.cat([state.Z, batch.X]), empty_state(state.Z, state.mean)
    greedy = GreedyVariance(kernel, pool, state.jitter, none.Z, none.L)
    greedy.grow(count, trace)
    chosen = torch.tensor(greedy.chosen, dtype=torch.long, device=pool.device)
    old = chosen < state.size
    return Selection(chosen[old].sort().values, chosen[~old] - state.size)


@dataclass(frozen=True)
class Covering:
    """As many inducing points as allowed, which cover the data also if the stream moves (ours).

    Up to the cap, points enter by largest conditional variance. At the cap all points are chosen
    again, from old and new ones, once the mean conditional variance of a batch exceeds four times
    the smallest pivot of the inducing points. So sorted data do not leave all points where they
    began. While the stream stays in one region the points stay, because a dropped point loses part
    of what was learned at it.

    Args:
        max_points: Number of points (fewer while fewer distinct points have been seen).

    O(N M) for each new point; O((N + M) M^2) if all are chosen again.
    """

    max_points: int

    def __post_init__(self) -> None:
        whole_number("max_points", self.max_points, 1)

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """All old points while there is room, and batch points by conditional variance."""
        greedy = GreedyVariance(kernel, batch.X, state.jitter, state.Z, state.L)
        greedy.grow(self.max_points)
        if greedy.best() is not None and greedy.size >= self.max_points and state.size:
            least = state.L.diagonal().square().min()
            if bool(greedy.r.mean() > WORTH * least):
                return from_pool(state, batch, kernel, self.max_points)
        return joined_by(state, greedy.chosen)


@dataclass(frozen=True)
class FixedSize(Capped):
    """``m`` inducing points, chosen again with every batch [Bui; VIPS section 5].

    Args:
        m: Number of points (fewer while fewer distinct points have been seen).
        method: "greedy" takes the largest conditional variances of old points and batch, O((N + m)
            m^2); "gradient" starts there and moves all points up the gradient of the online bound,
            as Bui et al. do.
        steps: Largest number of quasi-Newton iterations of the gradient method.
        max_points: A cap below ``m``, for symmetry with the other policies.
    """

    m: int
    method: Literal["greedy", "gradient"] = "greedy"
    steps: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("m", self.m, 1)
        whole_number("steps", self.steps, 1)
        check_choice("method", self.method, "greedy", "gradient")

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """The points of largest conditional variance, moved by the gradient method."""
        greedy = from_pool(state, batch, kernel, min(self.m, self.cap))
        return greedy if self.method == "greedy" else self._moved(state, batch, kernel, greedy)

    @torch.enable_grad()
    def _moved(self, state: SGPRState, batch: Batch, kernel: Kernel, start: Selection) -> Selection:
        """All points at a local maximum of the bound, or ``start`` if that is no better."""
        first = selected_update(state, batch, kernel, start)
        Z = first.state.Z.clone().requires_grad_(True)
        dropped = torch.full((state.size,), -1, device=Z.device)
        climbed = scipy_minimize(
            ForwardBackwardClosure(
                lambda: -update(state, batch, kernel, state.mean, Z, dropped).bound, {"Z": Z}
            ),
            {"Z": Z},
            options={"maxiter": self.steps},
        )
        if not -climbed.fval > float(first.bound):
            return start
        return Selection(dropped[:0], dropped[:0], Z.detach())


@dataclass(frozen=True)
class Prescribed(Capped):
    """The full set of inducing points after every batch, for studies, tests and exact streams.

    Args:
        Zs: One ``M x d`` tensor for each batch, in transformed space, including the
            constructor's if it has data. Rows that are bit-equal to old inducing points or to
            points of the batch stand for these.
        max_points: For symmetry with the other policies; no set may be larger.
    """

    Zs: Sequence[Tensor]

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """The set for this batch."""
        if batch.index >= len(self.Zs):
            raise InputError(
                f"a prescribed set for batch {batch.index}",
                f"{len(self.Zs)} sets",
                "Give one set a batch, the constructor's included if it has data.",
            )
        grid = FixedGrid(self.Zs[batch.index], max_points=self.max_points)
        return grid.select(state, batch, kernel)


@dataclass(frozen=True)
class FixedGrid(Capped):
    """The same inducing points throughout.

    With fixed hyperparameters a stream of any chunking then equals batch SGPR (MATHS 3.5).

    Args:
        Z: Points ``M x d``, in transformed space.
        max_points: For symmetry with the other policies; must not be below M.
    """

    Z: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "Z", torch.as_tensor(self.Z, dtype=torch.float64))
        if self.Z.ndim != 2 or len(self.Z) > self.cap:
            cap = "" if self.max_points is None else f" with at most {self.max_points} rows"
            raise ShapeError(
                f"points `M x d`{cap}",
                f"{tuple(self.Z.shape)}",
                "Thin the points, or raise max_points.",
            )

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """Always ``Z``: old points and points of the batch where rows are equal to them."""
        Z = self.Z.to(state.Z)
        old = (Z.unsqueeze(1) == state.Z).all(-1)
        Z = Z[~old.any(1)]
        new = (Z.unsqueeze(1) == batch.X).all(-1)
        found, first = new.any(1), new.int().argmax(1)  # of equal points of the batch
        return Selection(old.any(0).nonzero()[:, 0], first[found], Z[~found])


@dataclass(frozen=True)
class Pruned(Capped):
    """Let a policy choose, then drop the points of least value, one by one (ours).

    Args:
        policy: The policy that grows.
        tolerance: Nats of the bound that may be lost, per observation in the batch.
        max_points: Points are dropped down to this number at any loss; None for no cap.

    O(M^3) per batch and again for every point dropped.
    """

    policy: GrowthPolicy
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tolerance < 0.0:
            raise InputError(
                "a tolerance of at least 0",
                f"{self.tolerance}",
                "Zero prunes down to max_points only.",
            )

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """The inner policy's points, without those of least value."""
        chosen = self.policy.select(state, batch, kernel)
        after = selected_update(state, batch, kernel, chosen).state
        left = torch.arange(after.size, device=after.Z.device)
        budget = self.tolerance * batch.size
        while after.size > 1:
            losses = drop_losses(after)
            j = int(losses.argmin())
            loss = max(float(losses[j]), 0.0)
            if loss > budget and after.size <= self.cap:
                break
            budget -= loss
            stays = torch.arange(after.size, device=left.device) != j
            old_index = torch.where(stays, stays.cumsum(0) - 1, -1)
            after = rebase(after, kernel, state.mean, after.Z[stays], old_index).state
            left = left[stays]
        K, E = len(chosen.kept), len(chosen.entered)
        kept, entered = left[left < K], left[(left >= K) & (left < K + E)] - K
        free = None if chosen.free is None else chosen.free[left[left >= K + E] - K - E]
        return Selection(chosen.kept[kept], chosen.entered[entered], free, chosen.optimal_bound)


def drop_losses(state: SGPRState) -> Tensor:
    """Fall of the online bound if one inducing point is dropped, for each (``M``); O(M^3).

    Dropping inducing point j from a state lowers the online bound by exactly

        loss_j = 1/2 (mu_j^2 / s_j + log s_j + g_j),    r_j = 1 / [K^-1]_jj,
        s_j = r_j [L^-T B^-1 L^-1]_jj,                  mu_j = r_j^1/2 [L^-T B^-1 c]_j,
        g_j = r_j [L^-T G L^-1]_jj

    because its coordinate ``(b_j - E[b_j | rest]) / r_j^1/2`` has prior N(0, 1), posterior
    N(mu_j, s_j) and likelihood precision g_j, and without the point its prior. ``L* - L-hat`` is a
    divergence (MATHS 4.1), so the loss is added to the divergence from the best possible update.
    """
    L_B, beta, _ = factor_B(state.G, state.c)
    W = inverse_factor(state.L)  # columns belong to inducing points
    r = 1.0 / W.square().sum(0)
    V = solve(L_B, W)
    s = r * V.square().sum(0)
    mu = r.sqrt() * (V.mT @ beta)
    g = r * (W * (state.G @ W)).sum(0)
    return 0.5 * (mu.square() / s + s.log() + g)
