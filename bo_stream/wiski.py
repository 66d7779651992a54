"""WISKI: a Gaussian process on a grid whose cost per step does not depend on how much it has seen.

[WISKI] Stanton, Maddox, Delbridge, Wilson 2021, Kernel Interpolation for Scalable Online Gaussian
Processes; mathematics as corrected in MATHS section 2. The state is a set of sums (2.2): additive,
so any order and batching give the same surrogate and two streams can be merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel, PeriodicKernel, ProductKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, Mean
from linear_operator.operators import LinearOperator, MatmulLinearOperator
from torch import Size, Tensor

from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.grid import Grid, Interpolation, add_outer
from bo_stream.grid_evidence import (
    TINY,
    DenseRoot,
    Factorisation,
    ProductRoot,
    Root,
    Statistics,
    attach,
    factorise,
)
from bo_stream.grid_integral import Carry
from bo_stream.latent import Latent, Path, Predictor
from bo_stream.streaming import Memo, Promises, StreamingGP

__all__ = ["WISKI", "GridLatent", "GridPredictor"]

UPDATES_PER_REBUILD = 1000
"""Points folded into the cache before it is rebuilt, against drift."""
CHUNK = 1024


@dataclass(frozen=True)
class GridLatent(Latent):
    """Law of the interpolated grid values: covariance ``w_x' S_u w_z`` (MATHS 2.3)."""

    mean: Tensor
    rows: Interpolation
    S: Tensor

    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``: O(16^d) per point."""
        K = self.rows.index.shape[-1]
        index, weight = self.rows.index.reshape(-1, K), self.rows.weight.reshape(-1, K)
        parts = []
        for i, w in zip(index.split(CHUNK), weight.split(CHUNK), strict=True):
            block = self.S[:, i.unsqueeze(-1), i.unsqueeze(-2)]
            parts.append(((block @ w.unsqueeze(-1)).squeeze(-1) * w).sum(-1))
        values = torch.cat(parts, -1) if parts else self.S.new_empty(len(self.S), 0)
        return values.reshape(len(self.S), *self.rows.index.shape[:-1]).movedim(0, -2)

    def covariance(self, other: GridLatent) -> Tensor:
        """Covariance ``batch x o x q x q'``: O(4^d m) per point of the smaller set, 4^d a pair."""
        if other is self:
            covariance: Tensor = _OwnCovariance.apply(self.rows.weight, self.rows.index, self.S)
            return covariance
        if self.rows.index.shape[:-1].numel() > other.rows.index.shape[:-1].numel():
            return other.covariance(self).mT
        picked = _picked(_spread(self.S, self.rows), other.rows.index)
        return (picked * other.rows.weight.unsqueeze(-3).unsqueeze(-3)).sum(-1)

    def operator(self) -> LinearOperator:
        """The covariance as a product ``(W S) W'``: O(q m) memory, cheap diagonal."""
        W = self.rows.dense(self.S.shape[-1]).unsqueeze(-3)
        return MatmulLinearOperator(
            _spread(self.S, self.rows), W.mT.expand(*W.shape[:-3], len(self.S), -1, -1)
        )


def _spread(S: Tensor, rows: Interpolation) -> Tensor:
    """``W S``, ``batch x o x q x m``."""
    shape = rows.index.shape
    index, weight = rows.index.reshape(-1, shape[-1]), rows.weight.reshape(-1, shape[-1])
    bags = [F.embedding_bag(index, s, per_sample_weights=weight, mode="sum") for s in S]
    return torch.stack(bags).reshape(len(S), *shape[:-1], S.shape[-1]).movedim(0, -3)


def _picked(spread: Tensor, index: Tensor) -> Tensor:
    """``batch x o x q x m`` at nodes ``batch x q' x 4^d``: ``batch x o x q x q' x 4^d``."""
    pick = index.flatten(-2).unsqueeze(-2).unsqueeze(-3)
    shape = torch.broadcast_shapes(spread.shape[:-1], (*pick.shape[:-3], 1, 1))
    picked = spread.expand(*shape, -1).gather(-1, pick.expand(*shape, -1))
    return picked.unflatten(-1, index.shape[-2:])


class _OwnCovariance(torch.autograd.Function):
    """``W S W'`` of one set of points, differentiable (once) in its weights.

    S is symmetric, so the gradient needs only the entries already gathered: half the cost of going
    back through the sparse product, inside every acquisition's inner loop.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, index: Tensor, S: Tensor) -> Tensor:
        picked = _picked(_spread(S, Interpolation(index, weight)), index)
        ctx.save_for_backward(picked)
        return (picked * weight.unsqueeze(-3).unsqueeze(-3)).sum(-1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (picked,) = ctx.saved_tensors
        both = (grad + grad.mT).unsqueeze(-1)
        return (both * picked).sum(-3).sum(-3), None, None


@dataclass(frozen=True)
class GridPredictor:
    """Posterior of the grid values ``u``: mean ``m_u`` (``o x m``), covariance ``S_u`` (``o x m x
    m``).
    """

    grid: Grid
    mean_u: Tensor
    S_u: Tensor
    carry: Carry = field(default_factory=Carry)

    def latent(self, X: Tensor) -> GridLatent:
        """The law at points ``batch x q x d``: O(4^d) per mean."""
        rows = self.grid.interpolate(X)
        return GridLatent(self._interpolated(self.mean_u, rows), rows, self.S_u)

    def path(self, sample_shape: Size) -> Path:
        """Exact sample functions: interpolated draws of the grid values."""
        scale = self.S_u.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        eye = torch.eye(self.grid.m, dtype=self.S_u.dtype, device=self.S_u.device)
        L = torch.linalg.cholesky(self.S_u + 1e-10 * scale * eye)
        noise = torch.randn(*sample_shape, *self.mean_u.shape, dtype=L.dtype, device=L.device)
        draws = self.mean_u + (L @ noise.unsqueeze(-1)).squeeze(-1)

        def sample(X: Tensor) -> Tensor:
            rows = self.grid.interpolate(X)
            batch = torch.broadcast_shapes(draws.shape[:-2], rows.index.shape[:-2])
            index = rows.index.flatten(-2).unsqueeze(-2).expand(*batch, draws.shape[-2], -1)
            picked = draws.expand(*batch, -1, -1).gather(-1, index)
            picked = picked.unflatten(-1, rows.index.shape[-2:])
            return (picked * rows.weight.unsqueeze(-3)).sum(-1)

        return sample

    def folded(self, rows: Interpolation, Y: Tensor, D: Tensor) -> GridPredictor:
        """The predictor given ``Y`` (``o x q``) with noise D at these points: O(q m^2)."""
        means, covs, updates = [], [], []
        for mean, S, y, d in zip(self.mean_u, self.S_u, Y, D, strict=True):
            U = F.embedding_bag(rows.index, S, per_sample_weights=rows.weight, mode="sum")
            C = (U[:, rows.index] * rows.weight).sum(-1)
            C.diagonal().add_(d)
            L = torch.linalg.cholesky(C)
            V = torch.linalg.solve_triangular(L, U, upper=False)
            residual = y - (mean[rows.index] * rows.weight).sum(-1)
            r = torch.linalg.solve_triangular(L, residual.unsqueeze(-1), upper=False)
            means.append(mean + (V.mT @ r).squeeze(-1))
            covs.append(torch.addmm(S, V.mT, V, alpha=-1.0))
            updates.append(V)
        carry = self.carry.after(torch.stack(updates))
        return GridPredictor(self.grid, torch.stack(means), torch.stack(covs), carry)

    @staticmethod
    def _interpolated(values: Tensor, rows: Interpolation) -> Tensor:
        """``values`` (``o x m``) at the rows, ``batch x o x q``."""
        return (values[:, rows.index] * rows.weight).sum(-1).movedim(0, -2)


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
    ld: Tensor

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
        self._register_state("ld", zeros.new_zeros(shared))
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
        self.b.index_add_(
            1, rows.index.flatten(), (rows.weight * (weights * Y).unsqueeze(-1)).flatten(-2)
        )
        for A, r in zip(self.A, weights, strict=True):
            add_outer(A, rows, r)
        self.yy += (weights * Y * Y).sum(-1)
        self.ld -= weights.log().sum(-1)
        self._remember(rows, Y, Yvar)

    def _remember(self, rows: Interpolation, Y: Tensor, Yvar: Tensor | None) -> None:
        """Keep the batch for folding into the posterior's cache, while that is cheaper than a
        rebuild.
        """
        self._folded += Y.shape[-1]
        if self._pending is not None:
            self._pending.append((rows, Y, Yvar))
            waiting = sum(y.shape[-1] for _, y, _ in self._pending)
            if waiting > self.grid.m // 4 or self._folded > UPDATES_PER_REBUILD:
                self._pending = None

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
        for name in ("A", "b", "yy", "ld", "_count", "_noise_sum"):
            self.get_buffer(name).add_(other.get_buffer(name).to(self.b.device))
        self._pending = None
        self._changed()
        return self

    # -- posterior -------------------------------------------------------------------------------

    def _build_predictor(self, previous: Predictor | None) -> Predictor:
        pending, self._pending = self._pending, []
        if previous is None or pending is None:
            self._folded = 0
            caches = [f.cache() for f in self._factorisations()]
            means, covs = zip(*caches, strict=True)
            return GridPredictor(self.grid, torch.stack(means), torch.stack(covs))
        predictor = cast(GridPredictor, previous)
        if not pending:
            return predictor
        scale = self._noise_scale().detach().unsqueeze(-1)
        rows = Interpolation(
            torch.cat([r.index for r, _, _ in pending]),
            torch.cat([r.weight for r, _, _ in pending]),
        )
        Y = torch.cat([y for _, y, _ in pending], -1)
        D = torch.cat([torch.ones_like(y) if v is None else v for _, y, v in pending], -1)
        return predictor.folded(rows, Y, scale * D)

    # -- objective -------------------------------------------------------------------------------

    def _evidence(self, profile_mean: bool) -> Tensor:
        """Log evidence in the K-root form with closed-form gradients (MATHS 2.3, 2.4)."""
        s2, c = self._noise_scale(), self._prior_mean()
        roots, sources = self._roots()
        total = self.b.new_zeros(())
        factorisations = []
        for i in range(self.num_outputs):
            stats = Statistics(
                self.A[min(i, len(self.A) - 1)],
                self.b[i],
                self.yy[i],
                self.ld[min(i, len(self.ld) - 1)],
                self.get_buffer("_count"),
            )
            inputs = [s2[i], c[i], *sources[i]]
            with torch.no_grad():
                value, grads, made = factorise(
                    roots[i], stats, s2[i].detach(), c[i].detach(), profile_mean
                )
            factorisations.append(made)
            total = total + attach(value, inputs, grads)
        if profile_mean:
            mean = cast(ConstantMean, self.mean_module)
            constants = torch.stack([f.mean for f in factorisations])
            mean.constant = constants.reshape(mean.constant.shape).to(mean.constant)
        self._factorised = Memo(factorisations, self._hyperparameters(), self._revision)
        return total

    def _factorisations(self) -> list[Factorisation]:
        memo = self._factorised
        if memo.revision != self._revision or not memo.fits(self._hyperparameters()):
            self._evidence(profile_mean=False)
        return cast(list[Factorisation], self._factorised.value)

    def _roots(self) -> tuple[list[Root], list[list[Tensor]]]:
        """Per output a root of K without gradient, and the tensors (with gradient) it is made
        from.
        """
        points = self.b
        origin = points.new_zeros(1, self._dim)
        if self._dim == 1 or _is_product(self.covar_module):
            axes = self.grid.axes(points)
            values = self._kernel_values(origin, torch.cat(axes))
            sources = []
            for row in values:
                parts = row.split([len(axis) for axis in axes])
                unit = [_toeplitz(part / part[0]) for part in parts]
                sources.append([row[0], *unit])
            roots: list[Root] = [
                ProductRoot(a.detach(), [K.detach() for K in Ks]) for a, *Ks in sources
            ]
            return roots, sources
        values = self._kernel_values(origin, self.grid.differences(points))
        values = torch.where(values.abs() < TINY * values.amax(), 0.0, values)
        sources = [[self.grid.spread(row)] for row in values]
        band = 4 * (self.grid.m // self.grid.sizes[0])
        return [DenseRoot(K.detach(), band) for (K,) in sources], sources

    def _kernel_values(self, x: Tensor, Z: Tensor) -> Tensor:
        """Kernel of one point against ``k`` others, ``o x k``."""
        return self.covar_module(x, Z).to_dense().reshape(-1, len(Z)).expand(self.num_outputs, -1)


def _add_outer(A: Tensor, rows: Interpolation, r: Tensor) -> None:
    """``A += sum_i r_i w_i w_i'`` in place: O(q 16^d)."""
    m, K = A.shape[-1], rows.index.shape[-1]
    size = max(1, CHUNK * 256 // (K * K))
    for i, w, s in zip(rows.index.split(size), rows.weight.split(size), r.split(size), strict=True):
        index = i.unsqueeze(-1) * m + i.unsqueeze(-2)
        outer = (w * s.unsqueeze(-1)).unsqueeze(-1) * w.unsqueeze(-2)
        A.view(-1).index_add_(0, index.flatten(), outer.flatten())


def _toeplitz(row: Tensor) -> Tensor:
    """Symmetric Toeplitz matrix of its first row."""
    i = torch.arange(len(row), device=row.device)
    return row[(i.unsqueeze(0) - i.unsqueeze(1)).abs()]


def _is_product(kernel: Kernel) -> bool:
    """Whether the kernel is a product of one-dimensional kernels."""
    if isinstance(kernel, ScaleKernel):
        return _is_product(kernel.base_kernel)
    if isinstance(kernel, ProductKernel):
        return all(_is_product(k) for k in kernel.kernels)
    return type(kernel) in (RBFKernel, PeriodicKernel)


def _same_transform(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    mine, theirs = a.state_dict(), b.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(v, theirs[k]) for k, v in mine.items())
