"""A Matern-5/2 kernel over numbers and categories.

Two different categories are one lengthscale apart, whichever they are. That is the kernel over the
categories' indicators with a common lengthscale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.kernels import smooth_matern

__all__ = ["CategoricalMatern"]


class CategoricalMatern(Kernel):
    """Matern-5/2 with a lengthscale per input, some of which are categories.

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
