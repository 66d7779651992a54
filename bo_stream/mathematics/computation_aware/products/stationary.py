"""Closed forms of stationary gpytorch kernels, for the fast products.

A stationary ARD kernel is k(x, x') = os f(h), h = -r^2 / 2, r^2 = sum_j ((x_j - x'_j) / ls_j)^2
[MATHS 0]. Products with the kernel and their gradients need f and its slope f'(h). `describe`
recognises ``RBFKernel`` and ``MaternKernel``, bare or inside
one ``ScaleKernel``; any other kernel uses the checkpointed products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.kernels import smooth_matern, stationary

# exp of less than this is treated as exp of this. Subnormal numbers, also those that arise when
# such a value is multiplied by another, are a hundred times slower than normal ones; exp(-300) is
# nothing beside os = 1.
_FLOOR = -300.0

WIDE = 100.0
"""Half-width, in lengthscales, up to which distances come from one matrix product."""


def floored_exp_(exponent: Tensor) -> Tensor:
    """Exponential in place, with exponents clamped from below to avoid subnormal numbers."""
    return exponent.clamp_(min=_FLOOR).exp_()


def _rbf(h: Tensor) -> tuple[Tensor, Tensor]:
    k = floored_exp_(h)
    return k, k


def _matern12(h: Tensor) -> tuple[Tensor, Tensor]:
    r = h.mul_(-2.0).sqrt_()
    k = floored_exp_(-r)
    # slope = k / r; what it multiplies, (x - x')^2, vanishes faster at r = 0, where the floor keeps
    # rounding small
    return k, k / r.clamp_min_(1e-6)


def _matern32(h: Tensor) -> tuple[Tensor, Tensor]:
    u = h.mul_(-6.0).sqrt_()  # sqrt(3) r
    slope = floored_exp_(-u)
    return u.add_(1.0).mul_(slope), slope.mul_(3.0)


def _matern52(h: Tensor) -> tuple[Tensor, Tensor]:
    u = h.mul_(-10.0).sqrt_()  # sqrt(5) r
    e = floored_exp_(-u)
    slope = (1.0 + u).mul_(e)
    return u.square_().mul_(1.0 / 3.0).mul_(e).add_(slope), slope.mul_(5.0 / 3.0)


@dataclass(frozen=True)
class Form:
    """The shape f of a stationary kernel.

    Attributes:
        value_and_slope: From h = -r^2/2 <= 0 to f(h) and f'(h), which may share memory; h is
            overwritten.
        exact_distance: Whether distances must be computed as sums of squared differences: f is not
            smooth at r = 0, where the faster matrix product loses half the digits of r.
        smooth: From r^2 to f(h), in operations that autograd differentiates.
        negligible: f is below 1e-18 if h is below this.
    """

    value_and_slope: Callable[[Tensor], tuple[Tensor, Tensor]]
    smooth: Callable[[Tensor], Tensor]
    negligible: float
    exact_distance: bool = False

    def value(self, h: Tensor) -> Tensor:
        """f(h); h is overwritten."""
        return self.value_and_slope(h)[0]


FORMS = {
    math.inf: Form(_rbf, lambda D2: (-0.5 * D2).exp(), -42.0),
    0.5: Form(_matern12, partial(smooth_matern, nu=0.5), -860.0, exact_distance=True),
    1.5: Form(_matern32, partial(smooth_matern, nu=1.5), -350.0),
    2.5: Form(_matern52, partial(smooth_matern, nu=2.5), -240.0),
}


@dataclass(frozen=True)
class Stationary:
    """k(x, x') = outputscale * f(-r^2/2), the hyperparameters still attached to the kernel's
    parameters.

    Attributes:
        form: The shape f.
        lengthscale: ``d`` lengthscales (one repeated if the kernel is isotropic).
        outputscale: 0-dim amplitude.
    """

    form: Form
    lengthscale: Tensor
    outputscale: Tensor


def describe(kernel: Kernel, dim: int) -> Stationary | None:
    """The closed form of a gpytorch kernel over ``dim`` inputs, or None.

    Subclasses, batches of kernels and kernels of some input columns are not recognised: their
    ``forward`` may differ from the formula.
    """
    found = stationary(kernel, dim)
    form = None if found is None else FORMS.get(found.nu)
    if found is None or form is None:
        return None
    return Stationary(form, found.lengthscales(dim, 1)[0], found.variances(1)[0])


def minus_half_squared_distance(z1: Tensor, z2: Tensor, exact: bool) -> Tensor:
    """Half squared distances, negated: h = -|z1 - z2|^2 / 2 <= 0 of scaled inputs, a new tensor.

    Computed by one matrix product of the inputs bordered by their norms (the caller should centre
    them); by differences if ``exact``, and in coordinates that span so many lengthscales that the
    product would lose small distances. O(n1 n2 d).
    """
    if exact:
        r = torch.cdist(z1, z2, compute_mode="donot_use_mm_for_euclid_dist")
        return r.square_().mul_(-0.5)
    wide = wide_coordinates(z2)
    if not wide:
        return (border_left(z1) @ border_right(z2).mT).clamp_(max=0.0)
    narrow = [k for k in range(z2.shape[-1]) if k not in wide]
    h = border_left(z1[:, narrow]) @ border_right(z2[:, narrow]).mT
    for k in wide:
        h.sub_(0.5 * squared_difference(z1[:, k], z2[:, k]))
    return h.clamp_(max=0.0)


def wide_coordinates(z: Tensor) -> list[int]:
    """Coordinates (of centred, scaled inputs) that span more than `WIDE` lengthscales."""
    if z.numel() == 0 or bool(z.abs().max() <= WIDE):
        return []
    return (z.abs().amax(0) > WIDE).nonzero()[:, 0].tolist()


def squared_difference(a: Tensor, b: Tensor) -> Tensor:
    """(a_j - b_m)^2, ``n1 x n2``."""
    return (a[:, None] - b).square_()


def border_left(z: Tensor) -> Tensor:
    """[z, -|z|^2/2, 1]: its product with `border_right` is -|z1 - z2|^2 / 2."""
    half = -0.5 * z.square().sum(-1, keepdim=True)
    return torch.cat([z, half, torch.ones_like(half)], -1)


def border_right(z: Tensor) -> Tensor:
    """[z, 1, -|z|^2/2]."""
    half = -0.5 * z.square().sum(-1, keepdim=True)
    return torch.cat([z, torch.ones_like(half), half], -1)
