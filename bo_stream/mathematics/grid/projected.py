"""A grid over learned functions of the inputs, and how they are learned [WISKI, MATHS 2.5].

Points pass through ``h(x; phi)`` before they are interpolated at. Rows of the past stay as they
are, so that what new points add to the evidence is their predictive density given the sums before
them: that is what phi climbs.
"""

from __future__ import annotations

import copy
import math
import threading
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from bo_stream.errors import InputError
from bo_stream.mathematics.grid.kernel import data_space_priors, is_kronecker, kernel_matrices
from bo_stream.mathematics.grid.nodes import DEFAULT_SIZES, Grid
from bo_stream.mathematics.grid.posterior import GridProcess
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.shapes import shaped

__all__ = [
    "Linear",
    "OfModule",
    "ProjectedGrid",
    "ProjectedKernel",
    "log_density",
    "projection_of",
    "uphill",
]

PROBES = 64
"""Points at which a module is tried out."""
HALVINGS = 8
"""Times that a step which does not gain is halved."""
NEAR = 1e-6
"""Lengths of phi over which means are taken to be linear."""
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Linear:
    """``k`` linear functions, each scaled so that the unit cube just fills the unit interval.

    ``h_j(u) = 1/2 + sum_i phi_ji (u_i - 1/2) / sum_i |phi_ji|``: the length of a row of phi does
    not matter.

    Attributes:
        inputs: ``d``.
        outputs: ``k``.
    """

    inputs: int
    outputs: int

    @property
    def given(self) -> int:
        """What was asked for."""
        return self.outputs

    def __call__(self, U: Tensor, phi: Tensor) -> Tensor:
        """O(d k) a point."""
        W = phi.reshape(self.outputs, self.inputs)
        return 0.5 + (U - 0.5) @ (W / W.abs().sum(-1, keepdim=True)).mT

    def start(self) -> Tensor:
        """Orthonormal rows: the inputs themselves where there are as many functions as inputs."""
        if self.outputs == self.inputs:
            return torch.eye(self.inputs, dtype=torch.float64).flatten()
        (first,) = self.others(torch.Generator().manual_seed(0), 1)
        return torch.linalg.qr(first.reshape(self.outputs, -1).mT)[0].mT.flatten()

    def others(self, generator: torch.Generator, count: int) -> list[Tensor]:
        """Random directions."""
        size = self.outputs * self.inputs
        return list(torch.randn(count, size, generator=generator, dtype=torch.float64))


class OfModule:
    """A module's values, its parameters taken from phi; those that need no gradient stay."""

    def __init__(self, module: nn.Module, inputs: int) -> None:
        self.given = module
        self.module = copy.deepcopy(module).double().eval()
        learned = [(n, p) for n, p in self.module.named_parameters() if p.requires_grad]
        self._shapes = {name: p.shape for name, p in learned}
        self._start = [p.detach().flatten().clone() for _, p in learned]
        self.module.requires_grad_(False)
        U = torch.rand(
            PROBES, inputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64
        )
        Z = self(U, self.start())
        if not (Z.ndim == 2 and len(Z) == PROBES and Z.shape[1] in DEFAULT_SIZES):
            raise _unfit(f"values of shape {tuple(Z.shape)} for {PROBES} points")
        if not bool(((Z >= 0.0) & (Z <= 1.0)).all()):
            raise _unfit(f"values from {float(Z.min()):.3g} to {float(Z.max()):.3g}")
        self.outputs = Z.shape[1]

    def __call__(self, U: Tensor, phi: Tensor) -> Tensor:
        """The module at U. (It is written to meanwhile, so that threads have to wait.)"""
        parts = phi.split([shape.numel() for shape in self._shapes.values()])
        given = {
            name: part.reshape(shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }
        with _one_at_a_time:
            values: Tensor = torch.func.functional_call(self.module, given, (U,))
        return values

    def start(self) -> Tensor:
        """The parameters that the module came with."""
        return torch.cat([torch.zeros(0, dtype=torch.float64), *self._start])

    def others(self, generator: torch.Generator, count: int) -> list[Tensor]:
        """None: how a module is begun with is its own matter."""
        return []


def projection_of(given: int | nn.Module, inputs: int) -> Linear | OfModule:
    """So many linear functions of the inputs, or those that a module computes.

    Raises:
        InputError: on a number that is not between 1 and 3 and at most that of the inputs, or on a
            module whose values are not one to three numbers in the unit interval a point.
    """
    if isinstance(given, nn.Module):
        return OfModule(given, inputs)
    if type(given) is not int or not 1 <= given <= min(inputs, max(DEFAULT_SIZES)):
        raise InputError(
            f"a projection to 1 to {min(inputs, max(DEFAULT_SIZES))} dimensions, or a module",
            repr(given),
            "Give the number of linear functions of the inputs, or a module of your own.",
        )
    return Linear(inputs, given)


def _unfit(got: str) -> InputError:
    return InputError(
        "a module that maps points `n x d` in the unit cube to `n x k`, k <= 3, in the unit cube",
        got,
        "Let it end in a linear layer to k values and a sigmoid.",
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ProjectedGrid(Grid):
    """A folded grid over the unit cube, at whose points ``h((x - low) / width; phi)`` are looked.

    Attributes:
        projection: ``h``.
        low: Lower bounds of the inputs.
        width: Widths of the bounds.
        phi: What is learned.
    """

    projection: Linear | OfModule
    low: tuple[float, ...]
    width: tuple[float, ...]
    phi: Tensor = shaped("f")

    @classmethod
    def over(
        cls, nodes: Grid, projection: Linear | OfModule, bounds: Tensor, phi: Tensor
    ) -> ProjectedGrid:
        """These nodes, for points between bounds ``2 x d``."""
        low, width = bounds[0].tolist(), (bounds[1] - bounds[0]).tolist()
        plain = {part.name: getattr(nodes, part.name) for part in fields(Grid)}
        return cls(**plain, projection=projection, low=tuple(low), width=tuple(width), phi=phi)

    @property
    def inputs(self) -> int:
        """Number of inputs of the points that are interpolated at."""
        return len(self.low)

    def place(self, X: Tensor) -> Tensor:
        """``h`` at points ``batch x q x d``: ``batch x q x k``, differentiable in X and phi."""
        U = (X - X.new_tensor(self.low)) / X.new_tensor(self.width)
        return self.projection(U, self.phi)

    def same_as(self, other: Grid) -> bool:
        """Whether interpolation from both is the same."""
        if not isinstance(other, ProjectedGrid) or self.phi.shape != other.phi.shape:
            return False
        settings = [p.name for p in fields(self) if p.name not in ("phi", "projection")]
        alike = all(getattr(self, name) == getattr(other, name) for name in settings)
        return alike and bool((self.phi == other.phi.to(self.phi.device)).all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grid) and self.same_as(other)

    __hash__ = Grid.__hash__


class ProjectedKernel(Kernel):
    """The covariance of a process interpolated from a projected grid, with phi as a parameter.

    For the evidence of a few hundred points as a function of phi and all else.

    Args:
        kernel: On the nodes.
        grid: The nodes, and the phi to begin with.
    """

    def __init__(self, kernel: Kernel, grid: ProjectedGrid) -> None:
        super().__init__()
        self.base_kernel, self.grid = kernel, grid
        self.register_parameter("phi", nn.Parameter(grid.phi.clone()))

    @property
    def batch_shape(self) -> torch.Size:
        """That of the kernel on the nodes."""
        return self.base_kernel.batch_shape

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """``W K W'`` of the points ``x1``, ``o x n x n``; ``x2`` must be the same."""
        X, outputs = x1.reshape(-1, *x1.shape[-2:])[0], max(1, self.batch_shape.numel())
        grid = replace(self.grid, phi=self.phi)
        if is_kronecker(self.base_kernel, grid):
            priors = data_space_priors(self.base_kernel, grid, X, outputs)
            covariance = torch.stack([prior.covariance() for prior in priors])
        else:
            W = grid.interpolate(X).dense(grid.m)
            K = torch.stack(kernel_matrices(self.base_kernel, grid, X, outputs))
            covariance = W @ K @ W.mT
        return covariance.diagonal(dim1=-2, dim2=-1) if diag else covariance


def log_density(process: GridProcess, X: Tensor, Y: Tensor, D: Tensor) -> Tensor:
    """``J`` of MATHS 2.5: log density of new points given the process before them, 0-dim.

    Differentiable in the grid's phi: ``log N(Y; c + W al, D + s2 W M W')``, summed over outputs.

    Args:
        process: The posterior of the values at the nodes of a projected grid.
        X: New points, ``q x d``.
        Y: Their targets, ``o x q``.
        D: Their noise variances, ``o x q``.
    """
    mean, L = _law(process, X, D)
    e = _white(L, Y - mean)
    logdet = 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum()
    return -0.5 * (e.square().sum() + logdet + Y.numel() * math.log(2.0 * math.pi))


def uphill(
    process: GridProcess, X: Tensor, Y: Tensor, D: Tensor, rate: float, seen: float
) -> Tensor:
    """The grid's phi after one step up `log_density`; where none gains, the same. O(q m^2 + q^3).

    Along the gradient, to where the density would be highest if the points seen before said as much
    of phi, each, as the new ones, and all that the place of now is best: Fisher scoring with the
    information of all points. No further than ``rate`` lengths of phi, and half as far while it
    does not gain.

    Args:
        process: The posterior of the values at the nodes of a projected grid.
        X: New points, ``q x d``.
        Y: Their targets, ``o x q``.
        D: Their noise variances, ``o x q``.
        rate: Longest step, in lengths of phi.
        seen: What the points seen before count for.
    """
    grid = cast(ProjectedGrid, process.grid)
    phi = grid.phi

    def J(at: Tensor) -> Tensor:
        return log_density(replace(process, grid=replace(grid, phi=at)), X, Y, D)

    with torch.enable_grad():
        free = phi.detach().clone().requires_grad_()
        value = J(free)
        (gradient,) = torch.autograd.grad(value, free)
    longest = rate * float(phi.norm()) / float(gradient.norm().clamp_min(1e-300))
    with torch.no_grad():
        mean, L = _law(process, X, D)
        near = NEAR * longest / rate
        moved = _law(replace(process, grid=replace(grid, phi=phi + near * gradient)), X, D)[0]
        told = _white(L, (moved - mean) / near).square().sum() * (1.0 + seen / len(X))
        step = min(longest, float(gradient.square().sum() / told.clamp_min(1e-300))) * gradient
        for _ in range(HALVINGS):
            if bool(J(phi + step) > value):
                return phi + step
            step = 0.5 * step
    return phi


def _law(process: GridProcess, X: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
    """Means ``o x q`` of new observations, and the Cholesky factors of their covariances."""
    joint = process.at(X)
    return joint.mean, chol_psd(joint.covariance(joint) + torch.diag_embed(D))


def _white(L: Tensor, e: Tensor) -> Tensor:
    """``L^-1 e`` of every output."""
    return torch.linalg.solve_triangular(L, e.unsqueeze(-1), upper=False)
