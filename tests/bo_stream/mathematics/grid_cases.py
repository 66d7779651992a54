"""States of grids and kernels, and what follows from them by each route."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.kernels import (
    Kernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Size, Tensor

from bo_stream.mathematics.grid import Grid, GridState, Interpolation
from bo_stream.mathematics.grid_evidence import grid_evidence, grid_process
from bo_stream.mathematics.kernels import Prior
from bo_stream.mathematics.shapes import Rows
from bo_stream.testing.oracles import DenseGP
from tests.bo_stream.surrogates.wiski_oracle import dense_rows, nodes_for

SIZES: dict[int, tuple[int, ...]] = {1: (60,), 2: (9, 8), 3: (7, 6, 8)}
KERNELS: dict[str, Any] = {
    "RBF": lambda d, b: ScaleKernel(RBFKernel(ard_num_dims=d, batch_shape=b), batch_shape=b),
    "RBF times periodic": lambda d, b: ScaleKernel(
        ProductKernel(RBFKernel(ard_num_dims=d, batch_shape=b), PeriodicKernel(batch_shape=b)),
        batch_shape=b,
    ),
    "Matern by dimension": lambda d, b: ScaleKernel(
        ProductKernel(*(MaternKernel(nu=2.5, active_dims=[i], batch_shape=b) for i in range(d))),
        batch_shape=b,
    ),
    "Matern": lambda d, b: ScaleKernel(
        MaternKernel(nu=1.5, ard_num_dims=d, batch_shape=b), batch_shape=b
    ),
}
ROUTES = ("data", "roots")


def unit_grid(sizes: tuple[int, ...]) -> Grid:
    return Grid.covering(torch.tensor([[0.0] * len(sizes), [1.0] * len(sizes)]).double(), sizes)


def kernel(name: str, d: int, outputs: int = 1) -> Kernel:
    """With unusual hyperparameters, others for each output."""
    made: Kernel = KERNELS[name](d, Size([outputs] if outputs > 1 else [])).double()
    generator = torch.Generator().manual_seed(2)
    for p in made.parameters():
        p.data.add_(0.5 * torch.rand(p.shape, generator=generator, dtype=p.dtype))
    return made


def points(n: int, d: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, d, generator=generator, dtype=torch.float64)


def data(n: int, d: int, outputs: int = 1, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs ``n x d``, targets and noise variances ``o x n``."""
    X = points(n, d, seed)
    generator = torch.Generator().manual_seed(seed + 100)
    noise = torch.randn(outputs, n, generator=generator, dtype=torch.float64)
    wave = (5.0 * X.sum(-1) + torch.arange(outputs).unsqueeze(-1)).sin()
    return X, 0.7 + wave + 0.3 * noise, 0.3 + 0.1 * noise.square()


class Stream:
    """A state that has seen n points, and hyperparameters with gradient."""

    def __init__(
        self,
        own: Kernel,
        sizes: tuple[int, ...],
        n: int = 40,
        outputs: int = 1,
        route: str = "data",
    ) -> None:
        self.X, self.Y, self.R = data(n, len(sizes), outputs)
        self.kernel, self.sizes, self.n = own, sizes, n
        grid = unit_grid(sizes)
        opening = 4096 if route == "data" else 0  # where none are held, they are not used
        empty = GridState.before_data(grid, len(sizes), outputs, False, opening)
        self.state = empty.absorb_at(Rows(self.X, self.Y, self.R), 0)
        self.s2 = torch.linspace(0.4, 0.6, outputs).double().requires_grad_()
        self.c = torch.linspace(0.3, -0.2, outputs).double().requires_grad_()

    @property
    def prior(self) -> Prior:
        return Prior(self.kernel, self.s2, self.c)

    def evidence(self) -> Tensor:
        return grid_evidence(self.state, self.prior, self.n, False)[0]

    def gradients(self, value: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(value, [self.s2, self.c, *self.kernel.parameters()]))

    def process(self, *, moves: bool = False) -> Any:
        return grid_process(self.state, self.prior, self.n, moves=moves)

    def dense(self, output: int = 0) -> DenseGP:
        """The same by dense algebra, differentiable."""
        axes = nodes_for(
            torch.tensor([[0.0] * len(self.sizes), [1.0] * len(self.sizes)]), self.sizes
        )
        U = torch.cartesian_prod(*axes).reshape(-1, len(axes))

        def covariance(X: Tensor, Z: Tensor) -> Tensor:
            K = self.kernel(U).to_dense()
            K = K[output] if K.ndim == 3 else K
            return dense_rows(X, axes) @ K @ dense_rows(Z, axes).T

        noise = self.s2[output] * self.R[output]
        return DenseGP(covariance, self.X, self.Y[output], noise, self.c[output])


def dense_interpolation(rows: Interpolation) -> Tensor:
    """Interpolation rows as ``batch x q x m``."""
    W = rows.weights.new_zeros(*rows.start.shape[:-1], math.prod(rows.sizes))
    return W.scatter(-1, rows.index, rows.weight)
