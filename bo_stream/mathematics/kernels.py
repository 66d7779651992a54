"""What is read from gpytorch's kernels: values, their parts, smoother forms of some.

gpytorch differentiates a Matern kernel through distances, which have no derivatives at zero and,
for few points, no second ones at all [MATHS 0]. The kernels depend on squared distances, and are
twice differentiable (once with nu = 1/2, away from zero). BoTorch computes the diagonal of a kernel
of categories from the whole matrix. Frozen copies have neither flaw.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from botorch.models.kernels import CategoricalKernel
from gpytorch import priors
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    Kernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from linear_operator import to_dense
from numpy.typing import NDArray
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_stream.mathematics.autograd import twice

__all__ = [
    "CategoricalMatern",
    "Prior",
    "Scaled",
    "SmoothMatern",
    "cross_kernel",
    "from_origin",
    "frozen_kernel",
    "is_product",
    "is_stationary",
    "values_between",
    "of_outputs",
    "product_factors",
    "scaled",
    "shortest_lengths",
    "smooth_matern",
    "stationary",
]

POINTS, MOVE, SAME = 16, 0.43, 1e-3
"""Points that move, by what share of a grid, and by what share covariances may then change."""
COMBINED = (ScaleKernel, ProductKernel, AdditiveKernel, ConstantKernel)
"""Kernels as stationary as their parts, and the constant, which gpytorch does not declare so."""
FREE = GreaterThan(-math.inf, transform=None)
"""A constraint that lets everything pass."""
SHIFT = 1e-14
"""Added to squared distances, so that roots have derivatives at zero; these cancel to 1e-8."""


def values_between(kernel: Kernel, X: Tensor, Z: Tensor) -> Tensor:
    """Kernel values ``batch x q x q'``, without gpytorch's lazy evaluation.

    That costs twice the time at a few points, and switches a setting of all threads.
    """
    if kernel.active_dims is not None:
        X, Z = (points.index_select(-1, kernel.active_dims) for points in (X, Z))
    return to_dense(kernel.forward(X, Z))


def cross_kernel(kernel: Kernel, X: Tensor, Z: Tensor) -> Tensor:
    """Kernel values ``batch x o x q x q'`` between ``batch x q x d`` and ``batch x q' x d``."""
    points = X.unsqueeze(-3)
    return values_between(kernel, points, points if Z is X else Z.unsqueeze(-3))


def frozen_kernel(kernel: Kernel) -> Kernel:
    """A detached float64 copy of the kernel, with second derivatives and without priors.

    The parameters of RBF, Matern and scale kernels in it are the values of their hyperparameters,
    which each evaluation would transform again.
    """
    without = {id(part): None for part in kernel.modules() if isinstance(part, priors.Prior)}
    frozen = copy.deepcopy(kernel, without).requires_grad_(False).double().eval()
    for part in frozen.modules():
        part.__class__ = SMOOTHER.get(type(part), type(part))
        for name, raw in [*part.named_parameters(recurse=False)] if type(part) in PLAIN else ():
            value = part.constraint_for_parameter_name(name).transform(raw)  # raw may be shared
            setattr(part, name, torch.nn.Parameter(value, requires_grad=False))
            part.register_constraint(name, FREE, replace=True)
    return frozen


def of_outputs(kernel: Kernel, index: list[int]) -> Kernel:
    """The kernel of some of the outputs."""
    return kernel[index] if kernel.batch_shape else kernel


@dataclass(frozen=True)
class Prior:
    """The hyperparameters of a surrogate: numbers, or differentiable.

    Attributes:
        kernel: The kernel, with or without one batch dimension of the outputs.
        s2: Noise scales, ``o``.
        mean: Constant prior means, ``o``.
    """

    kernel: Kernel
    s2: Tensor
    mean: Tensor

    def frozen(self) -> Prior:
        """As numbers, with a `frozen_kernel`."""
        s2, mean = self.s2.detach().clone(), self.mean.detach().clone()
        return Prior(frozen_kernel(self.kernel), s2, mean)

    def between(self, X: Tensor, Z: Tensor) -> Tensor:
        """Kernel values, ``o x q x q'``."""
        return cross_kernel(self.kernel, X, Z).expand(len(self.s2), -1, -1)

    def variances(self, X: Tensor) -> Tensor:
        """Prior variances, ``o x q``."""
        return self.kernel(X.unsqueeze(-3), diag=True).reshape(-1, len(X)).expand(len(self.s2), -1)


# -- parts -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scaled:
    """A kernel and the `ScaleKernel`s around it.

    Attributes:
        base: The kernel.
        scales: Those around it, the outermost first.
    """

    base: Kernel
    scales: tuple[ScaleKernel, ...]

    @property
    def nu(self) -> float:
        """Smoothness of a Matern kernel; infinite for RBF."""
        return math.inf if isinstance(self.base, RBFKernel) else float(self.base.nu)

    def lengthscales(self, dim: int, outputs: int) -> Tensor:
        """``o x dim``, float64, differentiable."""
        value = self.base.lengthscale.double()
        return value.reshape(-1, value.shape[-1]).expand(outputs, dim)

    def variances(self, outputs: int) -> Tensor:
        """The product of the scales, ``o``, float64, differentiable."""
        total = self.base.lengthscale.new_ones(outputs).double()
        for scale in self.scales:
            total = total * scale.outputscale.double().reshape(-1)
        return total


def scaled(kernel: Kernel) -> Scaled:
    """A kernel without the scales around it. Kernels of some of the inputs are left whole."""
    scales: list[ScaleKernel] = []
    while type(kernel) is ScaleKernel and kernel.active_dims is None:
        scales.append(kernel)
        kernel = kernel.base_kernel
    return Scaled(kernel, tuple(scales))


def stationary(kernel: Kernel, dim: int) -> Scaled | None:
    """The RBF or Matern kernel of all ``dim`` inputs that a kernel is, in one scale or none.

    None for any other kernel, subclasses and batches of kernels among them: their values may differ
    from the closed form.
    """
    found = scaled(kernel)
    known = type(found.base) in (RBFKernel, MaternKernel, SmoothMatern)
    if not known or found.base.active_dims is not None or len(found.scales) > 1:
        return None
    sizes = {math.prod(kernel.batch_shape), math.prod(found.base.batch_shape)}
    return found if sizes == {1} and found.base.lengthscale.shape[-1] in (1, dim) else None


def shortest_lengths(kernel: Kernel, dim: int) -> NDArray[np.float64]:
    """The shortest lengthscale of the parts of a kernel along each of at most ``dim`` inputs,
    ``dim``; infinite along others.
    """
    lengths = np.full(dim, math.inf)
    for part in kernel.modules():
        if isinstance(part, Kernel) and part.has_lengthscale:
            value = part.lengthscale
            own = value.double().reshape(-1, value.shape[-1]).amin(0).numpy(force=True)
            every = slice(len(own) if len(own) > 1 else None)
            index = every if part.active_dims is None else part.active_dims.numpy(force=True)
            lengths[index] = np.minimum(lengths[index], own)
    return lengths


# -- stationary kernels and products ----------------------------------------------------------


@torch.no_grad()
def is_stationary(kernel: Kernel, low: Tensor, widths: Tensor) -> bool:
    """Whether the kernel depends on differences of points only.

    It must be declared so, and covariances must stay the same, to a thousandth, if points of one
    half of a box move along any input by `MOVE` widths. (gpytorch declares every kernel with a
    lengthscale stationary.)

    Args:
        kernel: The kernel of ``d`` inputs.
        low: The corner of the box, ``d``.
        widths: Its widths, ``d``.
    """
    parts = (part for part in kernel.modules() if isinstance(part, Kernel))
    if not all(part.is_stationary or isinstance(part, COMBINED) for part in parts):
        return False
    size = 10.0 ** -torch.arange(POINTS).remainder(4).to(low)  # of distances, in halves of the box
    unit = SobolEngine(len(low)).draw(POINTS, dtype=low.dtype).to(low)
    X = low + 0.5 * widths * size.unsqueeze(-1) * unit
    kept = kernel(X).to_dense()
    moved = (kernel(X + MOVE * move).to_dense() for move in torch.diag(widths))
    most = SAME * kept.abs().amax()
    return all(bool(((values - kept).abs() <= most).all()) for values in moved)


def is_product(kernel: Kernel, dim: int) -> bool:
    """Whether the kernel of ``dim`` inputs is a product of one-dimensional kernels."""
    if dim == 1:
        return True
    if isinstance(kernel, ScaleKernel):
        return is_product(kernel.base_kernel, dim)
    if isinstance(kernel, ProductKernel):
        return all(is_product(k, dim) for k in kernel.kernels)
    if kernel.active_dims is not None and len(kernel.active_dims) == 1:
        return not isinstance(kernel, AdditiveKernel)
    return type(kernel) in (RBFKernel, PeriodicKernel)


def product_factors(
    kernel: Kernel, axes: list[Tensor], outputs: int
) -> tuple[Tensor, list[Tensor]]:
    """The amplitudes of a stationary product kernel, ``o``, and its unit-diagonal factors on a
    grid, ``o x g_k x g_k`` for each dimension; differentiable.

    Args:
        kernel: The kernel.
        axes: Differences of the first ``g_k`` nodes from the first one along each axis, ``g_k x
            d`` each.
        outputs: Number of outputs ``o``.
    """
    factors = []
    values = from_origin(kernel, torch.cat(axes), outputs)
    for row in values.split([len(axis) for axis in axes], -1):
        i = torch.arange(row.shape[-1], device=row.device)
        factors.append((row / row[:, :1])[:, (i.unsqueeze(-1) - i).abs()])
    return values[:, 0], factors


def from_origin(kernel: Kernel, Z: Tensor, outputs: int) -> Tensor:
    """The kernel between the origin and points ``k x d``, ``o x k``."""
    origin = Z.new_zeros(1, Z.shape[-1])
    return values_between(kernel, origin, Z).reshape(-1, len(Z)).expand(outputs, -1)


# -- smoother forms ----------------------------------------------------------------------------


def smooth_matern(D2: Tensor, nu: float) -> Tensor:
    """Kernel values at squared distances in lengthscales, of any shape, differentiable.

    Args:
        D2: Squared distances.
        nu: Smoothness: 0.5, 1.5 or 2.5.
    """
    u = (2.0 * nu * (D2 + SHIFT)).sqrt()
    factor = {0.5: torch.ones_like(u), 1.5: 1.0 + u, 2.5: 1.0 + u + u.square() / 3.0}[nu]
    return factor * (-u).exp()


class SmoothMatern(MaternKernel):
    """gpytorch's kernel, with second derivatives in the points in ``O(n n' d)`` memory."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The kernel between two sets of points."""
        if diag or any(params.values()) or not (x1.requires_grad or x2.requires_grad):
            values: Tensor = super().forward(x1, x2, diag=diag, **params)
            return values
        return twice(super().forward, self._smooth, x1, x2)

    def _smooth(self, x1: Tensor, x2: Tensor) -> Tensor:
        gaps = (x1.unsqueeze(-2) - x2.unsqueeze(-3)) / self.lengthscale.unsqueeze(-2)
        return smooth_matern(gaps.square().sum(-1), self.nu)


class CategoricalMatern(Kernel):
    """Matern-5/2 with a lengthscale per input, some of which are categories.

    Two different categories are one lengthscale apart, whichever they are. That is the kernel over
    the categories' indicators with a common lengthscale.

    Args:
        cat_dims: Indices of the categories. Their values are compared, and have no order.
        kwargs: Arguments of gpytorch's `Kernel`.
    """

    has_lengthscale = True

    def __init__(self, cat_dims: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cat_dims = tuple(cat_dims)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The kernel between two sets of points."""
        gaps = x1 - x2 if diag else x1.unsqueeze(-2) - x2.unsqueeze(-3)
        for j in self.cat_dims:
            gaps[..., j] = (gaps[..., j].detach() != 0.0).to(gaps)
        scale = self.lengthscale if diag else self.lengthscale.unsqueeze(-2)
        return smooth_matern((gaps / scale).square().sum(-1), 2.5)


class Categorical(CategoricalKernel):
    """BoTorch's kernel of categories, whose diagonal costs O(n)."""

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False
    ) -> Tensor:
        """The kernel between two sets of points."""
        if not diag or last_dim_is_batch:
            return super().forward(x1, x2, diag, last_dim_is_batch)
        return (-((x1 != x2) / self.lengthscale).mean(-1)).exp()


SMOOTHER: dict[type, type[Kernel]] = {MaternKernel: SmoothMatern, CategoricalKernel: Categorical}
PLAIN = (ScaleKernel, RBFKernel, SmoothMatern)
"""Kernels that read their parameters through their constraints."""
