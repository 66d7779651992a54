"""A grid over learned functions of the inputs, and how they are learned [WISKI, MATHS 2.5].

Points are mapped by ``h(x; phi)`` before interpolation. Rows of earlier points stay as they are, so
that new points add their predictive density to the evidence: phi is learned by maximising it.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

from bo_stream.errors import InputError
from bo_stream.mathematics.expanded import Functions, PlacedFunctions
from bo_stream.mathematics.grid import DEFAULT_SIZES, Grid, ProductFeatures
from bo_stream.mathematics.grid_kernel import prior_covariance
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.process import FeatureBasis, Process
from bo_stream.mathematics.shapes import shaped

__all__ = [
    "ProjectedGrid",
    "ProjectedKernel",
    "LearnedProjection",
    "gradient_step",
    "moved",
    "predictive",
]

PROBES = 64
"""Points at which a module is checked."""
HALVINGS = 8
"""Halvings of a step that does not increase the density."""
DIFFERENCE = 1e-6
"""Step of the finite difference of means, in lengths of phi."""
_one_at_a_time = threading.Lock()


class LinearFunctions(nn.Module):
    """Linear functions of the inputs, each scaled to map the unit cube onto the unit interval.

    ``h_j(u) = 1/2 + sum_i w_ji (u_i - 1/2) / sum_i |w_ji|``, whatever the length of a row. At first
    the rows are orthonormal: the inputs, if there are as many functions, else random directions.

    Args:
        inputs: ``d``.
        outputs: ``k``.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        W = torch.randn(outputs, inputs, generator=generator, dtype=torch.float64)
        rows = torch.eye(inputs) if outputs == inputs else torch.linalg.qr(W.mT)[0].mT
        self.weight = nn.Parameter(rows)

    def forward(self, U: Tensor) -> Tensor:
        """O(d k) per point."""
        return 0.5 + (U - 0.5) @ (self.weight / self.weight.abs().sum(-1, keepdim=True)).mT


class LearnedProjection:
    """A module's values, as a function of phi, its parameters that require a gradient.

    Args:
        option: The module, or a number of linear functions.
        inputs: Number of inputs ``d``.

    Attributes:
        outputs: Number of values ``k``.
        start: The parameters of the module as it is.

    Raises:
        InputError: unless the number is between 1 and 3 and at most the number of inputs, or the
            module's values are one to three numbers in the unit interval for each point.
    """

    def __init__(self, option: int | nn.Module, inputs: int) -> None:
        self.option, self.inputs = option, inputs
        most = min(inputs, max(DEFAULT_SIZES))
        if isinstance(option, nn.Module):
            module = copy.deepcopy(option)
        elif type(option) is int and 1 <= option <= most:
            module = LinearFunctions(inputs, option)
        else:
            raise InputError(
                f"a projection to 1 to {most} dimensions, or a module",
                repr(option),
                "Give the number of linear functions of the inputs, or a module of your own.",
            )
        self.module = module.double().eval()
        learned = [(n, p) for n, p in self.module.named_parameters() if p.requires_grad]
        self._shapes = {name: p.shape for name, p in learned}
        none = torch.zeros(0, dtype=torch.float64)
        self.start = torch.cat([none, *(p.detach().flatten() for _, p in learned)])
        self.module.requires_grad_(False)
        generator = torch.Generator().manual_seed(0)
        Z = self(torch.rand(PROBES, inputs, generator=generator, dtype=torch.float64), self.start)
        if not (Z.ndim == 2 and len(Z) == PROBES and Z.shape[1] in DEFAULT_SIZES):
            raise _unfit(f"values of shape {tuple(Z.shape)} for {PROBES} points")
        if not bool(((Z >= 0.0) & (Z <= 1.0)).all()):
            raise _unfit(f"values from {float(Z.min()):.3g} to {float(Z.max()):.3g}")
        self.outputs = Z.shape[1]

    def __call__(self, U: Tensor, phi: Tensor) -> Tensor:
        """The values at U, one thread at a time: the call writes to the module."""
        parts = phi.split([shape.numel() for shape in self._shapes.values()])
        parameters = {
            name: part.reshape(shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }
        with _one_at_a_time:
            values: Tensor = torch.func.functional_call(self.module, parameters, (U,))
        return values

    def line(self, phi: Tensor) -> tuple[Tensor, Tensor] | None:
        """Slopes ``k x d`` and values at the origin ``k`` of linear functions; None of a module."""
        if isinstance(self.option, nn.Module):
            return None
        origin = self(torch.zeros(1, self.inputs).to(phi), phi)
        return (self(torch.eye(self.inputs).to(phi), phi) - origin).mT, origin[0]

    def others(self, count: int) -> list[Tensor]:
        """Other starts: random directions of linear functions; none of a module."""
        if isinstance(self.option, nn.Module):
            return []
        generator = torch.Generator().manual_seed(0)
        return list(torch.randn(count, len(self.start), generator=generator, dtype=torch.float64))


def _unfit(got: str) -> InputError:
    return InputError(
        "a module that maps points `n x d` in the unit cube to `n x k`, k <= 3, in the unit cube",
        got,
        "Let it end in a linear layer to k values and a sigmoid.",
    )


@dataclass(frozen=True, kw_only=True)
class ProjectedGrid(Grid):
    """A folded grid over the unit cube, at the points ``h((x - low) / width; phi)``.

    Attributes:
        projection: ``h``.
        low: Lower bounds of the inputs.
        width: Widths of the bounds.
        phi: The learned parameters.
    """

    projection: LearnedProjection = field(compare=False)
    low: tuple[float, ...]
    width: tuple[float, ...]
    phi: Tensor = shaped("f")

    def place(self, X: Tensor) -> Tensor:
        """``h`` at points ``batch x q x d``: ``batch x q x k``, differentiable in X and phi."""
        U = (X - X.new_tensor(self.low)) / X.new_tensor(self.width)
        return self.projection(U, self.phi)

    def placed(self, functions: Functions) -> Functions | None:
        """In closed form of linear functions of the inputs."""
        line = self.projection.line(self.phi)
        if line is None:
            return None
        slopes, origin = (part.numpy() for part in line)
        slopes = slopes / np.array(self.width)
        return PlacedFunctions(functions, slopes, origin - slopes @ np.array(self.low))

    def same_as(self, other: Grid) -> bool:
        """Whether interpolation from both is the same."""
        alike = isinstance(other, ProjectedGrid) and self == other
        return alike and torch.equal(self.phi, cast(ProjectedGrid, other).phi.to(self.phi.device))


class ProjectedKernel(Kernel):
    """The covariance of a process interpolated from a projected grid, with phi as a parameter.

    Used for the evidence of a few hundred points, as a function of phi and all hyperparameters.

    Args:
        kernel: The kernel on the nodes.
        grid: The nodes, and the initial phi.
    """

    def __init__(self, kernel: Kernel, grid: ProjectedGrid) -> None:
        super().__init__(batch_shape=kernel.batch_shape)
        self.base_kernel, self.grid = kernel, grid
        self.register_parameter("phi", nn.Parameter(grid.phi.clone()))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """``W K W'`` of the points ``x1``, ``o x n x n``; ``x2`` must be the same."""
        X, outputs = x1.reshape(-1, *x1.shape[-2:])[0], max(1, self.batch_shape.numel())
        grid = replace(self.grid, phi=self.phi)
        covariance = prior_covariance(self.base_kernel, grid, X, outputs)
        return covariance.diagonal(dim1=-2, dim2=-1) if diag else covariance


def moved(process: Process, grid: ProjectedGrid) -> Process:
    """A process of the values at the nodes, under another projection of future points."""
    basis = cast(FeatureBasis, process.basis)
    features = replace(cast(ProductFeatures, basis.features), grid=grid)
    return replace(process, basis=replace(basis, features=features))


def predictive(process: Process, X: Tensor, D: Tensor) -> MultivariateNormal:
    """The distribution of new observations, ``o x q``, differentiable in the grid's phi: the log
    density of targets under it is ``J`` of MATHS 2.5.

    Args:
        process: The posterior of the values at the nodes of a projected grid.
        X: New points, ``q x d``.
        D: Their noise variances, ``o x q``.
    """
    joint = process.at(X)
    L = chol_psd(joint.covariance(joint) + torch.diag_embed(D))
    return MultivariateNormal(joint.mean, scale_tril=L, validate_args=False)


def gradient_step(
    process: Process, X: Tensor, Y: Tensor, D: Tensor, rate: float, seen: float
) -> Tensor:
    """The grid's phi after one step that increases the `predictive` log density of new points, if
    there is one. O(q m^2 + q^3).

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
    grid = cast(
        ProjectedGrid, cast(ProductFeatures, cast(FeatureBasis, process.basis).features).grid
    )
    phi = grid.phi

    def at(phi: Tensor) -> MultivariateNormal:
        return predictive(moved(process, replace(grid, phi=phi)), X, D)

    with torch.enable_grad():
        free = phi.detach().clone().requires_grad_()
        value = at(free).log_prob(Y).sum()
        (gradient,) = torch.autograd.grad(value, free)
    longest = rate * float(phi.norm()) / float(gradient.norm().clamp_min(1e-300))
    with torch.no_grad():
        now, difference = at(phi), DIFFERENCE * longest / rate
        change = (at(phi + difference * gradient).mean - now.mean) / difference
        change = torch.linalg.solve_triangular(now.scale_tril, change.unsqueeze(-1), upper=False)
        curvature = change.square().sum() * (1.0 + seen / len(X))
        step = min(longest, float(gradient.square().sum() / curvature.clamp_min(1e-300))) * gradient
        for _ in range(HALVINGS):
            if bool(at(phi + step).log_prob(Y).sum() > value):
                return phi + step
            step = 0.5 * step
    return phi
