"""Posterior from few observations on a grid with a product kernel.

Rows of W are products over dimensions, and so is the kernel: the prior covariance of two points is
``os prod_k w_k' K_k w_k``, whose cost does not depend on the number of nodes. The posterior is that
of an exact Gaussian process with this kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.mathematics.grid.data_space import DataSpaceFactorisation, ProductPrior
from bo_stream.mathematics.grid.kronecker import kron_left
from bo_stream.mathematics.grid.nodes import Grid, interpolated_product
from bo_stream.mathematics.grid.posterior import GridPath
from bo_stream.mathematics.grid.roots import jittered_root
from bo_stream.mathematics.lasting import lasting_property
from bo_stream.mathematics.moments import Moments, leaf, pullback, sloped_product
from bo_stream.mathematics.paths import Path
from bo_stream.mathematics.process import KernelBasis, Process

__all__ = ["DataSpaceProcess"]


@dataclass(frozen=True)
class InterpolatedBasis(KernelBasis):
    """Interpolated kernels at the data."""

    def prior(self, outputs: int, sample_shape: Size) -> Path:
        """Exact sample functions."""
        kernel = cast(InterpolatedKernel, self.kernel)
        return GridPath(kernel.grid, kernel.draws(sample_shape))


@dataclass(frozen=True)
class DataSpaceProcess(Process):
    """Posterior of an exact GP with an interpolated kernel, with moments in closed form."""

    @classmethod
    def of(
        cls,
        made: Sequence[DataSpaceFactorisation],
        grid: Grid,
        X: Tensor,
        noise: Tensor,
        mean: Tensor,
    ) -> DataSpaceProcess:
        """From the factorisations of all outputs with a product kernel.

        Args:
            made: One for each output.
            grid: The nodes.
            X: The points, ``n x d``.
            noise: Their noise variances, ``o x n``, or ``1 x n`` if outputs share them.
            mean: Constant prior means, ``o``.
        """
        priors = [cast(ProductPrior, part.prior) for part in made]
        kernel = InterpolatedKernel(grid, [[prior.amplitude, *prior.kernels] for prior in priors])
        L, h = (torch.stack([getattr(part, name) for part in made]) for name in ("L", "h"))
        basis = InterpolatedBasis(kernel, X, noise.expand(len(made), -1))
        return cls(kernel, basis, L, None, h, mean)

    @property
    def has_moments(self) -> bool:
        """Of one output."""
        return len(self.u) == 1

    def moments(self, X: Tensor, *, slopes: bool, across: Any | None = None) -> Moments | None:
        """O(n^2) per point."""
        if not self.has_moments:
            return None
        grid, L = cast(InterpolatedKernel, self.kernel).grid, cast(Tensor, self.R)[0]
        with torch.set_grad_enabled(slopes):
            points = leaf(X, slopes)
            places = grid.place(points)
        axes = grid.axes_at(places.detach(), slopes=slopes)
        priors, cross, alpha = self._prepared
        k = interpolated_product(axes, cross)
        half = (axes[..., 0, :].flatten(1, -2) @ priors).unflatten(1, axes.shape[1:-2])
        prior = axes.flatten(-3, -2) @ half.mT
        prior = sloped_product(prior.unflatten(-2, axes.shape[-3:-1]).unbind(0))
        means = self.mean[0] * (torch.arange(k.shape[-2], device=k.device) == 0) + k @ alpha
        V = torch.linalg.solve_triangular(L, k.flatten(0, -2).mT, upper=False).mT.reshape(k.shape)
        cov = prior - (V.flatten(-3, -2) @ V[..., 0, :].mT).unflatten(-2, k.shape[-3:-1])
        others = None
        if across is not None:
            others = interpolated_product(axes, priors @ self._axes(across.X).mT)
            others = others - V @ across.rows[0].mT
        if not slopes:
            return Moments(means[..., 0], cov[..., 0, :], across=others)
        return Moments.of(means, cov, pullback(places, points), others)

    @lasting_property
    def _prepared(self) -> tuple[Tensor, Tensor, Tensor]:
        """What `moments` needs: the factors of the prior, padded to one size; their products with
        the rows of the observations; and the coefficients of the mean.
        """
        kernel, basis = cast(InterpolatedKernel, self.kernel), cast(KernelBasis, self.basis)
        most, amplitude = max(kernel.grid.sizes), kernel.get_buffer("amplitude").squeeze()
        spread = [F.pad(K, (0, most - len(K), 0, most - len(K))) for K in kernel.kernels]
        priors = torch.stack([amplitude * spread[0], *spread[1:]])
        R = cast(Tensor, self.R)[0]
        alpha = torch.linalg.solve_triangular(R.mT, self.u[0].unsqueeze(-1), upper=True)
        return priors, priors @ self._axes(basis.Z).mT, alpha.squeeze(-1)

    def _axes(self, X: Tensor) -> Tensor:
        """Rows of each dimension at points ``n x d``: ``d x n x max(n_k)``."""
        grid = cast(InterpolatedKernel, self.kernel).grid
        return grid.axes_at(grid.place(X), slopes=False).squeeze(-2)


class InterpolatedKernel(Kernel):
    """The prior covariance ``w_x' K w_z`` of a product kernel on a grid, for o outputs."""

    def __init__(self, grid: Grid, factors: Sequence[Sequence[Tensor]]) -> None:
        amplitude, *kernels = (torch.stack(list(own)) for own in zip(*factors, strict=True))
        one = len(amplitude) == 1
        super().__init__(batch_shape=Size([] if one else [len(amplitude)]))
        self.grid = grid
        self.register_buffer("amplitude", amplitude.reshape((1, 1) if one else (-1, 1, 1)))
        for k, K in enumerate(kernels):
            self.register_buffer(f"kernel_{k}", K[0] if one else K)

    @property
    def kernels(self) -> list[Tensor]:
        """One factor for each dimension."""
        return [self.get_buffer(f"kernel_{k}") for k in range(self.grid.dim)]

    def draws(self, sample_shape: Size) -> Tensor:
        """Draws of the values at the nodes, ``sample_shape x o x m``."""
        draws = []
        kernels = [K.reshape(-1, *K.shape[-2:]) for K in self.kernels]
        for amplitude, *own in zip(self.get_buffer("amplitude").flatten(), *kernels, strict=True):
            noise = torch.randn(self.grid.m, sample_shape.numel()).to(amplitude)
            roots = [jittered_root(K) for K in own]
            draws.append(kron_left(roots, noise) * amplitude.sqrt())
        return torch.stack(draws).movedim(-1, 0).reshape(*sample_shape, len(draws), -1)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Values at points ``batch x 1 x q x d``."""
        left = self.grid.axes_at(self.grid.place(x1), slopes=False).squeeze(-2)
        right = left
        if x1 is not x2:
            right = self.grid.axes_at(self.grid.place(x2), slopes=False).squeeze(-2)
        amplitude = self.get_buffer("amplitude")
        value = amplitude.squeeze(-1) if diag else amplitude
        for a, K, b in zip(left, self.kernels, right, strict=True):
            a, b = a[..., : K.shape[-1]], b[..., : K.shape[-1]]
            half = a @ K
            value = value * ((half * b).sum(-1) if diag else half @ b.mT)
        return value
