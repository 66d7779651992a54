"""WISKI: a Gaussian process on a grid whose cost per step does not depend on how much it has seen.

[WISKI] Stanton, Maddox, Delbridge, Wilson 2021, Kernel Interpolation for Scalable Online Gaussian
Processes; mathematics as corrected in MATHS 2. The state is a set of sums (2.2): additive,
so any order and batching give the same surrogate and two streams can be merged.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self, cast

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from torch import Tensor

from bo_stream.core.state import Memo
from bo_stream.core.streaming import Promises, StreamingGP
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.grid.kernel import kernel_roots, kernel_values
from bo_stream.grid.nodes import Grid, Interpolation
from bo_stream.grid.posterior import GridProcess, stacked
from bo_stream.grid.rows import RowFactorisation, evidence_from_rows
from bo_stream.posterior.process import PosteriorProcess
from bo_stream.sums.evidence import Factorisation, attach, factorise
from bo_stream.sums.state import Statistics, add_outer

__all__ = ["WISKI"]

ROWS_FROM = 2000
"""Nodes from which a grid that has seen fewer points is factorised through them."""
FAR = 1e3
"""Outcomes further from zero than this are counted from the first batch's mean."""
UPDATES_PER_REBUILD = 1000
"""Points folded into the cache before it is rebuilt, against drift."""


class WISKI(StreamingGP):
    """Gaussian process with a structured-kernel-interpolation prior and constant-size statistics.

    Exact inference for the SKI prior; any stationary gpytorch kernel; m independent outputs on one
    grid. With m nodes: memory O(m^2); `observe` of q points O(q 16^d); the posterior after it O(q
    m^2) once, then O(4^d m) a point; evidence and gradient O(m^3). None of it depends on n.

    Args:
        train_X: ``n x d`` raw inputs, d <= 3; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances, or None to learn the noise.
        bounds: ``2 x d`` raw bounds; the grid covers their transformed image. Give this or
            ``grid``.
        covar_module, mean_module, likelihood, input_transform, outcome_transform: see
        `StreamingGP`.
        grid_size: Nodes per dimension, padding included: one integer or one per dimension. Default
            100, 30 x 30 or 10 x 10 x 10.
        grid: One regular 1-D tensor per dimension, in transformed space, padding included.

    Raises:
        UnsupportedError: for d > 3 or a kernel that is not stationary.
        InputError: unless exactly one of ``bounds`` and ``grid`` is given.

    Example:
        >>> import torch
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> model = WISKI(X, X.sum(-1, keepdim=True), bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        >>> model.observe(X + 0.0, X.sum(-1, keepdim=True)).num_observed
        40
        >>> model.posterior(X[:5]).mean.shape
        torch.Size([5, 1])
    """

    promises = Promises(
        order_invariant=True, bytes_constant=True, updates_without_drift=10_000, multi_output=True
    )
    A: Tensor
    b: Tensor
    yy: Tensor
    origin: Tensor  # what y is counted from in the sums
    ld: Tensor
    row_index: Tensor
    row_weight: Tensor
    row_y: Tensor
    row_r: Tensor

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        bounds: Tensor | None = None,
        covar_module: Kernel | None = None,
        mean_module: Mean | None = None,
        likelihood: Likelihood | None = None,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
        grid_size: int | Sequence[int] | None = None,
        grid: Sequence[Tensor] | None = None,
    ) -> None:
        if (bounds is None) == (grid is None) or (grid is not None and grid_size is not None):
            raise InputError(
                "exactly one of `bounds` (with or without `grid_size`) and `grid`",
                f"bounds={bounds is not None}, grid={grid is not None}",
                "Give the raw 2 x d bounds of the problem.",
            )
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            bounds=bounds,
            covar_module=covar_module,
            mean_module=mean_module,
            likelihood=likelihood,
            input_transform=input_transform,
            outcome_transform=outcome_transform,
        )
        if not self.covar_module.is_stationary:
            raise UnsupportedError(
                "a stationary kernel",
                type(self.covar_module).__name__,
                "Use ExactGP, or a stationary kernel on transformed inputs.",
            )
        if grid is not None:
            self.grid = Grid.from_nodes(grid, self._dim)
        else:
            image = self._transformed(self.get_buffer("bounds"))
            self.grid = Grid.covering(torch.stack([image.amin(0), image.amax(0)]), grid_size)
        m, o = self.grid.m, self.num_outputs
        shared = 1 if train_Yvar is None else o
        zeros = torch.zeros(1, dtype=torch.float64)
        self._register_state("A", zeros.new_zeros(shared, m, m))
        self._register_state("b", zeros.new_zeros(o, m))
        self._register_state("yy", zeros.new_zeros(o))
        self._register_state("origin", zeros.new_zeros(o))
        self._register_state("ld", zeros.new_zeros(shared))
        if m >= ROWS_FROM:
            self._register_state("row_index", torch.zeros(m, 4**self._dim, dtype=torch.int64))
            self._register_state("row_weight", zeros.new_zeros(m, 4**self._dim))
            self._register_state("row_y", zeros.new_zeros(o, m))
            self._register_state("row_r", zeros.new_ones(shared, m))
        self._pending: list[tuple[Interpolation, Tensor, Tensor | None]] | None = None
        self._folded = 0
        self._factorised = Memo()
        self.observe(train_X, train_Y, train_Yvar)
        self.eval()

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "grid": self.grid.digest()}

    def _absorb(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """A += W'R^-1 W, b += W'R^-1 y, yy += y'R^-1 y, ld += sum log r (MATHS 2.2)."""
        rows = self.grid.interpolate(X)
        weights = torch.ones_like(Y[:1]) if Yvar is None else 1.0 / Yvar
        if not self.num_observed:
            self.origin.copy_(_origin(Y.mean(-1)))
        y = Y - self.origin.unsqueeze(-1)
        self.b.index_add_(
            1, rows.index.flatten(), (rows.weight * (weights * y).unsqueeze(-1)).flatten(-2)
        )
        for A, r in zip(self.A, weights, strict=True):
            add_outer(A, rows, r)
        self.yy += (weights * y * y).sum(-1)
        self.ld -= weights.log().sum(-1)
        self._hold(rows, y, 1.0 / weights)
        self._remember(rows, Y, Yvar)

    def _remember(self, rows: Interpolation, Y: Tensor, Yvar: Tensor | None) -> None:
        """Keep the batch for folding into the posterior's cache, while that is cheaper than a
        rebuild.
        """
        self._folded += Y.shape[-1]
        if self._pending is not None:
            own = None if Yvar is None else Yvar.clone()
            self._pending.append((rows, Y.clone(), own))  # the caller may reuse its tensors
            waiting = sum(y.shape[-1] for _, y, _ in self._pending)
            if waiting > self.grid.m // 4 or self._folded > UPDATES_PER_REBUILD:
                self._pending = None

    def _rescale(self, shift: Tensor, factor: Tensor) -> None:
        """Scale ``y`` by 1/f and, where it is in the state, R by 1/f^2; the origin moves."""
        f, n = factor, self.num_observed
        noise = torch.ones_like(f) if self.noise_mode == "learned" else f.square()
        self.b.mul_((noise / f).unsqueeze(-1))
        self.yy.mul_(noise / f.square())
        self.origin.copy_((self.origin - shift) / f)
        if self.noise_mode != "learned":
            self.A.mul_(noise[:, None, None])
            self.ld.sub_(n * noise.log())
        if self._held_rows() is not None:
            self.row_y[:, :n].div_(f.unsqueeze(-1))
            if self.noise_mode != "learned":
                self.row_r[:, :n].div_(noise.unsqueeze(-1))
        self._count_from(_origin(self.origin))
        self._pending = None

    def _count_from(self, origin: Tensor) -> None:
        """Take the sums about another origin (MATHS 2.2)."""
        s, w1 = origin - self.origin, self.A.sum(-1)  # w1 = W'R^-1 1: rows of W sum to one
        self.yy.add_(s.square() * w1.sum(-1) - 2.0 * s * self.b.sum(-1))
        self.b.sub_(s.unsqueeze(-1) * w1)
        if self._held_rows() is not None:
            self.row_y[:, : self.num_observed].sub_(s.unsqueeze(-1))
        self.origin.copy_(origin)

    def merge(self, other: WISKI) -> Self:
        """Add another stream's observations in place: map-reduce ingestion. O(m^2).

        Raises:
            StateError: unless grids, transforms and noise modes are equal.
        """
        if not isinstance(other, WISKI) or other._layout() != self._layout():
            raise StateError(
                f"a WISKI of {self._layout()}",
                f"{other._layout() if isinstance(other, StreamingGP) else type(other).__name__}",
                "Build both streams with the same bounds, grid and noise model.",
            )
        for name in ("input_transform", "outcome_transform"):
            mine, theirs = getattr(self, name, None), getattr(other, name, None)
            if not _same_transform(mine, theirs):
                raise StateError(
                    f"equal {name}s",
                    "different ones",
                    "Hand both streams one transform in eval mode.",
                )
        if not self.num_observed:
            self.origin.copy_(other.origin)
        if not torch.equal(self.origin, other.origin.to(self.b.device)):
            other = copy.deepcopy(other)
            other._count_from(self.origin.to(other.b.device))
        rows = other._held_rows()
        if rows is not None:
            n = other.num_observed
            self._hold(rows, other.row_y[:, :n], other.row_r[:, :n])
        for name in ("A", "b", "yy", "ld", "_count", "_noise_sum"):
            self.get_buffer(name).add_(other.get_buffer(name).to(self.b.device))
        if other.incumbents is not None:
            best = other.get_buffer("_incumbent_X"), other.get_buffer("_incumbent_Y")
            self._keep_incumbents(
                best[0].to(self.b.device), best[1].unsqueeze(-1).to(self.b.device)
            )
        self._pending = None
        self._changed()
        return self

    # -- posterior -------------------------------------------------------------------------------

    def _build_process(self, previous: PosteriorProcess | None) -> PosteriorProcess:
        pending, self._pending = self._pending, []
        if previous is None or pending is None:
            self._folded = 0
            caches = [f.cache() for f in self._factorisations()]
            means, covs = zip(*caches, strict=True)
            mean = torch.stack(means) + self.origin.unsqueeze(-1)
            return GridProcess(self.grid, mean, stacked(covs))
        process = cast(GridProcess, previous)
        if not pending:
            return process
        scale = self._noise_scale().detach().unsqueeze(-1)
        rows = Interpolation(
            torch.cat([r.index for r, _, _ in pending]),
            torch.cat([r.weight for r, _, _ in pending]),
        )
        Y = torch.cat([y for _, y, _ in pending], -1)
        D = torch.cat([torch.ones_like(y) if v is None else v for _, y, v in pending], -1)
        return process.folded(rows, Y, scale * D)

    # -- objective -------------------------------------------------------------------------------

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence with closed-form gradients (MATHS 2.3, 2.4), in the K-root form.

        On a large grid that has seen fewer points than it has nodes, from the rows of W.
        """
        s2, c = self._noise_scale(), self._prior_mean() - self.origin
        rows = self._held_rows()
        if rows is None:
            made, values = self._from_statistics(s2, c, profile_mean)
        else:
            made, values = self._from_rows(rows, s2, c, profile_mean)
        total = torch.stack(values).sum()
        best = None
        if profile_mean:
            best = torch.stack([f.mean for f in made]) + self.origin
        self._factorised = Memo(made, self._hyperparameters(best), self._revision)
        return total, best

    def _from_statistics(
        self, s2: Tensor, c: Tensor, profile_mean: bool
    ) -> tuple[list[Factorisation | RowFactorisation], list[Tensor]]:
        roots, sources = kernel_roots(self.covar_module, self.grid, self.b, self.num_outputs)
        made: list[Factorisation | RowFactorisation] = []
        values = []
        for i in range(self.num_outputs):
            shared = min(i, len(self.A) - 1)
            stats = Statistics(
                self.A[shared], self.b[i], self.yy[i], self.ld[shared], self.get_buffer("_count")
            )
            inputs = [s2[i], c[i], *sources[i]]
            with torch.no_grad():
                value, grads, factorisation = factorise(roots[i], stats, s2[i], c[i], profile_mean)
            made.append(factorisation)
            values.append(attach(value, inputs, grads))
        return made, values

    def _from_rows(
        self, rows: Interpolation, s2: Tensor, c: Tensor, profile_mean: bool
    ) -> tuple[list[Factorisation | RowFactorisation], list[Tensor]]:
        n = self.num_observed
        kernels = kernel_values(self.covar_module, self.grid, self.b, self.num_outputs)
        made: list[Factorisation | RowFactorisation] = []
        values = []
        for i, k in enumerate(kernels):
            y, r = self.row_y[i, :n], self.row_r[min(i, len(self.row_r) - 1), :n]
            value, factorisation = evidence_from_rows(
                k, self.grid, rows, y, r, s2[i], c[i], profile_mean
            )
            made.append(factorisation)
            values.append(value)
        return made, values

    def _factorisations(self) -> list[Factorisation | RowFactorisation]:
        memo = self._factorised
        if memo.revision != self._revision or not memo.fits(self._hyperparameters()):
            with torch.no_grad():
                self._objective(profile_mean=False)
        return cast("list[Factorisation | RowFactorisation]", self._factorised.value)

    def _hold(self, rows: Interpolation, Y: Tensor, R: Tensor) -> None:
        """Keep the rows of W, on a large grid and while they are fewer than its nodes."""
        start, end = self.num_observed, self.num_observed + Y.shape[-1]
        if self.grid.m >= ROWS_FROM and end <= self.grid.m:
            self.row_index[start:end], self.row_weight[start:end] = rows.index, rows.weight
            self.row_y[:, start:end], self.row_r[:, start:end] = Y, R

    def _held_rows(self) -> Interpolation | None:
        n = self.num_observed
        if self.grid.m < ROWS_FROM or not 0 < n < self.grid.m:
            return None
        return Interpolation(self.row_index[:n], self.row_weight[:n])


def _origin(mean: Tensor) -> Tensor:
    """What outcomes of this mean are counted from: zero, unless squares would drown in it."""
    return torch.where(mean.abs() > FAR, mean, 0.0)


def _same_transform(a: Any, b: Any) -> bool:
    """Whether two transforms are of one class throughout, with equal settings and coefficients."""
    if a is None or b is None:
        return a is b
    mine, theirs = a.state_dict(), b.state_dict()
    if [_settings(m) for m in a.modules()] != [_settings(m) for m in b.modules()]:
        return False
    return mine.keys() == theirs.keys() and all(torch.equal(v, theirs[k]) for k, v in mine.items())


def _settings(module: Any) -> tuple[type, dict[str, Any]]:
    """Class and plain settings of a module."""
    plain = (bool, int, float, str, tuple, list, type(None))
    kept = {k: v for k, v in vars(module).items() if isinstance(v, plain) and k != "training"}
    return type(module), kept
