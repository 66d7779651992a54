"""A grid over learned functions of the inputs, and how they are learned [WISKI, MATHS 2.5].

Points are mapped by ``h(x; phi)`` before interpolation. Rows of earlier points stay as they are, so
that new points add their predictive density to the evidence: phi is learned by maximising it.
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
from bo_stream.mathematics.grid import DEFAULT_SIZES, Grid, GridFeatures
from bo_stream.mathematics.grid_kernel import prior_covariance
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.process import FeatureBasis, Process
from bo_stream.mathematics.shapes import shaped

__all__ = [
    "LinearProjection",
    "ModuleProjection",
    "ProjectedGrid",
    "ProjectedKernel",
    "log_density",
    "moved",
    "projection_of",
    "gradient_step",
]

PROBES = 64
"""Points at which a module is checked."""
HALVINGS = 8
"""Halvings of a step that does not increase the density."""
DIFFERENCE = 1e-6
"""Step of the finite difference of means, in lengths of phi."""
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class LinearProjection:
    """``k`` linear functions, each scaled to map the unit cube onto the unit interval.

    ``h_j(u) = 1/2 + sum_i phi_ji (u_i - 1/2) / sum_i |phi_ji|``, whatever the length of a row.

    Attributes:
        inputs: ``d``.
        outputs: ``k``.
    """

    inputs: int
    outputs: int

    @property
    def option(self) -> int:
        """The option ``projection`` of the surrogate."""
        return self.outputs

    def __call__(self, U: Tensor, phi: Tensor) -> Tensor:
        """O(d k) per point."""
        W = phi.reshape(self.outputs, self.inputs)
        return 0.5 + (U - 0.5) @ (W / W.abs().sum(-1, keepdim=True)).mT

    def start(self) -> Tensor:
        """Orthonormal rows; the identity if there are as many functions as inputs."""
        if self.outputs == self.inputs:
            return torch.eye(self.inputs, dtype=torch.float64).flatten()
        (first,) = self.others(torch.Generator().manual_seed(0), 1)
        return torch.linalg.qr(first.reshape(self.outputs, -1).mT)[0].mT.flatten()

    def others(self, generator: torch.Generator, count: int) -> list[Tensor]:
        """Random directions."""
        size = self.outputs * self.inputs
        return list(torch.randn(count, size, generator=generator, dtype=torch.float64))


class ModuleProjection:
    """The values of a module; phi holds its parameters that require a gradient."""

    def __init__(self, module: nn.Module, inputs: int) -> None:
        self.option = module
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
        """The module's values at U, one thread at a time: the call writes to the module."""
        parts = phi.split([shape.numel() for shape in self._shapes.values()])
        parameters = {
            name: part.reshape(shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }
        with _one_at_a_time:
            values: Tensor = torch.func.functional_call(self.module, parameters, (U,))
        return values

    def start(self) -> Tensor:
        """The parameters of the module as given."""
        return torch.cat([torch.zeros(0, dtype=torch.float64), *self._start])

    def others(self, generator: torch.Generator, count: int) -> list[Tensor]:
        """None: a module starts from its own parameters."""
        return []


def projection_of(option: int | nn.Module, inputs: int) -> LinearProjection | ModuleProjection:
    """A projection on linear functions of the inputs, or by a module.

    Raises:
        InputError: unless the number is between 1 and 3 and at most the number of inputs, or the
            module's values are one to three numbers in the unit interval for each point.
    """
    if isinstance(option, nn.Module):
        return ModuleProjection(option, inputs)
    if type(option) is not int or not 1 <= option <= min(inputs, max(DEFAULT_SIZES)):
        raise InputError(
            f"a projection to 1 to {min(inputs, max(DEFAULT_SIZES))} dimensions, or a module",
            repr(option),
            "Give the number of linear functions of the inputs, or a module of your own.",
        )
    return LinearProjection(inputs, option)


def _unfit(got: str) -> InputError:
    return InputError(
        "a module that maps points `n x d` in the unit cube to `n x k`, k <= 3, in the unit cube",
        got,
        "Let it end in a linear layer to k values and a sigmoid.",
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ProjectedGrid(Grid):
    """A folded grid over the unit cube, at the points ``h((x - low) / width; phi)``.

    Attributes:
        projection: ``h``.
        low: Lower bounds of the inputs.
        width: Widths of the bounds.
        phi: The learned parameters.
    """

    projection: LinearProjection | ModuleProjection
    low: tuple[float, ...]
    width: tuple[float, ...]
    phi: Tensor = shaped("f")

    @classmethod
    def over(
        cls,
        nodes: Grid,
        projection: LinearProjection | ModuleProjection,
        bounds: Tensor,
        phi: Tensor,
    ) -> ProjectedGrid:
        """A grid of these nodes for points within bounds, ``2 x d``."""
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

    Used for the evidence of a few hundred points, as a function of phi and all hyperparameters.

    Args:
        kernel: The kernel on the nodes.
        grid: The nodes, and the initial phi.
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
        covariance = prior_covariance(self.base_kernel, grid, X, outputs)
        return covariance.diagonal(dim1=-2, dim2=-1) if diag else covariance


def moved(process: Process, grid: ProjectedGrid) -> Process:
    """A process of the values at the nodes, under another projection of future points."""
    basis = cast(FeatureBasis, process.basis)
    features = replace(cast(GridFeatures, basis.features), grid=grid)
    return replace(process, basis=replace(basis, features=features))


def log_density(process: Process, X: Tensor, Y: Tensor, D: Tensor) -> Tensor:
    """``J`` of MATHS 2.5: log density of new points given the process before them, 0-dim.

    Differentiable in the grid's phi: ``log N(Y; c + W al, D + s2 W M W')``, summed over outputs.

    Args:
        process: The posterior of the values at the nodes of a projected grid.
        X: New points, ``q x d``.
        Y: Their targets, ``o x q``.
        D: Their noise variances, ``o x q``.
    """
    mean, L = _predictive(process, X, D)
    e = _white(L, Y - mean)
    logdet = 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum()
    return -0.5 * (e.square().sum() + logdet + Y.numel() * math.log(2.0 * math.pi))


def gradient_step(
    process: Process, X: Tensor, Y: Tensor, D: Tensor, rate: float, seen: float
) -> Tensor:
    """The grid's phi after one step that increases `log_density`, if there is one. O(q m^2 + q^3).

    The step follows the gradient. Its length is that of Fisher scoring, in which each earlier point
    counts as much information as a new one, and at most ``rate`` lengths of phi. It is halved while
    the density does not increase.

    Args:
        process: The posterior of the values at the nodes of a projected grid.
        X: New points, ``q x d``.
        Y: Their targets, ``o x q``.
        D: Their noise variances, ``o x q``.
        rate: Longest step, in lengths of phi.
        seen: The number of earlier points, or their weight.
    """
    grid = cast(ProjectedGrid, cast(GridFeatures, cast(FeatureBasis, process.basis).features).grid)
    phi = grid.phi

    def J(at: Tensor) -> Tensor:
        return log_density(moved(process, replace(grid, phi=at)), X, Y, D)

    with torch.enable_grad():
        free = phi.detach().clone().requires_grad_()
        value = J(free)
        (gradient,) = torch.autograd.grad(value, free)
    longest = rate * float(phi.norm()) / float(gradient.norm().clamp_min(1e-300))
    with torch.no_grad():
        mean, L = _predictive(process, X, D)
        difference = DIFFERENCE * longest / rate
        beyond = moved(process, replace(grid, phi=phi + difference * gradient)).at(X).mean
        curvature = _white(L, (beyond - mean) / difference).square().sum() * (1.0 + seen / len(X))
        step = min(longest, float(gradient.square().sum() / curvature.clamp_min(1e-300))) * gradient
        for _ in range(HALVINGS):
            if bool(J(phi + step) > value):
                return phi + step
            step = 0.5 * step
    return phi


def _predictive(process: Process, X: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
    """Means ``o x q`` of new observations, and the Cholesky factors of their covariances."""
    joint = process.at(X)
    return joint.mean, chol_psd(joint.covariance(joint) + torch.diag_embed(D))


def _white(L: Tensor, e: Tensor) -> Tensor:
    """``L^-1 e`` of every output."""
    return torch.linalg.solve_triangular(L, e.unsqueeze(-1), upper=False)
