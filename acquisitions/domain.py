"""A box with linear constraints and discrete inputs: points of it, and steps inside it.

Everything here stays feasible by construction. Points are drawn feasible, discrete inputs take
allowed values only, and steps of the continuous ones end at the constraints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.spatial import KDTree
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_stream.errors import InputError
from bo_stream.mathematics.autograd import lasting_property

__all__ = ["Domain", "LinearInequality"]

LinearInequality = tuple[Tensor, Tensor, float]
"""As in BoTorch's `optimize_acqf`: indices, coefficients, right-hand side."""

LONGEST = 16_384
"""Points of a Sobol sequence among which feasible ones are looked for."""
SPARE = 4
"""Points drawn for each feasible one wanted, before a random walk makes up for the others."""
FAR = 1e6
"""Number of steps that counts as any number."""
SWEEPS = 50
"""Steps of a random walk inside constraints."""
TRIES, BATCH = 64, 1024
"""Batches of random points among which a feasible one is looked for, and their size."""
MOST = 64
"""Largest number of neighbours of a point."""
APART, SAME = 1e-6, 1e-9
"""Points closer than this share of the width in every input are the same measurement, or the same
setting."""
LISTED = 2**16
"""Number of settings up to which all of them are listed."""


@dataclass(frozen=True)
class Domain:
    """The feasible set, in raw units, float64.

    Attributes:
        bounds: ``2 x d``.
        A: Coefficients of the inequalities ``A x >= b``, ``c x d``.
        b: ``c``.
        choices: Allowed values of discrete inputs, sorted, by index.
        categories: Indices of the discrete inputs whose values have no order.
        accepts: Whether points ``... x d`` fulfil constraints of any other kind; None: there are
            none.
    """

    bounds: Tensor
    A: Tensor
    b: Tensor
    choices: Mapping[int, Tensor]
    categories: Sequence[int] = ()
    accepts: Callable[[Tensor], Tensor] | None = None

    @classmethod
    def of(
        cls,
        bounds: Tensor,
        inequality_constraints: Sequence[LinearInequality] = (),
        choices: Mapping[int, Tensor] | None = None,
        categories: Sequence[int] = (),
        accepts: Callable[[Tensor], Tensor] | None = None,
    ) -> Domain:
        """From constraints as in BoTorch's `optimize_acqf`, and allowed values in any order."""
        bounds = bounds.detach().double()
        A = bounds.new_zeros(len(inequality_constraints), bounds.shape[-1])
        b = bounds.new_tensor([bound for _, _, bound in inequality_constraints])
        for row, (indices, coefficients, _) in zip(A, inequality_constraints, strict=True):
            row[indices] = coefficients.to(A)
        allowed = {j: torch.as_tensor(v).to(bounds).unique() for j, v in (choices or {}).items()}
        return cls(bounds, A, b, allowed, categories, accepts)

    @property
    def dim(self) -> int:
        """Number of inputs."""
        return self.bounds.shape[-1]

    @lasting_property
    def width(self) -> Tensor:
        """Widths of the box, ``d``."""
        return self.bounds[1] - self.bounds[0]

    @lasting_property
    def continuous(self) -> Tensor:
        """Which inputs are continuous, a mask of ``d``."""
        mask = torch.ones(self.dim, dtype=torch.bool, device=self.bounds.device)
        mask[list(self.choices)] = False
        return mask

    @property
    def is_box(self) -> bool:
        """Whether there are neither constraints nor discrete inputs."""
        return not self.is_constrained and not self.choices

    @property
    def is_constrained(self) -> bool:
        """Whether there are constraints."""
        return bool(len(self.A)) or self.accepts is not None

    def holds(self, X: Tensor) -> Tensor:
        """Whether the constraints hold, for points of the box ``... x d``: ``...``."""
        inside = (X @ self.A.mT >= self.b).all(-1)
        return inside if self.accepts is None else inside & self.accepts(X)

    def contains(self, X: Tensor) -> Tensor:
        """Whether points ``... x d`` are feasible: ``...``."""
        return (self.snapped(self.clipped(X)) == X).all(-1) & self.holds(X)

    def snapped(self, X: Tensor) -> Tensor:
        """Points ``... x d`` with discrete inputs at the nearest allowed values."""
        X = X.clone()
        for j, values in self.choices.items():
            at = torch.bucketize(X[..., j].contiguous(), 0.5 * (values[1:] + values[:-1]))
            X[..., j] = values[at]
        return X

    # -- points ----------------------------------------------------------------------------------

    def uniform(self, n: int) -> Tensor:
        """Random points, ``n x d``: uniform, or inside constraints that few points of the box
        fulfil by a random walk.
        """
        return self._feasible(lambda size: torch.rand(size, self.dim).to(self.bounds), n)

    def spread(self, n: int) -> Tensor:
        """Points of a scrambled Sobol sequence, ``n x d``; likewise inside constraints."""
        return self._feasible(lambda size: self._sobol(size, int(torch.randint(2**30, ()))), n)

    def sequence(self, seed: int, done: int, q: int) -> Tensor:
        """The ``q`` points after the ``done`` first feasible ones of a Sobol sequence, ``q x d``.

        Where few points are feasible they are random. They depend on the arguments alone.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + done)
            X = self._feasible(lambda size: self._sobol(size, seed), done + q, LONGEST)
        return X[done:]

    def distinct(self, X: Tensor, seen: Tensor, apart: float = APART) -> Tensor:
        """The points ``n x d``, with random feasible ones in place of those that repeat others.

        Where no other setting is left, they stay. O((n + n') log(n + n')).

        Args:
            X: Feasible points, ``n x d``.
            seen: Points that are not to be repeated, ``n' x d``.
            apart: Share of the width; points that are closer in every input repeat.
        """
        again = self.repeats(X, seen, apart)
        if not bool(again.any()):
            return X
        count, known = int(again.sum()), torch.cat([seen.to(X), X[~again]])
        drawn = self._others(count).to(X)
        new = drawn[~self.repeats(drawn, known, apart)][:count]
        X = X.clone()
        X[again.nonzero().squeeze(-1)[: len(new)]] = new
        return X

    def repeats(self, X: Tensor, seen: Tensor, apart: float = APART) -> Tensor:
        """Which points are closer than a share of the width in every input to a seen point or an
        earlier one: a mask ``n``.
        """
        unit = self.width.clamp_min(torch.finfo(self.width.dtype).tiny)
        U, S = (((t.to(unit) - self.bounds[0]) / unit).numpy(force=True) for t in (X, seen))
        first, again = np.sort(np.unique(U, axis=0, return_index=True)[1]), np.ones(len(U), bool)
        U = U[first]
        near = KDTree(np.unique(S, axis=0)).query(U, p=np.inf, distance_upper_bound=apart)[0]
        again[first] = near < apart
        again[first[KDTree(U).query_pairs(apart, p=np.inf, output_type="ndarray").max(1)]] = True
        return torch.from_numpy(again).to(X.device)

    def near(self, X: Tensor, seen: Tensor, apart: float = APART) -> Tensor:
        """Which of few points are closer than a share of the width in every input to a seen one: a
        mask ``n``. O(n n').
        """
        gaps = (X.to(self.width).unsqueeze(-2) - seen.to(self.width)).abs()
        return (gaps <= apart * self.width).all(-1).any(-1)

    def _others(self, n: int) -> Tensor:
        """Feasible points, among which ``n`` are looked for: all settings, if there are few, in
        random order.
        """
        few = not bool(self.continuous.any())
        if few and math.prod(map(len, self.choices.values())) <= LISTED:
            values = [self.choices[j] for j in range(self.dim)]
            X = torch.cartesian_prod(*values).reshape(-1, self.dim)
            X = X[self.holds(X)]
            return X[torch.randperm(len(X)).to(X.device)]
        return self.uniform(SPARE * n)

    def _feasible(self, draw: Callable[[int], Tensor], n: int, most: int = 0) -> Tensor:
        """The first ``n`` feasible ones of as many points as that takes, or else at most."""
        if not self.is_constrained:
            return self._placed(draw(n))
        X, size = self.bounds[:0], n
        while len(X) < n and (size == n or size < most):
            size *= SPARE
            X = self._placed(draw(size))
            X = X[self.holds(X)]
        if len(X) >= n:
            return X[:n]
        starts = X if len(X) else self._first()
        walked = starts[torch.randint(len(starts), (n - len(X),))]
        for _ in range(SWEEPS):
            walked = self._walked(walked)
        return torch.cat([X, walked])

    def _sobol(self, n: int, seed: int) -> Tensor:
        """Points of a scrambled Sobol sequence in the unit cube, ``n x d``."""
        U = SobolEngine(self.dim, scramble=True, seed=seed).draw(n, dtype=self.bounds.dtype)
        return U.to(self.bounds.device)

    def _placed(self, U: Tensor) -> Tensor:
        """Points of the unit cube in the box; discrete inputs take the value at that quantile."""
        X = self.clipped(U * self.width + self.bounds[0])
        for j, values in self.choices.items():
            X[..., j] = values[(U[..., j] * len(values)).long().clamp_max(len(values) - 1)]
        return X

    def _first(self) -> Tensor:
        """Some feasible points.

        Raises:
            InputError: if none is found.
        """
        if self.accepts is None:
            return self.inner
        linear = replace(self, accepts=None)
        for _ in range(TRIES):
            X = linear.uniform(BATCH)
            X = X[self.accepts(X)]
            if len(X):
                return X
        raise InputError(
            "constraints that some point of the box fulfils",
            f"none among {TRIES * BATCH} random points",
            "Relax them, or narrow the bounds to where they hold.",
        )

    def _walked(self, X: Tensor) -> Tensor:
        """One step of a random walk: along a line, then each discrete input given the others."""
        P = torch.randn_like(X) * self.width * self.continuous
        back, ahead = -self.reach(X, -P), self.reach(X, P)
        t = back + (ahead - back) * torch.rand(len(X), 1).to(X)
        X = self.stepped(X, t * P)
        for j, values in self.choices.items():
            rest = X @ self.A.mT - X[:, j : j + 1] * self.A[:, j] - self.b
            fits = (rest.unsqueeze(1) + values.unsqueeze(-1) * self.A[:, j] >= 0.0).all(-1)
            other = values[(torch.rand(fits.shape).to(X) + fits).argmax(-1)]
            new = X.clone()
            new[:, j] = other
            X = self._kept(X, new)
        return X

    @lasting_property
    def inner(self) -> Tensor:
        """A feasible point as far from the constraints as possible, ``1 x d``: a small mixed
        integer program.

        Raises:
            InputError: if there is none.
        """
        (low, high), A, b = self.bounds.cpu().numpy(), self.A.cpu().numpy(), self.b.cpu().numpy()
        values = [v.cpu().numpy() for v in self.choices.values()]
        sizes = np.array([len(v) for v in values], dtype=int)
        chosen = np.repeat(np.eye(len(sizes)), sizes, 1)  # by an indicator of each allowed value
        inputs, none = np.eye(self.dim)[[*self.choices]], np.zeros((len(sizes), 1))
        count = len(chosen.T)
        distances, apart = -np.abs(A) @ (high - low), np.zeros((len(A), count))
        taken = -chosen * np.concatenate([*values, []])
        found = milp(
            -np.eye(self.dim + 1 + count)[self.dim],
            integrality=np.arange(self.dim + 1 + count) > self.dim,
            bounds=Bounds(np.r_[low, np.zeros(1 + count)], np.r_[high, np.ones(1 + count)]),
            constraints=[
                LinearConstraint(np.c_[A, distances, apart], b, np.inf),
                LinearConstraint(np.c_[inputs, none, taken], 0.0, 0.0),
                LinearConstraint(np.c_[0.0 * inputs, none, chosen], 1.0, 1.0),
            ],
        )
        if found.x is None:
            raise InputError(
                "constraints that some point of the box fulfils", "none such", "Relax them."
            )
        X = torch.as_tensor(found.x[: self.dim]).to(self.bounds)
        return self.snapped(self.clipped(X)).unsqueeze(0)  # the solver's value, but for rounding

    # -- steps -----------------------------------------------------------------------------------

    def clipped(self, X: Tensor) -> Tensor:
        """The nearest points of the box, ``... x d``."""
        return torch.minimum(torch.maximum(X, self.bounds[0]), self.bounds[1])

    def reach(self, X: Tensor, P: Tensor) -> Tensor:
        """How many steps P can be taken from X before a bound or constraint, ``... x 1``."""
        room = torch.where(P > 0.0, self.bounds[1] - X, X - self.bounds[0])
        steps = torch.where(P != 0.0, room / P.abs(), FAR)
        if len(self.A):
            slope = P @ self.A.mT
            slack = (X @ self.A.mT - self.b).clamp_min(0.0)
            ends = torch.where(slope < 0.0, slack / -slope, FAR)
            steps = torch.cat([steps, ends], -1)
        return steps.amin(-1, keepdim=True).clamp(0.0, FAR)

    def moved(self, X: Tensor, P: Tensor) -> Tensor:
        """Feasible points about ``X + P``, ``... x d``, for P zero in discrete inputs.

        Steps are reflected at the box, and end at the constraints.
        """
        low, high = self.bounds
        there = X + P
        there = torch.where(there < low, 2.0 * low - there, there)
        there = self.clipped(torch.where(there > high, 2.0 * high - there, there))
        if not self.is_constrained:
            return there
        P = torch.where(self.holds(there).unsqueeze(-1), there - X, P)
        P = torch.where(self.reach(X, P) < self.reach(X, -P).clamp_max(1.0), -P, P)
        return self._kept(X, self.clipped(X + P * self.reach(X, P).clamp_max(1.0)))

    def along(self, X: Tensor, P: Tensor) -> Tensor:
        """The step P without what leads out of bounds and constraints that X is at; it ends at
        those that it would cross. ``... x d``.
        """
        low, high = self.bounds
        edge = 1e-9 * self.width
        out = ((low + edge >= X) & (P < 0.0)) | ((high - edge <= X) & (P > 0.0))
        P = torch.where(out | ~self.continuous, 0.0, P)
        P = self.clipped(X + P) - X
        for a, rhs in zip(self.A, self.b, strict=True):
            normal = a * self.width.square() * self.continuous  # in widths of the box
            outward = (X @ a - rhs <= 1e-9 * float(a.abs() @ self.width)) & (P @ a < 0.0)
            share = P @ a / (normal @ a).clamp_min(torch.finfo(a.dtype).tiny)
            P = torch.where(outward.unsqueeze(-1), P - share.unsqueeze(-1) * normal, P)
        if len(self.A):
            P = P * self.reach(X, P).clamp_max(1.0)
        return P

    def stepped(self, X: Tensor, P: Tensor) -> Tensor:
        """``X + P`` for a step from `along` or a part of it; X itself where rounding would break a
        constraint.
        """
        return self._kept(X, self.clipped(X + P))

    def _kept(self, X: Tensor, new: Tensor) -> Tensor:
        """The new points where they fulfil the constraints, else the old ones."""
        if not self.is_constrained:
            return new
        return torch.where(self.holds(new).unsqueeze(-1), new, X)

    def perturbed(self, X: Tensor, sd: Tensor, share: float | None = None) -> Tensor:
        """A feasible point about each of others.

        Args:
            X: Feasible points, ``n x d``.
            sd: Standard deviations of the steps, in widths of the box, ``n x 1`` or ``n x d``. A
                discrete input moves by at least one of its allowed values; a category takes any
                other value.
            share: One input moves, and each of the others with this probability; None: all move.
        """
        moving = torch.ones_like(X, dtype=torch.bool)
        if share is not None:
            one = torch.rand_like(X) < share
            moving = one.scatter(1, torch.randint(self.dim, (len(X), 1)).to(one.device), True)
        z = torch.randn_like(X) * sd
        new = X.clone()
        for j, values in self.choices.items():
            place = torch.searchsorted(values, X[:, j].contiguous())
            size = z[:, j].abs() * len(values)
            if j in self.categories:
                other = torch.randint(1, max(len(values), 2), place.shape, device=place.device)
                place = (place + other * moving[:, j]) % len(values)
            else:
                place = place + (z[:, j].sign() * (1.0 + size.floor())).long() * moving[:, j]
            new[:, j] = values[place.clamp(0, len(values) - 1)]
        new = self._kept(X, new)
        return self.moved(new, z * self.width * (moving & self.continuous))

    def neighbours(self, X: Tensor) -> Tensor:
        """Points with another value of one discrete input, ``... x k x d`` for ``... x d``.

        Of a category they have every other value; of an ordered input values 1, 2, 4, ... places
        away. Those that are infeasible are replaced by the point itself.
        """
        rows = []
        for j, values in self.choices.items():
            place = torch.bucketize(X[..., j].contiguous(), 0.5 * (values[1:] + values[:-1]))
            size = len(values)
            if j in self.categories:
                steps = torch.arange(1, size)
            else:
                far = 2 ** torch.arange(max(size - 1, 1).bit_length())
                steps = torch.cat([far, -far])
            there = place.unsqueeze(-1) + steps.to(place)
            there = there % size if j in self.categories else there.clamp(0, size - 1)
            new = X.unsqueeze(-2).expand(*there.shape, self.dim).clone()
            new[..., j] = values[there]
            rows.append(new)
        N = torch.cat(rows, -2)
        if N.shape[-2] > MOST:
            N = N[..., torch.randperm(N.shape[-2])[:MOST].to(N.device), :]
        return self._kept(X.unsqueeze(-2).expand_as(N), N)
