"""The Matern-5/2 kernel with a lengthscale per input, its derivatives in closed form [MATHS 0].

``k = (1 + r + r^2/3) e^-r`` with ``r^2 = 5 sum_k ((x_k - z_k) / l_k)^2``, so that
``dk / d log l_k = (5/3)(1 + r) e^-r ((x_k - z_k) / l_k)^2``. Plain tensors without autograd, in
float64 or float32, for exact processes of a few hundred points, whose fits evaluate nothing else.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "lengthscale_gradient",
    "matern52",
    "matern52_and_slope",
    "matern52_product",
    "squared_distances",
]

FARTHEST = 4096.0
"""Larger values of r^2 count as this one: exp(-64) = 1e-28, and no product is subnormal, which is a
hundred times slower.
"""

BLOCK = 256
"""Rows of a kernel matrix that are formed at once: they stay in the processor's cache."""


def squared_distances(A: Tensor, B: Tensor) -> Tensor:
    """Squared distances ``n x n'`` of points in units of the lengthscales.

    By one matrix product: accurate to rounding times the squared norms, so the origin should be
    near the points. Rounding may make small ones negative, which counts as zero below.

    Args:
        A: ``n x d`` points divided by the lengthscales.
        B: ``n' x d``, likewise.
    """
    products = torch.addmm(B.square().sum(-1), A, B.mT, alpha=-2.0)
    return products.add_(A.square().sum(-1, keepdim=True))


def matern52(D2: Tensor) -> Tensor:
    """Kernel values at squared distances, of any shape; D2 is overwritten."""
    r = D2.mul_(5.0).clamp_(0.0, FARTHEST).sqrt_()
    e = r.neg().exp_()
    return e.addcmul_(r.addcmul_(r, r, value=1.0 / 3.0), e)


def matern52_and_slope(D2: Tensor) -> tuple[Tensor, Tensor]:
    """Kernel values and ``(5/3)(1 + r) e^-r``; D2 is overwritten.

    The slope times the k-th squared scaled difference is the derivative in ``log l_k``.
    """
    r = D2.mul_(5.0).clamp_(0.0, FARTHEST).sqrt_()
    e = r.neg().exp_()
    slope = torch.addcmul(e, r, e)
    return r.square_().mul_(e).mul_(1.0 / 3.0).add_(slope), slope.mul_(5.0 / 3.0)


def matern52_product(A: Tensor, B: Tensor, V: Tensor) -> Tensor:
    """``k(A, B) V``, ``n x q``, a block of rows at a time: O(n n' (d + q)).

    Args:
        A: ``n x d`` points divided by the lengthscales.
        B: ``n' x d``, likewise.
        V: ``n' x q``.
    """
    return torch.cat([matern52(squared_distances(a, B)) @ V for a in A.split(BLOCK)])


def lengthscale_gradient(H: Tensor, Z: Tensor) -> Tensor:
    """``sum_ij H_ij (z_ik - z_jk)^2`` for every input k, ``d``: one product, O(n^2 d).

    With ``H`` the derivative of a function in the kernel matrix times the slope, entry by entry,
    this is its gradient in the log lengthscales.

    Args:
        H: ``n x n``, symmetric.
        Z: ``n x d`` points divided by the lengthscales.
    """
    return 2.0 * (H.sum(-1) @ Z.square() - ((H @ Z) * Z).sum(0))
